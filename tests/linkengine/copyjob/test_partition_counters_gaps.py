"""Filled offsets are reported as few runs, however many markers; losses are exact, with the times around them."""

from linkengine.copyjob.partition_counters import EXACT_RUNS, RUN_MS, FillRuns
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason

R = GapReason


def runs_of_markers(count: int, *, every_ms: int = 100) -> FillRuns:
    """Return runs with a marker after each transaction of nine records."""
    runs = FillRuns()
    for number in range(count):
        at = 10 * number + 9
        runs.add(at, at + 1, R.TRANSACTION_MARKER, now_ms=number * every_ms, before_ms=None)
    return runs


def test_few_fills_are_reported_exactly() -> None:
    assert [gap.range.start for gap in runs_of_markers(EXACT_RUNS).since(0)] == [
        10 * number + 9 for number in range(EXACT_RUNS)
    ]


def test_busy_topic_has_one_run_per_ten_seconds() -> None:
    gaps = runs_of_markers(6_000, every_ms=10).since(0)  # 60 s

    assert len(gaps) <= EXACT_RUNS + 60_000 // RUN_MS + 1
    assert sum(gap.filled for gap in gaps) == 6_000


def test_run_keeps_its_start_while_it_grows() -> None:
    few, more = runs_of_markers(40).since(0), runs_of_markers(60).since(0)

    assert few[-1].range.start == more[-1].range.start
    assert (few[-1].filled, more[-1].filled) == (25, 45)


def test_reports_list_runs_that_grew_recently_and_all_losses() -> None:
    runs = FillRuns()
    runs.add(0, 5, R.LOST, now_ms=0, before_ms=None)
    runs.add(7, 8, R.ABORTED, now_ms=0, before_ms=None)
    runs.add(9, 10, R.ABORTED, now_ms=20_000, before_ms=None)

    assert runs.since(10_000) == (Gap(OffsetRange(0, 5), R.LOST), Gap(OffsetRange(9, 10), R.ABORTED))


def test_loss_has_the_timestamps_of_the_records_around_it() -> None:
    runs = FillRuns()
    runs.add(10, 1_010, R.LOST, now_ms=0, before_ms=500)
    runs.add(1_010, 2_000, R.LOST, now_ms=1, before_ms=500)
    assert runs.awaits_record

    runs.record_followed(900)
    runs.record_followed(950)

    assert runs.since(0) == (Gap(OffsetRange(10, 2_000), R.LOST, before_ms=500, after_ms=900),)
    assert not runs.awaits_record


def test_reported_runs_are_dropped_unless_they_may_still_grow() -> None:
    """A worker fills gaps for months; its record of them has to stay small."""
    runs = runs_of_markers(60_000, every_ms=10)
    runs.add(700_000, 700_005, R.LOST, now_ms=0, before_ms=None)  # the record after it is not known yet
    runs.add(800_000, 800_005, R.LOST, now_ms=0, before_ms=None)
    newest = max(gap.range.start for gap in runs.since(0) if gap.reason is R.TRANSACTION_MARKER)

    runs.forget(600_000)

    assert [gap.range.start for gap in runs.since(0)] == [newest, 700_000, 800_000]
    runs.record_followed(5)
    runs.forget(600_000)
    assert [gap.range.start for gap in runs.since(0)] == [newest, 800_000]


def test_growing_run_keeps_its_start_after_others_were_dropped() -> None:
    runs = runs_of_markers(100)
    before = runs.since(0)[-1]

    runs.forget(5_000)
    runs.add(1_009, 1_010, R.TRANSACTION_MARKER, now_ms=10_050, before_ms=None)

    after = runs.since(10_000)[-1]
    assert (after.range.start, after.filled) == (before.range.start, before.filled + 1)
