"""Series of samples on a grid: ranges, down-sampling, unknown values, and the most lagging mirrors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from console.history.queries import MOST_STEPS, Row, Window, combine, on_grid, stored_rows, top_mirrors, window
from console.models import ClusterLink, LinkSample, LinkSampleSummary, MirrorSample, MirrorSampleSummary
from tests.console.api.actors import NOW
from tests.console.api.conftest import cluster, destination, environment, link, make_mirror, source

__all__ = ["cluster", "destination", "environment", "link", "make_mirror", "source"]


def samples(start: datetime, lags: Sequence[int | None], *, apart_s: int = 30) -> list[Row]:
    return [
        Row(at=start + timedelta(seconds=apart_s * number), lag=lag, unknown=int(lag is None))
        for number, lag in enumerate(lags)
    ]


@pytest.mark.parametrize(
    ("hours", "step_s"), [(1 / 6, 60), (1, 60), (2, 60), (6, 300), (24, 600), (7 * 24, 3600), (30 * 24, 14_400)]
)
def test_range_has_at_most_180_steps(hours: float, step_s: int) -> None:
    where = window(start=NOW - timedelta(hours=hours), end=NOW)

    assert where.step_s == step_s
    assert where.steps <= MOST_STEPS + 1
    assert where.start <= NOW - timedelta(hours=hours) < where.time_of(1)
    assert where.time_of(where.steps - 1) < NOW


def test_step_keeps_the_largest_lag() -> None:
    where = window(start=NOW - timedelta(hours=6), end=NOW)

    grid = on_grid(samples(where.start, [1, 2, 900, 3, 4, 5, 1, 1, 1, 1] * where.steps), where, now=NOW)

    assert {(row.lag, row.unknown) for row in grid[:-1] if row} == {(900, 0)}
    assert None not in grid[:-1]


def test_time_without_samples_is_unknown_and_never_zero() -> None:
    """The last sample, at second 90, counts for two minutes: up to second 210, in the middle of the fourth step."""
    where = window(start=NOW - timedelta(hours=1), end=NOW)

    grid = on_grid(samples(where.start, [0, 0, 0, 0]), where, now=NOW)

    assert [row and (row.lag, row.unknown) for row in grid] == [(0, 0)] * 3 + [(0, 1)] + [None] * (where.steps - 4)


@pytest.mark.parametrize("apart_s", [31, 60, 90])
def test_every_sampling_interval_fills_each_step(apart_s: int) -> None:
    where = window(start=NOW - timedelta(hours=1), end=NOW)
    first = where.start - timedelta(seconds=17)

    grid = on_grid(samples(first, [5] * (4000 // apart_s), apart_s=apart_s), where, now=NOW)

    assert {row and (row.lag, row.unknown) for row in grid} == {(5, 0)}


def test_first_step_needs_the_sample_before_it() -> None:
    where = window(start=NOW - timedelta(hours=1), end=NOW)
    rows = samples(where.read_from + timedelta(seconds=50), [3, 3, 3, 3, 3, 3])

    whole, cut = on_grid(rows, where, now=NOW), on_grid(rows[3:], where, now=NOW)

    assert whole[0] is not None
    assert cut[0] is not None
    assert (whole[0].unknown, cut[0].unknown) == (0, 1)


def test_step_with_one_unknown_sample_is_partly_unknown() -> None:
    where = window(start=NOW - timedelta(hours=1), end=NOW)

    (row, *_) = on_grid(samples(where.start, [7, None]), where, now=NOW)

    assert row is not None
    assert (row.lag, row.unknown) == (7, 1)


def test_step_in_which_sampling_stopped_is_partly_unknown() -> None:
    where = window(start=NOW - timedelta(days=7), end=NOW)
    whole, most = samples(where.start, [0] * 120), samples(where.time_of(1), [0] * 115)

    first, second, *_ = on_grid([*whole, *most], where, now=NOW)

    assert first is not None
    assert second is not None
    assert (first.unknown, second.unknown) == (0, 1)


def test_summary_counts_in_each_step_that_it_overlaps() -> None:
    where = Window(start=NOW - timedelta(hours=1), end=NOW, step_s=60, steps=60)
    summaries = [combine(samples(where.start, [lag] * 10), at=where.time_of(5 * lag), seconds=300) for lag in (0, 1)]

    grid = on_grid(summaries, where, now=NOW)

    assert [row and (row.lag, row.unknown) for row in grid[:10]] == [(0, 0)] * 5 + [(1, 0)] * 5


@pytest.mark.django_db
def test_top_mirrors_are_those_with_the_largest_lags_of_the_range(link: ClusterLink, make_mirror: Any) -> None:
    for number in range(7):
        mirror = make_mirror(f"topic-{number}")
        MirrorSample.objects.create(mirror=mirror, at=NOW - timedelta(minutes=5), lag=number)
        MirrorSample.objects.create(mirror=mirror, at=NOW - timedelta(minutes=4), lag=None)
    old = make_mirror("old")
    MirrorSample.objects.create(mirror=old, at=NOW - timedelta(hours=2), lag=99)

    found = top_mirrors(link, where=window(start=NOW - timedelta(hours=1), end=NOW), now=NOW)

    assert list(found.values()) == ["topic-6", "topic-5", "topic-4", "topic-3", "topic-2"]


@pytest.mark.django_db
def test_top_mirrors_of_a_long_range_count_summaries(link: ClusterLink, make_mirror: Any) -> None:
    recent, earlier = make_mirror("recent"), make_mirror("earlier")
    MirrorSample.objects.create(mirror=recent, at=NOW - timedelta(minutes=5), lag=10)
    counts = {"seconds": 3600, "samples": 120, "unknown": 0, "unknown_ms": 0}
    MirrorSampleSummary.objects.create(mirror=earlier, at=NOW - timedelta(days=3), lag=50, **counts)

    found = top_mirrors(link, where=window(start=NOW - timedelta(days=7), end=NOW), now=NOW)

    assert list(found.values()) == ["earlier", "recent"]


@pytest.mark.django_db
def test_stored_rows_are_the_finest_of_each_time_and_do_not_overlap(link: ClusterLink) -> None:
    counts = {"samples": 1, "unknown": 0, "unknown_ms": 0, "lag": 1}
    for seconds in (300, 3600):
        for minutes in range(0, 30 * 60, seconds // 60):
            at = NOW - timedelta(hours=30) + timedelta(minutes=minutes)
            LinkSampleSummary.objects.create(link=link, at=at, seconds=seconds, **counts)
    for minutes in range(5, 30 * 60, 5):
        LinkSample.objects.create(link=link, at=NOW - timedelta(minutes=minutes), lag=1)

    rows = stored_rows(link, start=NOW - timedelta(hours=29), end=NOW, now=NOW)

    assert [row.seconds for row in rows] == [3600] * 4 + [300] * 12 + [0] * (24 * 12)
    assert [row.at for row in rows] == sorted({row.at for row in rows})
