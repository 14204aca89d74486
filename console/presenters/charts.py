"""Charts as server-rendered SVG paths: a line over time, with a text summary and a table of the same values.

The SVG is stretched to the width of the page, so it contains lines only; all text is HTML around it. Where a value is unknown
or no sample exists, the line is interrupted and the place is hatched; it never drops to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

from console.presenters import numbers

if TYPE_CHECKING:
    from console.queries.history import Point

WIDTH, HEIGHT = 600, 100  # of the viewBox; the page stretches it
MAX_GAP = 3  # missing points after which the line is interrupted
POINTS = 120  # maximum per chart, as in console.queries.history
OLD = timedelta(minutes=2)  # four sampling intervals; an older value is not current
TABLE_ROWS = 24
_DECIMAL = tuple(step * 10**power for power in range(15) for step in (1, 2, 5))
_BINARY = tuple(step * 1024**power for power in range(5) for step in (1, 2, 5, 10, 20, 50, 100, 200, 500))
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_SPANS_MS = (
    *(1_000 * seconds for seconds in (1, 2, 5, 10, 20, 30)),
    *(_MINUTE_MS * minutes for minutes in (1, 2, 5, 10, 20, 30)),
    *(_HOUR_MS * hours for hours in (1, 2, 4, 8, 12)),
    *(_DAY_MS * days for days in (1, 2, 4, 7, 14, 30, 90, 365)),
)
Values = Sequence[tuple[datetime, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a chart shows, and how its values are written."""

    key: str
    title: str
    write: Callable[[float | None], str]
    steps: Sequence[float]  # round values for the top of the chart, ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart with one line."""

    key: str
    title: str
    sentence: str  # text summary
    latest: str
    top: str  # value at the top of the chart
    line: str  # path data, empty without known values
    area: str
    gaps: Sequence[tuple[float, float]]  # (x, width) of the parts without a known value
    marks: Sequence[str]  # along the time axis, first to last
    rows: Sequence[tuple[str, str]]  # (time, value), newest first


LAG = Kind(key="lag", title="Lag (messages)", write=numbers.count, steps=_DECIMAL)
AGE = Kind(key="age", title="Time lag (RPO)", write=numbers.lag_time, steps=_SPANS_MS)
RATE = Kind(key="rate", title="Throughput", write=numbers.byte_rate, steps=_BINARY)
STATES = Kind(key="states", title="Mirror topics by state", write=numbers.count, steps=_DECIMAL)


def charts_of(points: Sequence[Point], *, span: timedelta, now: datetime, past: bool = False) -> list[Chart]:
    """Return the charts of lag, time lag and throughput of a link or mirror over a span that ends now.

    In the ``past``, the span ended at ``now``: the charts have absolute times and no current value.
    """
    return [
        _chart(LAG, [(point.at, point.lag) for point in points], span=span, now=now, past=past),
        _chart(AGE, [(point.at, point.lag_ms) for point in points], span=span, now=now, past=past),
        _chart(RATE, [(point.at, point.bytes_per_s) for point in points], span=span, now=now, past=past),
    ]


def _chart(kind: Kind, values: Values, *, span: timedelta, now: datetime, past: bool) -> Chart:
    known = [value for _, value in values if value is not None]
    top = round_up(max(known, default=0), steps=kind.steps)
    longest = max(OLD, MAX_GAP * span / POINTS)
    runs = _runs(values, longest=longest)
    shapes = [[_place(at, value, top=top, span=span, now=now) for at, value in run] for run in runs]
    latest = kind.write(values[-1][1] if values and not past and now - values[-1][0] <= OLD else None)
    return Chart(
        key=kind.key,
        title=kind.title,
        sentence=_past_sentence(known, kind.write, span=span, end=now)
        if past
        else _sentence(known, kind.write, latest=latest, span=span),
        latest="" if past else latest,
        top=kind.write(top) if known else "",
        line=" ".join(_line(shape) for shape in shapes),
        area=" ".join(_area(shape) for shape in shapes),
        gaps=_gaps(shapes, longest=WIDTH * (longest / span)),
        marks=[numbers.exact(now - span), numbers.exact(now)] if past else _marks(span),
        rows=[(numbers.exact(at), kind.write(value)) for at, value in _spread(values)],
    )


def _runs(values: Values, *, longest: timedelta) -> list[list[tuple[datetime, float]]]:
    """Split the values where a value is unknown or the time between two values exceeds ``longest``."""
    runs: list[list[tuple[datetime, float]]] = [[]]
    for at, value in values:
        if value is None or (runs[-1] and at - runs[-1][-1][0] > longest):
            runs.append([])
        if value is not None:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _place(at: datetime, value: float, *, top: float, span: timedelta, now: datetime) -> tuple[float, float]:
    x = WIDTH * (1 - (now - at) / span)
    return round(x, 1), round(HEIGHT * (1 - value / top) if top else HEIGHT, 1)


def _line(shape: Sequence[tuple[float, float]]) -> str:
    (x, y), *others = shape
    return f"M{x} {y}" + ("".join(f"L{a} {b}" for a, b in others) or "h2")  # a single sample is a short dash


def _area(shape: Sequence[tuple[float, float]]) -> str:
    return f"M{shape[0][0]} {HEIGHT}" + "".join(f"L{x} {y}" for x, y in shape) + f"L{shape[-1][0]} {HEIGHT}Z"


def _gaps(shapes: Sequence[Sequence[tuple[float, float]]], *, longest: float) -> list[tuple[float, float]]:
    """Return the places between the lines, and those at the edges that are wider than ``longest``."""
    if not shapes:
        return []
    first, last = shapes[0][0][0], shapes[-1][-1][0]
    edges = [(left, width) for left, width in ((0.0, first), (last, WIDTH - last)) if width > longest]
    inner = [(before[-1][0], after[0][0] - before[-1][0]) for before, after in pairwise(shapes)]
    return [(round(left, 1), round(width, 1)) for left, width in sorted([*edges, *inner])]


def round_up(value: float, *, steps: Sequence[float]) -> float:
    """Return the next round value; beyond the last step, the value itself."""
    return next((step for step in steps if value <= step), value)


def _marks(span: timedelta) -> list[str]:
    return [f"{numbers.duration(span.total_seconds() * 1000 * part / 4)} ago" for part in (4, 2)] + ["now"]


def _spread(values: Values) -> list[tuple[datetime, float | None]]:
    step = max(1, ceil(len(values) / TABLE_ROWS))
    return list(reversed(values))[::step]


def _sentence(known: Sequence[float], write: Callable[[float | None], str], *, latest: str, span: timedelta) -> str:
    over = numbers.duration(span.total_seconds() * 1000)
    if not known:
        return f"No data for the last {over}."
    current = "unknown" if latest == numbers.UNKNOWN else latest
    return f"Last {over}: minimum {write(min(known))}, maximum {write(max(known))}, current {current}."


def _past_sentence(known: Sequence[float], write: Callable[[float | None], str], *, span: timedelta, end: datetime) -> str:
    between = f"{numbers.exact(end - span)} to {numbers.exact(end)}"
    return f"{between}: minimum {write(min(known))}, maximum {write(max(known))}." if known else f"{between}: no data."
