"""How soon an idle mirror's log end is checked, by a simulated clock; which records are deleted behind the source's start."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.destination.maintenance import EVERY_S, Maintenance
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.values import SourceOrigin
from linkengine.copyjob.worker import TICK_S
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TopicPartition
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.partitions import NOWHERE, owned, unexpected

FOUND_WITHIN_S = 5.0
FOR_THE_REST_S = 1.5  # the request, and the resume that identifies the writer: some round trips


class AtOnce:
    """A background that runs jobs immediately."""

    background = property(lambda self: self)

    def first_due(self, now: float, *, every_s: float) -> float:
        return now + every_s

    def submit(
        self, work: Callable[[], Any], *, done: Callable[[Any], None], failed: Callable[[LinkEngineError], None]
    ) -> None:
        try:
            result = work()
        except LinkEngineError as error:
            failed(error)
        else:
            done(result)


def maintained(
    *,
    services: object = None,
    read_starts: Callable[[Mapping[TopicPartition, int]], dict[TopicPartition, int]] = lambda _: {},
    on_moved_end: Callable[[PartitionState], None] = unexpected,
) -> Maintenance:
    return Maintenance(cast(Services, services or AtOnce()), NOWHERE, read_starts=read_starts, on_moved_end=on_moved_end)


@pytest.mark.parametrize("written_after_s", [0.0, 0.5, EVERY_S - TICK_S, EVERY_S, EVERY_S + TICK_S])
def test_foreign_write_to_an_idle_mirror_is_noticed_within_the_deadline(
    monkeypatch: pytest.MonkeyPatch, written_after_s: float
) -> None:
    mirror, now_s, suspects = owned(generation=9, clean=True), 0.0, list[PartitionState]()
    place = (mirror.assignment.mirror_topic, mirror.assignment.partition)
    monkeypatch.setattr(
        "linkengine.copyjob.destination.maintenance.log_ends", lambda *_: {place: (0, 11 if now_s > written_after_s else 10)}
    )
    upkeep = maintained(on_moved_end=suspects.append)

    while not suspects:
        upkeep.tick(now_s, {0: [mirror]})
        now_s += TICK_S
        assert now_s - written_after_s < FOUND_WITHIN_S - FOR_THE_REST_S

    assert suspects == [mirror]


PLACE: TopicPartition = ("t", 0)
DAMAGED = 1 << 40  # a flipped bit in the log start of a Fetch response


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record up to which offsets records are deleted; no log end has moved."""
    offsets: list[int] = []

    def delete(_cluster: object, _broker: int, befores: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        offsets.extend(befores.values())
        return {place: (0, before) for place, before in befores.items()}

    monkeypatch.setattr(f"{Maintenance.__module__}.delete_records", delete)
    monkeypatch.setattr(f"{Maintenance.__module__}.log_ends", lambda *_: {PLACE: (0, 10)})
    return offsets


def mirror_of(source_start: int) -> PartitionState:
    """Return a mirror of the offsets 0 to 9 whose last Fetch response showed this log start."""
    mirror = owned(generation=9, clean=True)
    mirror.origin = SourceOrigin(leader=Leader(broker=5, epoch=1), topic=bytes(16))
    mirror.counters.observed_source(start=source_start, end=10, high_watermark=10, now_ms=0)
    return mirror


@pytest.mark.parametrize(
    ("fetched", "read", "expected"),
    [
        (4, 4, [4]),
        (4, 6, [4]),  # retention has deleted more since
        (6, 4, [4]),
        (DAMAGED, 0, []),
        (DAMAGED, 4, [4]),
        (4, DAMAGED, [4]),
        (DAMAGED, None, []),  # its leader refused to return it
        (0, DAMAGED, []),
    ],
)
def test_records_are_deleted_up_to_the_lowest_start_that_the_source_has_shown(
    deleted: list[int], fetched: int, read: int | None, expected: list[int]
) -> None:
    requested: list[Mapping[TopicPartition, int]] = []

    def read_starts(leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        requested.append(leaders)
        return {} if read is None else {PLACE: read}

    upkeep, mirror = maintained(read_starts=read_starts), mirror_of(fetched)
    for now_s in (0.0, EVERY_S):
        upkeep.tick(now_s, {0: [mirror]})

    assert deleted == expected
    assert requested == ([{PLACE: 5}] if fetched else [])
    assert mirror.counters.mirror_start == (expected or [0])[0]


def test_nothing_is_deleted_while_the_source_does_not_respond(deleted: list[int]) -> None:
    requested: list[float] = []

    def fail(_leaders: object) -> dict[TopicPartition, int]:
        requested.append(0)
        raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "silent")

    upkeep, mirror = maintained(read_starts=fail), mirror_of(4)
    for number in range(4):
        upkeep.tick(number * EVERY_S, {0: [mirror]})

    assert deleted == []
    assert len(requested) == 3  # again and again


def test_unresponsive_source_gets_a_single_request_at_a_time() -> None:
    class Later(AtOnce):
        jobs = 0

        def submit(self, work: object, **_: object) -> None:
            self.jobs += 1

    later = Later()
    upkeep, mirror = maintained(services=later), mirror_of(4)
    mirror.log_end = None  # the check of its log end is a job as well
    for number in range(9):
        upkeep.tick(number * EVERY_S, {0: [mirror]})

    assert later.jobs == 1


def test_reported_start_is_not_beyond_what_was_deleted(monkeypatch: pytest.MonkeyPatch, deleted: list[int]) -> None:
    """Differences that a verification found below a mirror's start count as settled."""
    monkeypatch.setattr(f"{Maintenance.__module__}.delete_records", lambda *_: {PLACE: (0, 9)})
    upkeep, mirror = maintained(read_starts=lambda _: {PLACE: 4}), mirror_of(4)

    for now_s in (0.0, EVERY_S):
        upkeep.tick(now_s, {0: [mirror]})

    assert mirror.counters.mirror_start == 4
