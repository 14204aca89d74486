"""Partitions are dealt out by what they move, so that no task is left with all the work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.dealing import BASE_BYTES_PER_S, deal, tasks_for
from linkengine.domain.plans import PartitionAssignment


def partition(number: int, bytes_per_s: float = 0.0, mirror: str = "m") -> PartitionAssignment:
    return PartitionAssignment(
        mirror_id=mirror, partition=number, source_topic="t", mirror_topic="t", source_topic_id="", producer_id=number,
        bytes_per_s=bytes_per_s,
    )  # fmt: skip


def numbers(shares: list[tuple[PartitionAssignment, ...]]) -> list[list[int]]:
    return [[one.partition for one in share] for share in shares]


def test_partitions_of_unknown_rate_are_spread_evenly() -> None:
    assert numbers(deal([partition(number) for number in range(7)], 3)) == [[0, 3, 6], [1, 4], [2, 5]]


def test_two_busy_partitions_do_not_meet_in_one_task() -> None:
    busy = {0: 50e6, 2: 40e6}

    shares = numbers(deal([partition(number, busy.get(number, 1_000)) for number in range(4)], 2))

    assert [0 in share for share in shares] != [2 in share for share in shares]


def test_one_giant_has_a_task_of_its_own_and_the_idle_ones_share_the_other() -> None:
    shares = numbers(deal([partition(number, 80e6 if number == 3 else 0) for number in range(6)], 2))

    assert sorted(shares) == [[0, 1, 2, 4, 5], [3]]


@given(st.integers(0, 60), st.integers(0, 20))
def test_shares_of_equal_partitions_differ_by_one_at_most(partitions: int, tasks: int) -> None:
    shares = deal([partition(number) for number in range(partitions)], tasks)

    assert len(shares) == min(max(tasks, 1), partitions)
    assert not shares or max(map(len, shares)) - min(map(len, shares)) <= 1


def test_no_share_is_empty() -> None:
    assert deal([], 4) == []
    assert numbers(deal([partition(0)], 4)) == [[0]]


@given(st.lists(st.floats(0, 1e9), max_size=40), st.integers(1, 8))
def test_every_partition_is_dealt_once_and_no_share_has_more_than_a_fair_part_and_one(rates: list[float], tasks: int) -> None:
    partitions = [partition(number, rate) for number, rate in enumerate(rates)]

    shares = deal(partitions, tasks)

    assert sorted(one.partition for share in shares for one in share) == list(range(len(rates)))
    assert deal(list(reversed(partitions)), tasks) == shares
    loads = [sum(one.bytes_per_s + BASE_BYTES_PER_S for one in share) for share in shares]
    if loads:
        fair = sum(loads) / tasks
        assert max(loads) <= (fair + max(rates) + BASE_BYTES_PER_S) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([], 1),
        ([None], 1),
        ([None] * 4, 1),
        ([None] * 5, 2),
        ([None] * 1_000, 8),
        ([0.0] * 1_000, 1),
        ([1_000.0] * 1_000, 1),
        ([60e6, 60e6], 2),
        ([120e6], 2),
        ([90e6, None], 2),
        ([400e6, 400e6, 400e6], 8),
    ],
)
def test_a_slice_has_as_many_tasks_as_there_is_work_for(rates: list[float | None], expected: int) -> None:
    assert tasks_for(rates, most=8) == expected
