"""Charts: the line is interrupted at unknown values; summary and table have the same values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from console.history.presenters import HEIGHT, WIDTH, charts_of
from console.history.queries import Point

NOW = datetime(2026, 5, 4, 10, tzinfo=UTC)
SPAN = timedelta(hours=1)


def point(minutes_ago: float, lag: int | None) -> Point:
    return Point(at=NOW - timedelta(minutes=minutes_ago), lag=lag, lag_ms=lag, bytes_per_s=lag)


def test_chart_line_runs_left_to_right_below_a_round_top() -> None:
    lag, _, _ = charts_of([point(60, 0), point(58.5, 120), point(57, 60)], span=SPAN, now=NOW)

    assert lag.top == "200"
    assert lag.line == f"M0.0 {HEIGHT}.0L15.0 40.0L30.0 70.0"
    assert lag.area.endswith(f"L30.0 {HEIGHT}Z")
    assert lag.time_labels == ["1 h ago", "30 min ago", "now"]


def test_chart_line_is_interrupted_at_unknown_and_missing_values() -> None:
    points = [point(50, 1), point(49, None), point(48, 1), point(20, 1), point(19, 1)]

    lag, _, _ = charts_of(points, span=SPAN, now=NOW)

    assert lag.line.count("M") == 3
    assert lag.gaps == [(0.0, 100.0), (100.0, 20.0), (120.0, 280.0), (410.0, 190.0)]
    assert ("2026-05-04 09:11:00 UTC", "\N{EN DASH}") in lag.rows


def test_old_value_is_not_shown_as_current() -> None:
    lag, _, _ = charts_of([point(10, 5)], span=SPAN, now=NOW)

    assert lag.latest == "\N{EN DASH}"
    assert lag.sentence == "Last 1 h: minimum 5, maximum 5, current unknown."


def test_recent_value_is_shown_as_current() -> None:
    lag, age, rate = charts_of([point(1, 4), point(0, 2_500)], span=SPAN, now=NOW)

    assert (lag.latest, age.latest, rate.latest) == ("2,500", "2 s", "2.44 KiB/s")
    assert lag.sentence == "Last 1 h: minimum 4, maximum 2,500, current 2,500."
    assert f"L{WIDTH}.0" in lag.line


@pytest.mark.parametrize("points", [[point(1, None)], []])
def test_chart_without_known_values_is_hatched_as_a_whole(points: list[Point]) -> None:
    lag, _, _ = charts_of(points, span=SPAN, now=NOW)

    assert (lag.line, lag.area, lag.top) == ("", "", "")
    assert lag.gaps == [(0.0, WIDTH)]
    assert lag.sentence == "No data for the last 1 h."


def test_times_of_charts_are_in_the_time_zone_of_the_page() -> None:
    with timezone.override("Asia/Tokyo"):
        lag, _, _ = charts_of([point(30, 1), point(0, 5)], span=SPAN, now=NOW, past=True)

    assert lag.time_labels == ["2026-05-04 18:00:00 JST", "2026-05-04 19:00:00 JST"]
    assert lag.rows[0] == ("2026-05-04 19:00:00 JST", "5")


def test_chart_without_gaps_has_no_hatched_place() -> None:
    lag, _, _ = charts_of([point(minutes, 1) for minutes in range(60, -1, -1)], span=SPAN, now=NOW)

    assert lag.gaps == []


def test_past_chart_has_absolute_times_and_no_current_value() -> None:
    lag, _, _ = charts_of([point(30, 1), point(0, 5)], span=SPAN, now=NOW, past=True)

    assert lag.time_labels == ["2026-05-04 09:00:00 UTC", "2026-05-04 10:00:00 UTC"]
    assert lag.sentence == "2026-05-04 09:00:00 UTC to 2026-05-04 10:00:00 UTC: minimum 1, maximum 5."
    assert lag.latest == ""
