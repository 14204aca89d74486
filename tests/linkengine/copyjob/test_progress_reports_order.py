"""The round-robin order of progress reports, without a copy loop."""

import pytest

from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.progress_reports import MOST_RUNS, MOST_S, TOGETHER, ReportSchedule
from linkengine.copyjob.values import Stage, Trouble
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from tests.linkengine.copyjob.partitions import partition

EVERY_S = 0.5


def partitions(count: int) -> list[PartitionState]:
    return [partition(number) for number in range(count)]


def turns_of(some: list[PartitionState]) -> ReportSchedule:
    turns = ReportSchedule(every_s=EVERY_S)
    for mirror in reversed(some):
        turns.add(mirror)
    return turns


def reports(turns: ReportSchedule, *, seconds: float) -> list[list[PartitionState]]:
    ticks = (number / 1000 for number in range(int(seconds * 1000)))
    return [some for now in ticks if (some := turns.due(now))]


def test_few_partitions_are_reported_together_at_the_configured_interval() -> None:
    some = partitions(3)

    assert reports(turns_of(some), seconds=2) == [some] * 4


@pytest.mark.parametrize("count", [TOGETHER + 1, 500, 1_000])
def test_many_partitions_are_reported_round_robin_within_the_longest_interval(count: int) -> None:
    many = partitions(count)

    runs = reports(turns_of(many), seconds=MOST_S + 0.1)

    assert max(map(len, runs)) <= TOGETHER
    assert {mirror.key for run in runs for mirror in run} == {mirror.key for mirror in many}


@pytest.mark.parametrize("turn_ms", [20, 45])
def test_ten_thousand_partitions_are_reported_within_the_longest_interval_by_a_loop_that_turns_rarely(turn_ms: int) -> None:
    many = partitions(10_000)
    turns = turns_of(many)

    runs = [turns.due(1.0 + number * turn_ms / 1000) for number in range(int(MOST_S * 1000) // turn_ms + 2)]

    assert max(map(len, runs)) <= MOST_RUNS * TOGETHER
    assert {mirror.key for run in runs for mirror in run} == {mirror.key for mirror in many}


def test_a_loop_that_stood_still_does_not_report_everything_at_once() -> None:
    turns = turns_of(partitions(10_000))
    turns.due(1.0)

    assert len(turns.due(100.0)) <= MOST_RUNS * TOGETHER
    assert 0 < len(turns.due(100.02)) <= 2 * TOGETHER


def test_nothing_is_reported_without_partitions() -> None:
    turns = turns_of([])

    assert not turns.due(0.0)
    assert not turns.changed()


def test_phase_change_is_reported_once_for_that_partition_only() -> None:
    first, second = partitions(2)
    turns = turns_of([first, second])
    assert turns.changed() == [first, second]

    second.stage = Stage.COPYING
    second.source_trouble = Trouble(PartitionPhase.SOURCE_UNREACHABLE, ErrorCode.TIMEOUT_ERROR, "gone")

    assert turns.changed() == [second]
    assert not turns.changed()


def test_removed_partitions_are_not_reported_and_added_ones_are() -> None:
    first, second, third = partitions(3)
    turns = turns_of([first, second])
    assert turns.changed() == [first, second]

    turns.drop(first)
    turns.add(third)

    assert turns.changed() == [third]
    assert set(turns.due(0.0)) == {second, third}
