"""The copier with one of its safeguards taken out, to show that the judge would notice. Patches of this process only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linkengine.batches.patch import patch_for_append
from linkengine.copyjob import outlet, partition, upkeep, writer
from linkengine.copyjob.producing import topic_of
from linkengine.copyjob.tails import TailQuery, read_tails
from linkengine.domain.leases import generation_of
from linkengine.jobs import stopping
from linkengine.kafka import fetch, produce
from linkengine.kafka.cluster import Cluster


def mutate(name: str) -> None:
    """Apply a mutation by name; an empty name changes nothing."""
    if name:
        MUTATIONS[name]()


def _no_sequences() -> None:
    """Batches go out without producer id and sequence: every append is accepted, a repeated one too."""
    patch = patch_for_append

    def unconditional(batch: Any, **_: int) -> None:
        patch(batch, producer_id=-1, producer_epoch=-1, base_sequence=-1)

    partition.patch_for_append = unconditional  # type: ignore[attr-defined]


def _no_offset_check() -> None:
    """Every acknowledged batch is taken to be where it belongs, and nobody looks later."""
    answered, decode = outlet.MirrorBroker._answered, produce.decode_produce
    expected: dict[tuple[bytes, int], int] = {}

    def decode_as_hoped(body: memoryview, *, version: int) -> Any:
        throttle_ms, found = decode(body, version=version)
        return throttle_ms, [
            one if one.error else one._replace(base_offset=expected[one.topic, one.partition]) for one in found
        ]

    def answered_as_hoped(self: Any, request: Any, body: memoryview) -> None:
        entries = request.entries
        expected.update({(topic_of(one, request.version), one.assignment.partition): step.start for one, _, step in entries})
        answered(self, request, body)

    produce.decode_produce = decode_as_hoped
    outlet.MirrorBroker._answered = answered_as_hoped  # type: ignore[method-assign]
    _no_looks()


def _no_looks() -> None:
    """Nobody looks at idle mirrors: what keeps them right has to do without."""
    upkeep.Upkeep._check_ends = lambda *_: None  # type: ignore[method-assign]


def _no_fence() -> None:
    """A stop only looks where the mirror ends."""

    def look(address: Any, assignments: Any, **_: Any) -> dict[int, int]:
        cluster = Cluster(address)
        try:
            tails = read_tails(cluster, [TailQuery(assignment=one, clean=False) for one in assignments])
        finally:
            cluster.close()
        return {one.partition: tails[one.key].end for one in assignments}  # type: ignore[union-attr]

    stopping.fence_partitions = look  # type: ignore[attr-defined]


def _no_raise() -> None:
    """A new owner goes on with its predecessor's epochs: late markers of the predecessor are taken."""
    adopt = writer.Writer.adopt

    def adopt_as_clean(self: writer.Writer, state: Any, *, generation: int, clean: bool, empty: bool = False) -> None:
        del clean
        adopt(self, state, generation=generation, clean=True, empty=empty)
        self._must_raise = False
        self.generation = max(generation_of(state.coordinator_epoch), 0)

    writer.Writer.adopt = adopt_as_clean  # type: ignore[method-assign]


def _no_commits() -> None:
    """What is read does not wait for its transaction: the source's high watermark is taken for its stable end."""
    partition_of = fetch._partition

    def up_to_the_high_watermark(reader: Any, topic: bytes) -> Any:
        answer = partition_of(reader, topic)
        return answer._replace(last_stable_offset=answer.high_watermark)

    fetch.READ_COMMITTED = 0
    fetch._partition = up_to_the_high_watermark


MUTATIONS: dict[str, Callable[[], None]] = {
    "commits": _no_commits,
    "sequences": _no_sequences,
    "offsets": _no_offset_check,
    "fence": _no_fence,
    "looks": _no_looks,
    "epochs": _no_raise,
}
