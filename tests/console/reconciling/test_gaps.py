"""The gap ledger: few rows however busy a topic is, each offset counted once, and an alarm for lost records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection

from console.models import GapRange, MirrorPartition, MirrorTopic, StateTransitionError
from console.models.mirrors import RECORDS_LOST
from console.reconciling import gaps
from console.reconciling.gaps import MOST_ROWS, SETTLED, note_head, store_gaps
from console.reconciling.transition_errors import clear
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason
from tests.console.conftest import NOW

R = GapReason


def gap(start: int, end: int, reason: R = R.TRANSACTION_MARKER, *, filled: int = -1) -> Gap:
    return Gap(OffsetRange(start, end), reason, filled)


def ledger(mirror: MirrorTopic) -> list[tuple[int, int, int, int, str]]:
    return list(GapRange.objects.filter(mirror=mirror).values_list("partition", "start", "end", "filled", "reason"))


def test_growing_run_stays_a_single_row(mirror: MirrorTopic) -> None:
    assert store_gaps(mirror=mirror, gaps={0: [gap(5, 6)], 1: [gap(5, 6)]}, now=NOW)
    assert store_gaps(mirror=mirror, gaps={0: [gap(5, 9), gap(20, 21)]}, now=NOW)
    assert store_gaps(mirror=mirror, gaps={0: [gap(20, 40, filled=3), gap(9, 10, R.ABORTED)]}, now=NOW)

    assert ledger(mirror) == [
        (0, 5, 9, 4, "TRANSACTION_MARKER"),
        (0, 9, 10, 1, "ABORTED"),
        (0, 20, 40, 3, "TRANSACTION_MARKER"),
        (1, 5, 6, 1, "TRANSACTION_MARKER"),
    ]


def test_known_run_is_not_written_again(mirror: MirrorTopic) -> None:
    store_gaps(mirror=mirror, gaps={0: [gap(5, 9)]}, now=NOW)
    pk = GapRange.objects.get().pk

    assert not store_gaps(mirror=mirror, gaps={0: [gap(5, 9)]}, now=NOW)
    assert not store_gaps(mirror=mirror, gaps={0: [gap(5, 7)]}, now=NOW)
    assert not store_gaps(mirror=mirror, gaps={0: []}, now=NOW)
    assert GapRange.objects.get().pk == pk


@pytest.mark.django_db(transaction=True)
def test_concurrent_reports_of_a_run_lose_nothing(mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    store_gaps(mirror=mirror, gaps={0: [gap(5, 6)]}, now=NOW)
    real, others = gaps._known, list[Any]()

    def store_the_whole() -> None:
        store_gaps(mirror=mirror, gaps={0: [gap(5, 20)]}, now=NOW)
        connection.close()

    def known(mirror: MirrorTopic, reported: Iterable[tuple[int, Gap]]) -> dict[gaps.PartitionReason, list[GapRange]]:
        found = real(mirror, reported)
        if not others:
            others.append(Thread(target=store_the_whole))
            others[0].start()
            others[0].join(0.5)
        return found

    monkeypatch.setattr(gaps, "_known", known)
    store_gaps(mirror=mirror, gaps={0: [gap(5, 9)]}, now=NOW)
    others[0].join(30)

    assert ledger(mirror) == [(0, 5, 20, 15, "TRANSACTION_MARKER")]


def test_hour_of_transactions_leaves_few_rows_and_counts_every_marker(mirror: MirrorTopic) -> None:
    runs = [gap(100 * n, 100 * n + 90, filled=9) for n in range(360)]  # every ten seconds
    for number, run in enumerate(runs):
        now = NOW + timedelta(seconds=10 * number)
        store_gaps(mirror=mirror, gaps={0: [*runs[max(0, number - 1) : number], run]}, now=now)

    rows = GapRange.objects.filter(mirror=mirror)
    assert rows.count() <= 2 * MOST_ROWS + SETTLED.total_seconds() / 10 + 1
    assert sum(row.filled for row in rows) == 360 * 9
    assert (0, 35_900, 35_990, 9, "TRANSACTION_MARKER") in ledger(mirror)
    assert not store_gaps(mirror=mirror, gaps={0: runs}, now=NOW + timedelta(hours=1))


def test_lost_ranges_are_merged_with_adjacent_ones_only(mirror: MirrorTopic) -> None:
    lost = [gap(10 * n, 10 * n + 5 + 5 * (n % 2), R.LOST) for n in range(4 * MOST_ROWS)]
    for run in lost:
        store_gaps(mirror=mirror, gaps={0: [run]}, now=NOW)

    store_gaps(mirror=mirror, gaps={0: [gap(9_000, 9_001, R.LOST)]}, now=NOW + timedelta(hours=1))

    rows = GapRange.objects.filter(mirror=mirror)
    assert all(row.filled == row.end - row.start for row in rows)
    assert sum(row.filled for row in rows) == 30 * MOST_ROWS + 1
    assert 2 * MOST_ROWS < rows.count() < 4 * MOST_ROWS


def test_lost_records_raise_an_alarm_that_stays(mirror: MirrorTopic) -> None:
    store_gaps(mirror=mirror, gaps={0: [gap(5, 9, R.LOST)]}, now=NOW)
    store_gaps(mirror=mirror, gaps={1: [gap(0, 2, R.LOST)]}, now=NOW)

    error = StateTransitionError.objects.get()
    assert error.code == RECORDS_LOST
    assert error.message.startswith("Retention deleted 6 offsets of 'orders'")
    clear(mirrors=[mirror], now=NOW)
    assert StateTransitionError.objects.exists()


def test_alarm_shows_when_the_lost_records_were_written(mirror: MirrorTopic) -> None:
    store_gaps(mirror=mirror, gaps={0: [Gap(OffsetRange(5, 9), R.LOST, before_ms=86_400_000)]}, now=NOW)
    dated = Gap(OffsetRange(5, 9), R.LOST, before_ms=86_400_000, after_ms=90_000_000)

    assert store_gaps(mirror=mirror, gaps={0: [dated]}, now=NOW)
    assert not store_gaps(mirror=mirror, gaps={0: [dated]}, now=NOW)

    words = "written after 1970-01-02 00:00:00 UTC and before 1970-01-02 01:00:00 UTC"
    assert words in StateTransitionError.objects.get().message
    row = GapRange.objects.get()
    assert (row.filled, row.before_ms, row.after_ms) == (4, 86_400_000, 90_000_000)


def test_loss_at_the_start_of_a_copy_gets_its_time_from_the_previous_one(mirror: MirrorTopic) -> None:
    MirrorPartition.objects.filter(mirror=mirror, partition=0).update(last_timestamp_ms=70)

    store_gaps(mirror=mirror, gaps={0: [Gap(OffsetRange(10, 15), R.LOST, after_ms=90)]}, now=NOW)

    row = GapRange.objects.get()
    assert (row.before_ms, row.after_ms) == (70, 90)


def test_head_below_the_first_record_is_stored(mirror: MirrorTopic) -> None:
    note_head(mirror=mirror, seeded=[(0, 1_000_000), (1, 0)], now=NOW)

    assert ledger(mirror) == [(0, 0, 1_000_000, 1_000_000, "HEAD")]
