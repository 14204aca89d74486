"""The cost of a stop, as far as it is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkengine.domain.failover import PartitionAtStop, StopCost, cost_of_stop, estimated_bytes
from linkengine.domain.states import StopReason

SEEN = PartitionAtStop(
    partition=0, mirrored_end=90, source_end=100, source_seen_at_ms=9_000, caught_up_at_ms=8_000, last_timestamp_ms=7_500
)


def failover(*partitions: PartitionAtStop) -> StopCost:
    return cost_of_stop(partitions, reason=StopReason.FAILOVER, requested_at_ms=10_000, writable_at_ms=10_400)


def test_a_failover_report_has_records_left_behind_and_rpo() -> None:
    ahead = replace(SEEN, partition=1, mirrored_end=100, caught_up_at_ms=9_900)
    assert failover(SEEN, ahead) == StopCost(records_not_copied=10, rpo_ms=2_000, rto_ms=400)


@pytest.mark.parametrize(
    ("source_end", "lost", "rpo_ms"),
    [(90, 0, 0), (100, 10, 62_000), (None, None, 62_000)],
    ids=["equal", "producers continued", "unknown"],
)
def test_a_promotion_is_measured_after_its_fence(source_end: int | None, lost: int | None, rpo_ms: int) -> None:
    at_stop = replace(SEEN, source_end=source_end)
    cost = cost_of_stop([at_stop], reason=StopReason.PROMOTE, requested_at_ms=10_000, writable_at_ms=70_000)
    assert cost == StopCost(records_not_copied=lost, rpo_ms=rpo_ms, rto_ms=60_000)


@pytest.mark.parametrize("unknown", [replace(SEEN, source_end=None), replace(SEEN, mirrored_end=None)])
def test_a_partition_with_an_unknown_end_makes_the_count_unknown(unknown: PartitionAtStop) -> None:
    assert failover(SEEN, replace(unknown, partition=1)).records_not_copied is None


def test_the_rpo_of_a_mirror_that_never_caught_up_is_unknown() -> None:
    assert failover(replace(SEEN, caught_up_at_ms=None)).rpo_ms is None


def test_the_loss_of_a_mirror_without_partitions_is_unknown() -> None:
    assert failover() == StopCost(records_not_copied=None, rpo_ms=None, rto_ms=400)


def test_a_mirror_ahead_of_its_source_has_left_nothing_behind() -> None:
    assert failover(replace(SEEN, mirrored_end=120)).records_not_copied == 0


@pytest.mark.parametrize(
    ("lag", "copied", "records", "expected"),
    [(10, 5_000, 50, 1_000), (0, 0, 0, 0), (5, 0, 0, None), (None, 5_000, 50, None)],
)
def test_a_lag_in_bytes_is_estimated_from_the_copied_records(
    lag: int | None, copied: int, records: int, expected: int | None
) -> None:
    assert estimated_bytes(lag=lag, bytes_copied=copied, records_copied=records) == expected
