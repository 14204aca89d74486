"""Results of background checks count only for the leader that is read when they arrive; without brokers."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.resume.tail_check import TailChecker, TailCheckEvents, TailCheckResult
from linkengine.copyjob.source.data_loss import EVERY_S, LEFT_OUT_S, SourceWatch, WatchEvents
from linkengine.copyjob.source.leaders import OlderEpochError, ReadUpTo, SourceExtent
from linkengine.copyjob.source.side import EMPTY_AGAIN_S, SourceSide
from linkengine.copyjob.values import LogTail, SourceOrigin, Stage
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.partitions import NOWHERE, partition, unexpected

RANGE = LogTail(start=0, end=10, records={}, markers=frozenset())
COMPLETE = TailCheckResult(difference=None, complete=True)
ADDRESS = ClusterAddress(bootstrap_servers="nowhere:1")


class Later:
    """A background whose jobs end when the test says so; ``submitted`` holds their callbacks."""

    def __init__(self) -> None:
        self.submitted: list[Callable[[Any], None]] = []
        self.now = 0.0

    def submit(self, job: Callable[[], Any], *, done: Callable[[Any], None], failed: Callable[[Any], None]) -> None:
        self.submitted.append(done)


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def services(services: Services, later: Later) -> Services:
    """The usual services, with clock and background controlled by the test."""
    controlled: Any = {"background": later, "clock": SimpleNamespace(monotonic=lambda: later.now, now_ms=lambda: 0)}
    return replace(services, **controlled)


def leader(epoch: int) -> SourceOrigin:
    return SourceOrigin(Leader(broker=0, epoch=epoch), b"topic")


def source_side(services: Services, **callbacks: Any) -> SourceSide:
    return SourceSide(services, ADDRESS, **{"planned": unexpected, "failed": unexpected, "lose": unexpected} | callbacks)


def copying(*, unchecked_tail: LogTail | None = None) -> PartitionState:
    mirror = partition()
    mirror.stage, mirror.position, mirror.sent_end, mirror.origin = Stage.COPYING, 10, 10, leader(1)
    mirror.unchecked_tail = unchecked_tail
    return mirror


def test_tail_check_is_repeated_when_the_leader_has_changed(services: Services, later: Later) -> None:
    proven: list[PartitionState] = []
    events = TailCheckEvents(proven=proven.append, short=unexpected, refused=unexpected, failed=unexpected)
    checker, mirror = TailChecker(services, NOWHERE, events), copying(unchecked_tail=RANGE)
    checker.want(mirror)
    checker.tick(0.0)
    mirror.leave_origin()
    mirror.origin = leader(2)

    later.submitted.pop()({mirror.key: COMPLETE})

    assert (mirror.unchecked_tail, mirror.read_position.seen, proven) == (RANGE, None, [])
    checker.tick(0.0)
    later.submitted.pop()({mirror.key: COMPLETE})
    assert (mirror.unchecked_tail, mirror.read_position.seen, proven) == (None, (2, 10), [mirror])


@pytest.mark.parametrize(("moved", "filled"), [(True, []), (False, [20])])
def test_empty_end_is_filled_only_if_the_current_leader_confirmed_it(
    services: Services, later: Later, moved: bool, filled: list[int]
) -> None:
    mirror, planned = copying(), list[int]()
    side = source_side(services, planned=lambda mirror: planned.append(mirror.chunks[0].steps[0].end))
    for later.now in (0.0, EMPTY_AGAIN_S):
        side._emptied(mirror, 20)
        if moved:
            mirror.leave_origin()
            mirror.origin = leader(2 + int(later.now))
        later.submitted.pop()(0)

    assert planned == filled
    assert not mirror.examining


def test_empty_end_is_observed_twice_before_it_is_filled(services: Services, later: Later) -> None:
    mirror, planned = copying(), list[int]()
    side = source_side(services, planned=lambda mirror: planned.append(mirror.chunks[0].steps[0].end))

    def observe(end: int) -> list[int]:
        side._emptied(mirror, end)
        later.submitted.pop()(0)
        return planned

    assert observe(20) == []
    assert mirror.source_retry_at == EMPTY_AGAIN_S
    later.now = EMPTY_AGAIN_S
    assert observe(30) == []  # the end has moved: the offsets from 20 on were not observed before
    later.now += EMPTY_AGAIN_S / 2
    assert observe(30) == []
    later.now += EMPTY_AGAIN_S / 2
    assert observe(30) == [30]


@pytest.mark.parametrize(("moved", "filled"), [(True, []), (False, [20])])
def test_lost_range_is_not_filled_when_the_leader_has_changed(
    services: Services, later: Later, moved: bool, filled: list[int]
) -> None:
    mirror, planned = copying(), list[int]()
    side = source_side(services, planned=lambda mirror: planned.append(mirror.chunks[0].steps[0].end))
    side._examined(mirror, SourceExtent(start=20, end=30))
    assert (planned, mirror.examining) == ([], True)
    if moved:
        mirror.leave_origin()
        mirror.origin = leader(2)

    later.submitted.pop()(True)

    assert (planned, mirror.examining) == (filled, False)


@pytest.mark.parametrize("is_final", [True, False], ids=["every broker", "not every broker"])
def test_leader_of_an_older_epoch_fails_the_mirror_only_if_all_brokers_keep_reporting_it(
    services: Services, later: Later, is_final: bool
) -> None:
    mirror, failures = copying(), list[LinkEngineError]()
    side = source_side(services, failed=lambda _, error: failures.append(error))
    error = OlderEpochError("t-0", epoch=3, seen=ReadUpTo(epoch=5, end=10), is_final=is_final)
    for later.now in (0.0, 5.0, 9.0):
        side._not_located([mirror], error)
    assert failures == []
    assert mirror.source_trouble is not None
    assert (mirror.source_trouble.phase, mirror.source_trouble.code) == (
        PartitionPhase.SOURCE_UNREACHABLE,
        ErrorCode.TIMEOUT_ERROR,
    )

    later.now = 10.0
    side._not_located([mirror], error)

    assert [error.code for error in failures] == ([ErrorCode.UNEXPECTED_TRUNCATION] if is_final else [])


@pytest.mark.parametrize(("is_read", "after_s"), [(True, LEFT_OUT_S), (False, EVERY_S)])
def test_end_of_a_source_is_observed_if_no_fetch_reports_it(
    services: Services, later: Later, is_read: bool, after_s: float
) -> None:
    mirror = copying()
    mirror.counters.observed_source(start=0, end=10, high_watermark=10, now_ms=0)
    if not is_read:
        mirror.mirror_retry_at, mirror.stage = 60.0, Stage.RESUMING
    clock: Any = SimpleNamespace(monotonic=lambda: later.now, now_ms=lambda: int(later.now * 1000))
    watch = SourceWatch(replace(services, clock=clock), NOWHERE, WatchEvents(seen=unexpected, refused=unexpected))

    requested = []
    while len(later.submitted) == 0:
        watch.tick(later.now, {(0, 0): [mirror]})
        requested.append(later.now)
        later.now += 0.1

    assert after_s < requested[-1] < after_s + EVERY_S + 0.2
