"""Charts as server-rendered SVG paths, and the data of the interactive charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext, gettext_noop

from console.history.incidents import Marker, MarkerKind, grouped
from console.web import numbers
from console.web.badges import mirror_badge

if TYPE_CHECKING:
    from console.history.queries import Point, Row, Window
    from linkengine.domain.states import MirrorState


# --- charts as SVG ----------------------------------------------------------------------------------------------------
#
# The SVG is stretched to the width of the page, so it contains lines only; all text is HTML around it. Where a value is unknown
# or no sample exists, the line is interrupted and the place is hatched; it never drops to 0.


WIDTH, HEIGHT = 600, 100  # of the viewBox; the page stretches it
MAX_GAP = 3  # missing points after which the line is interrupted
POINTS = 120  # maximum per chart, as in console.history.queries
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
    """The kind of a chart: its title, and how its values are written."""

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
    time_labels: Sequence[str]  # along the time axis, first to last
    rows: Sequence[tuple[str, str]]  # (time, value), newest first


LAG = Kind(key="lag", title=gettext_noop("Lag (messages)"), write=numbers.count, steps=_DECIMAL)
AGE = Kind(key="age", title=gettext_noop("Time lag (RPO)"), write=numbers.lag_time, steps=_SPANS_MS)
RATE = Kind(key="rate", title=gettext_noop("Throughput"), write=numbers.byte_rate, steps=_BINARY)
STATES = Kind(key="states", title=gettext_noop("Mirror topics by state"), write=numbers.count, steps=_DECIMAL)


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
        title=gettext(kind.title),
        sentence=_past_sentence(known, kind.write, span=span, end=now)
        if past
        else _sentence(known, kind.write, latest=latest, span=span),
        latest="" if past else latest,
        top=kind.write(top) if known else "",
        line=" ".join(_line(shape) for shape in shapes),
        area=" ".join(_area(shape) for shape in shapes),
        gaps=_gaps(shapes, longest=WIDTH * (longest / span)),
        time_labels=[numbers.exact(now - span), numbers.exact(now)] if past else _time_labels(span),
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
    """Return the places between the lines, and those at the edges that are wider than ``longest``; without lines everything."""
    if not shapes:
        return [(0.0, float(WIDTH))]
    first, last = shapes[0][0][0], shapes[-1][-1][0]
    edges = [(left, width) for left, width in ((0.0, first), (last, WIDTH - last)) if width > longest]
    inner = [(before[-1][0], after[0][0] - before[-1][0]) for before, after in pairwise(shapes)]
    return [(round(left, 1), round(width, 1)) for left, width in sorted([*edges, *inner])]


def round_up(value: float, *, steps: Sequence[float]) -> float:
    """Return the next round value; beyond the last step, the value itself."""
    return next((step for step in steps if value <= step), value)


def _time_labels(span: timedelta) -> list[str]:
    ages = [numbers.duration(span.total_seconds() * 1000 * part / 4) for part in (4, 2)]
    return [gettext("%(duration)s ago") % {"duration": age} for age in ages] + [gettext("now")]


def _spread(values: Values) -> list[tuple[datetime, float | None]]:
    step = max(1, ceil(len(values) / TABLE_ROWS))
    return list(reversed(values))[::step]


def _sentence(known: Sequence[float], write: Callable[[float | None], str], *, latest: str, span: timedelta) -> str:
    over = numbers.duration(span.total_seconds() * 1000)
    if not known:
        return gettext("No data for the last %(duration)s.") % {"duration": over}
    return gettext("Last %(duration)s: minimum %(minimum)s, maximum %(maximum)s, current %(current)s.") % {
        "duration": over,
        "minimum": write(min(known)),
        "maximum": write(max(known)),
        "current": gettext("unknown") if latest == numbers.UNKNOWN else latest,
    }


def _past_sentence(known: Sequence[float], write: Callable[[float | None], str], *, span: timedelta, end: datetime) -> str:
    between = range_words(end - span, end)
    if not known:
        return gettext("%(range)s: no data.") % {"range": between}
    return gettext("%(range)s: minimum %(minimum)s, maximum %(maximum)s.") % {
        "range": between,
        "minimum": write(min(known)),
        "maximum": write(max(known)),
    }


def range_words(start: datetime, end: datetime) -> str:
    """Return a range of time in words."""
    return gettext("%(start)s to %(end)s") % {"start": numbers.exact(start), "end": numbers.exact(end)}


# --- data of the interactive charts -----------------------------------------------------------------------------------
#
# Texts, ticks and times are written here, so the script draws them and formats nothing but the times along the axis. An unknown
# value is null. A value that is partly unknown is a lower bound; a lower bound of 0 says nothing, so it is null as well.


LISTED = 50  # newest markers in the list below the charts
MARKER_LABELS: Mapping[MarkerKind, tuple[str, str]] = MappingProxyType(
    {
        MarkerKind.PAUSE: ("P", gettext_noop("Pause or resume")),
        MarkerKind.FAILOVER: ("F", gettext_noop("Failover, promotion or reversal")),
        MarkerKind.EDIT: ("E", gettext_noop("Edit")),
        MarkerKind.ERROR: ("!", gettext_noop("Error")),
        MarkerKind.VERIFICATION: ("V", gettext_noop("Verification")),
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
            _graph(LAG, lines, lambda row: (row.lag, row.unknown)),
            _graph(AGE, lines, lambda row: (row.lag_ms, row.unknown_ms), objective=objective_ms),
            _graph(RATE, [(rate_name or name, whole)], lambda row: (row.bytes_per_s, 0)),
        ],
    }


def events_data(
    *, where: Window, states: Mapping[MirrorState, Sequence[int]], markers: Sequence[Marker], minute_url: str
) -> dict[str, Any]:
    """Return the chart of mirrors by state, the markers by step, and the list of the newest markers."""
    most = max((number for counts in states.values() for number in counts), default=0)
    top = round_up(most, steps=STATES.steps)
    series = [
        {
            "name": gettext(mirror_badge(state, "").label),
            "values": list(counts),
            "texts": [numbers.count(number) for number in counts],
        }
        for state, counts in states.items()
    ]
    return {
        **_span(where),
        "chart": {
            "key": STATES.key,
            "title": gettext(STATES.title),
            "ticks": _ticks(STATES, top),
            "objective": None,
            "series": series,
        },
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
    starts = [where.time_of(step) for step in range(where.steps)]
    return {
        "start": int(where.start.timestamp()),
        "end": int(where.end.timestamp()),
        "start_text": numbers.exact(where.start),
        "end_text": numbers.exact(where.end),
        "step": where.step_s,
        "resolution": numbers.duration(where.step_s * 1000),
        "at": [int(at.timestamp()) for at in starts],
        "times": [numbers.interval(at, where.end_of(step)) for step, at in enumerate(starts)],
    }


def _graph(kind: Kind, lines: Sequence[tuple[str, Grid]], read: Read, *, objective: int | None = None) -> dict[str, Any]:
    series = [_series(kind, name, grid, read) for name, grid in lines]
    known = [value for line in series for value in line["values"] if value is not None]
    top = round_up(max([*known, objective or 0]), steps=kind.steps)
    line = (
        None
        if objective is None
        else {"value": objective, "text": gettext("Objective: %(value)s") % {"value": kind.write(objective)}}
    )
    return {"key": kind.key, "title": gettext(kind.title), "ticks": _ticks(kind, top), "objective": line, "series": series}


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
        return gettext("unknown")
    text = kind.write(value)
    return gettext("≥ %(value)s, partly unknown") % {"value": text} if partly else text


def _ticks(kind: Kind, top: float) -> list[tuple[float, str]]:
    """Return three values of the axis with their texts; the axis ends at 1 if all values are 0."""
    top = top or 1
    middle = top / 2
    exact = kind.steps is STATES.steps and middle != int(middle)  # there are no halves of a message
    return [(value, kind.write(value)) for value in ((0, top) if exact else (0, middle, top))]


def _texts(kind: MarkerKind, texts: Mapping[str, int]) -> str:
    words = ", ".join(f"{text} ({count})" if count > 1 else text for text, count in sorted(texts.items()))
    return f"{gettext(MARKER_LABELS[kind][1])}: {words}"


def _listed(marker: Marker, minute_url: str) -> dict[str, str]:
    return {
        "at": numbers.exact(marker.at),
        "url": minute_address(minute_url, marker.at),
        "sign": MARKER_LABELS[marker.kind][0],
        "kind": gettext(MARKER_LABELS[marker.kind][1]),
        "text": f"{marker.text} · {marker.topic}" if marker.topic else marker.text,
    }
