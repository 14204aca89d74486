"""What a slice tells of a partition: also what nobody could see in its newest state."""

from __future__ import annotations

import pytest

from linkengine.copyjob.account import Account
from linkengine.copyjob.observing import progress_of
from tests.linkengine.copyjob.partitions import partition


@pytest.mark.parametrize(("left_at", "end", "told"), [(None, 990, None), (990, 990, None), (1_000, 990, 990)])
def test_an_end_before_that_of_the_last_owner_is_told(left_at: int | None, end: int, told: int | None) -> None:
    account = Account()

    account.observed_mirror(start=0, end=end, left_at=left_at)

    assert account.set_back_to == told


def test_the_lowest_end_that_a_mirror_fell_back_to_is_told_when_it_has_grown_again() -> None:
    one = partition()
    for end in (1_000, 990, 1_010, 1_000, 1_005):
        one.account.observed_mirror(start=0, end=end, left_at=2_000 if end == 1_010 else None)

    told = progress_of(one, now_ms=5_000)

    assert (told.mirror_end, told.set_back_to, told.set_backs) == (1_005, 990, 2)


def test_a_leader_that_knows_an_older_high_watermark_is_no_sight_of_the_source() -> None:
    account = Account()
    account.observed_source(start=0, end=1_200, high_watermark=1_200, now_ms=1_000)
    account.observed_mirror(start=0, end=1_000)

    account.observed_source(start=5, end=1_000, high_watermark=1_100, now_ms=2_000)

    assert (account.source_start, account.source_end, account.source_high_watermark) == (5, 1_200, 1_200)
    assert (account.source_heard_ms, account.caught_up_at_ms) == (1_000, None)


def test_rates_are_measured_between_reports_and_smoothed() -> None:
    one = partition()
    assert progress_of(one, now_ms=0).bytes_per_s is None

    one.account.bytes_copied, one.account.records_copied = 700, 70
    first = progress_of(one, now_ms=700)
    again = progress_of(one, now_ms=750)  # too soon to measure
    idle = [progress_of(one, now_ms=700 + 700 * number) for number in range(1, 12)]

    assert (first.bytes_per_s, first.records_per_s) == (1_000, 100)
    assert again.bytes_per_s == 1_000
    assert [seen.bytes_per_s for seen in idle[:2]] == [500, 250]
    assert (idle[-1].bytes_per_s, idle[-1].records_per_s) == (0, 0)
