"""Removes a safeguard of the engine, to show that the judge detects its absence. Patches this process only."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from linkengine.batches.patch import patch_for_append
from linkengine.copyjob import partition_state, producer_state
from linkengine.copyjob.destination import maintenance, producer
from linkengine.copyjob.destination.producer import topic_of
from linkengine.copyjob.producer_state import generation_of
from linkengine.copyjob.resume.log_end import read_log_ends
from linkengine.copyjob.stop.fence import Fence
from linkengine.copyjob.values import LogEndQuery
from linkengine.jobs import stopping
from linkengine.kafka import requests
from linkengine.kafka.cluster import Cluster


def mutate(name: str) -> None:
    """Apply a mutation by name; an empty name changes nothing."""
    if name:
        MUTATIONS[name]()


def _no_sequences() -> None:
    """Batches are sent without producer id and sequence: every append is accepted, even if it is repeated."""
    patch = patch_for_append

    def unconditional(batch: Any, **_: int) -> None:
        patch(batch, producer_id=-1, producer_epoch=-1, base_sequence=-1)

    partition_state.patch_for_append = unconditional  # type: ignore[attr-defined]


def _no_offset_check() -> None:
    """The base offsets of acknowledgements are not checked, and neither are the log ends of idle mirrors."""
    responded, decode = producer.BrokerProducer._responded, requests.decode_produce
    expected: dict[tuple[bytes, int], int] = {}

    def decode_as_expected(body: memoryview, *, version: int) -> Any:
        throttle_ms, found = decode(body, version=version)
        return throttle_ms, [
            part if part.error else part._replace(base_offset=expected[part.topic, part.partition]) for part in found
        ]

    def responded_as_expected(self: Any, request: Any, body: memoryview) -> None:
        entries = request.entries
        expected.update({(topic_of(e, request.version), e.assignment.partition): step.start for e, _, step in entries})
        responded(self, request, body)

    requests.decode_produce = decode_as_expected
    producer.BrokerProducer._responded = responded_as_expected  # type: ignore[method-assign]
    _no_tail_checks()


def _no_tail_checks() -> None:
    """The log ends of idle mirrors are not checked."""
    maintenance.Maintenance._check_ends = lambda *_: None  # type: ignore[method-assign]


def _no_fence() -> None:
    """A stop does not fence: it only reads where the mirror ends."""

    def read_ends(address: Any, assignments: Any, **_: Any) -> Generator[dict[str, Fence]]:
        cluster = Cluster(address)
        try:
            tails = read_log_ends(cluster, [LogEndQuery(assignment=assignment, clean=False) for assignment in assignments])
        finally:
            cluster.close()
        yield {key: Fence(end=tail.end, epoch=tail.leader.epoch) for key, tail in tails.items()}  # type: ignore[union-attr]

    stopping.fence_partitions = read_ends  # type: ignore[assignment, attr-defined]


def _no_raise() -> None:
    """A new owner continues with the epochs of its predecessor, whose late markers are then accepted."""
    adopt = producer_state.OwnProducerState.adopt

    def adopt_as_clean(
        self: producer_state.OwnProducerState, state: Any, *, generation: int, clean: bool, empty: bool = False
    ) -> None:
        del clean
        adopt(self, state, generation=generation, clean=True, empty=empty)
        self._must_raise = False
        self.generation = max(generation_of(state.coordinator_epoch), 0)

    producer_state.OwnProducerState.adopt = adopt_as_clean  # type: ignore[method-assign]


def _no_commits() -> None:
    """Records are read before their transaction ends: the source's high watermark is used as its last stable offset."""
    partition_of = requests._fetched_partition

    def up_to_the_high_watermark(reader: Any, topic: bytes) -> Any:
        response = partition_of(reader, topic)
        return response._replace(last_stable_offset=response.high_watermark)

    requests.READ_COMMITTED = 0
    requests._fetched_partition = up_to_the_high_watermark


MUTATIONS: dict[str, Callable[[], None]] = {
    "commits": _no_commits,
    "sequences": _no_sequences,
    "offsets": _no_offset_check,
    "fence": _no_fence,
    "tail-checks": _no_tail_checks,
    "epochs": _no_raise,
}
