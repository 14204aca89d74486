"""The numbers that a copy worker reports of a partition, including events that its newest state does not show."""

from __future__ import annotations

import pytest

from linkengine.copyjob.partition_counters import PartitionCounters
from linkengine.copyjob.progress_reports import progress_of
from tests.linkengine.copyjob.partitions import partition


@pytest.mark.parametrize(("previous_end", "end", "set_back_to"), [(None, 990, None), (990, 990, None), (1_000, 990, 990)])
def test_log_end_below_that_of_the_previous_owner_is_reported(
    previous_end: int | None, end: int, set_back_to: int | None
) -> None:
    counters = PartitionCounters()

    counters.observed_mirror(start=0, end=end, previous_end=previous_end)

    assert counters.set_back_to == set_back_to


def test_lowest_log_end_is_reported_after_the_mirror_has_grown_again() -> None:
    mirror = partition()
    for end in (1_000, 990, 1_010, 1_000, 1_005):
        mirror.counters.observed_mirror(start=0, end=end, previous_end=2_000 if end == 1_010 else None)

    report = progress_of(mirror, now_ms=5_000)

    assert (report.mirror_end, report.set_back_to, report.set_backs) == (1_005, 990, 2)


def test_response_with_an_older_high_watermark_does_not_count_as_observation_of_the_source() -> None:
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


def test_rate_of_an_idle_partition_that_is_reported_rarely_is_zero_at_once() -> None:
    measured = partition()
    progress_of(measured, now_ms=0)
    measured.counters.bytes_copied, measured.counters.records_copied = 10_000, 10

    copied, idle = progress_of(measured, now_ms=2_000), progress_of(measured, now_ms=4_000)

    assert (copied.bytes_per_s, copied.records_per_s) == (5_000, 5)
    assert (idle.bytes_per_s, idle.records_per_s) == (0, 0)
