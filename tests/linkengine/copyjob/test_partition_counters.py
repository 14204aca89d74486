"""What a slice tells of a partition: also what nobody could see in its newest state."""

from __future__ import annotations

import pytest

from linkengine.copyjob.partition_counters import PartitionCounters
from linkengine.copyjob.progress_reports import progress_of
from tests.linkengine.copyjob.partitions import partition


@pytest.mark.parametrize(("left_at", "end", "told"), [(None, 990, None), (990, 990, None), (1_000, 990, 990)])
def test_an_end_before_that_of_the_last_owner_is_told(left_at: int | None, end: int, told: int | None) -> None:
    counters = PartitionCounters()

    counters.observed_mirror(start=0, end=end, left_at=left_at)

    assert counters.set_back_to == told


def test_the_lowest_end_that_a_mirror_fell_back_to_is_told_when_it_has_grown_again() -> None:
    one = partition()
    for end in (1_000, 990, 1_010, 1_000, 1_005):
        one.counters.observed_mirror(start=0, end=end, left_at=2_000 if end == 1_010 else None)

    told = progress_of(one, now_ms=5_000)

    assert (told.mirror_end, told.set_back_to, told.set_backs) == (1_005, 990, 2)


def test_a_leader_that_knows_an_older_high_watermark_is_no_sight_of_the_source() -> None:
    counters = PartitionCounters()
    counters.observed_source(start=0, end=1_200, high_watermark=1_200, now_ms=1_000)
    counters.observed_mirror(start=0, end=1_000)

    counters.observed_source(start=5, end=1_000, high_watermark=1_100, now_ms=2_000)

    assert (counters.source_start, counters.source_end, counters.source_high_watermark) == (5, 1_200, 1_200)
    assert (counters.source_seen_ms, counters.caught_up_at_ms) == (1_000, None)


def test_rates_are_measured_between_reports_and_smoothed() -> None:
    measured = partition()
    assert progress_of(measured, now_ms=0).bytes_per_s is None

    measured.counters.bytes_copied, measured.counters.records_copied = 700, 70
    first = progress_of(measured, now_ms=700)
    again = progress_of(measured, now_ms=750)  # less than LEAST_MEASURED_MS later
    idle = [progress_of(measured, now_ms=700 + 700 * number) for number in range(1, 12)]

    assert (first.bytes_per_s, first.records_per_s) == (1_000, 100)
    assert again.bytes_per_s == 1_000
    assert [progress.bytes_per_s for progress in idle[:2]] == [500, 250]
    assert (idle[-1].bytes_per_s, idle[-1].records_per_s) == (0, 0)
