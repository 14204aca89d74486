"""Data of the interactive charts: unknown is null with its own text, a lower bound is marked, 0 is no lower bound."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.history.incidents import Marker, MarkerKind
from console.history.presenters import events_data, series_data
from console.history.queries import Row, Window
from linkengine.domain.states import MirrorState

START = datetime(2026, 5, 4, 9, tzinfo=UTC)
WHERE = Window(start=START, end=START + timedelta(minutes=4), step_s=60, steps=4)


def charts(grid: Sequence[Row | None], **more: Any) -> dict[str, Any]:
    data = series_data(where=WHERE, name="orders", whole=grid, **more)
    return {chart["key"]: chart for chart in data["charts"]} | {"at": data["at"]}


def row(lag: int | None, *, unknown: int = 0) -> Row:
    return Row(at=START, lag=lag, lag_ms=lag, bytes_per_s=2048.0, unknown=unknown, unknown_ms=unknown)


def test_values_have_texts_and_unknown_is_null() -> None:
    data = charts([row(0), row(1_500), row(None, unknown=1), None])

    (line,) = data["lag"]["series"]
    assert line["values"] == [0, 1_500, None, None]
    assert line["texts"] == ["0", "1,500", "unknown", "unknown"]
    assert line["unknown"] == [2, 3]
    assert data["rate"]["series"][0]["texts"] == ["2.00 KiB/s"] * 3 + ["unknown"]
    assert data["at"][:2] == [int(START.timestamp()), int(START.timestamp()) + 60]


@pytest.mark.parametrize(
    ("zone", "start", "second"),
    [
        ("UTC", "2026-05-04 09:00:00 UTC", "2026-05-04 09:01:00 to 09:02:00 UTC"),
        ("Asia/Tokyo", "2026-05-04 18:00:00 JST", "2026-05-04 18:01:00 to 18:02:00 JST"),
    ],
)
def test_times_are_in_the_time_zone_of_the_page(zone: str, start: str, second: str) -> None:
    with timezone.override(zone):
        series = series_data(where=WHERE, name="orders", whole=[None] * 4)
        events = events_data(where=WHERE, states={}, markers=[], minute_url="/minute/")

    for data in (series, events):
        assert (data["start_text"], data["times"][1]) == (start, second)
        assert len(data["times"]) == len(data["at"])


def test_each_line_has_its_own_unknown_steps() -> None:
    lines = charts([row(5)] * 4, topics=[("bills", [row(5), None, row(5), None])])["lag"]["series"]

    assert [line["unknown"] for line in lines] == [[], [1, 3]]


def test_partly_unknown_value_is_a_lower_bound() -> None:
    (line,) = charts([row(7, unknown=1), row(0, unknown=1), row(7), row(7)])["lag"]["series"]

    assert line["values"] == [7, None, 7, 7]
    assert line["texts"][:2] == ["≥ 7, partly unknown", "unknown"]
    assert line["unknown"] == [0, 1]


def test_ticks_end_at_a_round_value_above_the_largest() -> None:
    data = charts([row(1_500), row(1), row(1), row(1)])

    assert data["lag"]["ticks"] == [(0, "0"), (1_000, "1,000"), (2_000, "2,000")]
    assert charts([row(0)] * 4)["lag"]["ticks"] == [(0, "0"), (1, "1")]


@pytest.mark.parametrize(("objective", "top"), [(None, "2 s"), (30_000, "30 s")])
def test_objective_is_a_line_within_the_time_lag_chart(objective: int | None, top: str) -> None:
    data = charts([row(1_500)] * 4, objective_ms=objective)

    assert data["age"]["ticks"][-1][1] == top
    expected = None if objective is None else {"value": objective, "text": "Objective: 30 s"}
    assert data["age"]["objective"] == expected
    assert data["lag"]["objective"] is None


def test_markers_of_a_step_are_grouped_by_kind() -> None:
    found = [
        Marker(at=START + timedelta(seconds=70 + number), kind=MarkerKind.FAILOVER, text="failover", topic=f"topic-{number}")
        for number in range(3)
    ]

    data = events_data(where=WHERE, states={MirrorState.ACTIVE: [3, 0, 0, 0]}, markers=found, minute_url="/minute/")

    assert data["markers"] == [
        {"step": 1, "kind": "failover", "sign": "F", "text": "Failover, promotion or reversal: failover (3)"}
    ]
    newest = data["newest"][0]
    assert newest["text"] == "failover · topic-2"
    assert newest["url"] == f"/minute/?at={int(START.timestamp()) + 60}"
    assert data["chart"]["series"] == [{"name": "Active", "values": [3, 0, 0, 0], "texts": ["3", "0", "0", "0"]}]
