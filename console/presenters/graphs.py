"""Data of the interactive charts as JSON values: times, values, texts, ticks of the value axis, and markers.

Texts and ticks are written here, so the script draws them and formats nothing but times. An unknown value is null. A value that
is partly unknown is a lower bound, and 0 is none: it is null as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from console.presenters import numbers
from console.presenters.charts import AGE, LAG, RATE, STATES, Kind, round_up
from console.presenters.states import mirror_look
from console.queries.incidents import Marker, MarkerKind, grouped

if TYPE_CHECKING:
    from console.queries.history import Row, Window
    from linkengine.domain.states import MirrorState

UNKNOWN_TEXT = "unknown"
LISTED = 50  # newest markers in the list below the charts
MARKER_LABELS: Mapping[MarkerKind, tuple[str, str]] = MappingProxyType(
    {
        MarkerKind.PAUSE: ("P", "Pause or resume"),
        MarkerKind.FAILOVER: ("F", "Failover, promotion or reversal"),
        MarkerKind.EDIT: ("E", "Edit"),
        MarkerKind.ERROR: ("!", "Error"),
        MarkerKind.VERIFICATION: ("V", "Verification"),
    }
)
Grid = Sequence["Row | None"]
Read = Callable[["Row"], tuple[float | None, int]]  # a value and the number of samples without a value


def series_data(
    *,
    where: Window,
    name: str,
    whole: Grid,
    rate_name: str = "",
    topics: Sequence[tuple[str, Grid]] = (),
    objective_ms: int | None = None,
) -> dict[str, Any]:
    """Return the charts of lag, time lag and throughput of a link or mirror (``whole``), with lines of single mirrors.

    ``rate_name``: the name of the whole in the chart of throughput, if it is another.
    """
    lines = [(name, whole), *topics]
    return {
        **_span(where),
        "charts": [
            _chart(LAG, lines, lambda row: (row.lag, row.unknown)),
            _chart(AGE, lines, lambda row: (row.lag_ms, row.unknown_ms), objective=objective_ms),
            _chart(RATE, [(rate_name or name, whole)], lambda row: (row.bytes_per_s, 0)),
        ],
    }


def events_data(
    *, where: Window, states: Mapping[MirrorState, Sequence[int]], markers: Sequence[Marker], minute_url: str
) -> dict[str, Any]:
    """Return the chart of mirrors by state, the markers by step, and the list of the newest markers."""
    most = max((number for counts in states.values() for number in counts), default=0)
    top = round_up(most, steps=STATES.steps)
    series = [
        {"name": mirror_look(state, "").label, "values": list(counts), "texts": [numbers.count(number) for number in counts]}
        for state, counts in states.items()
    ]
    return {
        **_span(where),
        "chart": {"key": STATES.key, "title": STATES.title, "ticks": _ticks(STATES, top), "objective": None, "series": series},
        "markers": [
            {"step": step, "kind": kind, "sign": MARKER_LABELS[kind][0], "text": _texts(kind, texts)}
            for step, kind, texts in grouped(markers, where)
            if 0 <= step < where.steps
        ],
        "newest": [_listed(marker, minute_url) for marker in reversed(markers[-LISTED:])],
        "more": max(0, len(markers) - LISTED),
    }


def minute_address(url: str, at: datetime) -> str:
    """Return the URL of the page of the minute that contains ``at``."""
    return f"{url}?at={int(at.timestamp()) // 60 * 60}"


def _span(where: Window) -> dict[str, Any]:
    return {
        "start": int(where.start.timestamp()),
        "end": int(where.end.timestamp()),
        "step": where.step_s,
        "resolution": numbers.duration(where.step_s * 1000),
        "at": [int(where.time_of(step).timestamp()) for step in range(where.steps)],
    }


def _chart(kind: Kind, lines: Sequence[tuple[str, Grid]], read: Read, *, objective: int | None = None) -> dict[str, Any]:
    series = [_series(kind, name, grid, read) for name, grid in lines]
    known = [value for line in series for value in line["values"] if value is not None]
    top = round_up(max([*known, objective or 0]), steps=kind.steps)
    line = None if objective is None else {"value": objective, "text": f"Objective: {kind.write(objective)}"}
    return {"key": kind.key, "title": kind.title, "ticks": _ticks(kind, top), "objective": line, "series": series}


def _series(kind: Kind, name: str, grid: Grid, read: Read) -> dict[str, Any]:
    """Return the values of a line. ``unknown`` lists the steps that are unknown, also those of a lower bound."""
    values: list[float | None] = []
    texts: list[str] = []
    unknown: list[int] = []
    for step, row in enumerate(grid):
        value, missing = (None, 1) if row is None else read(row)
        if missing or value is None:
            unknown.append(step)
            value = value or None
        values.append(value)
        texts.append(_text(kind, value, partly=bool(missing)))
    return {"name": name, "values": values, "texts": texts, "unknown": unknown}


def _text(kind: Kind, value: float | None, *, partly: bool) -> str:
    if value is None:
        return UNKNOWN_TEXT
    return f"≥ {kind.write(value)}, partly unknown" if partly else kind.write(value)


def _ticks(kind: Kind, top: float) -> list[tuple[float, str]]:
    """Return three values of the axis with their texts; the axis ends at 1 if all values are 0."""
    top = top or 1
    middle = top / 2
    exact = kind.steps is STATES.steps and middle != int(middle)  # there are no halves of a message
    return [(value, kind.write(value)) for value in ((0, top) if exact else (0, middle, top))]


def _texts(kind: MarkerKind, texts: Mapping[str, int]) -> str:
    words = ", ".join(f"{text} ({count})" if count > 1 else text for text, count in sorted(texts.items()))
    return f"{MARKER_LABELS[kind][1]}: {words}"


def _listed(marker: Marker, minute_url: str) -> dict[str, str]:
    return {
        "at": numbers.exact(marker.at),
        "url": minute_address(minute_url, marker.at),
        "sign": MARKER_LABELS[marker.kind][0],
        "kind": MARKER_LABELS[marker.kind][1],
        "text": f"{marker.text} · {marker.topic}" if marker.topic else marker.text,
    }
