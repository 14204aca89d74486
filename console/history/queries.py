"""Samples of lag and throughput of links and mirrors over a time span: stored rows, points of a chart, and series on a grid.

Samples are kept for a short time, summaries of them for longer. A span is read from the coarsest rows that suffice for its
chart, and from the samples that are not summarized yet.

| rows                    | of a link | of a mirror |
|-------------------------|-----------|-------------|
| samples                 | 24 h      | 2 h 10 min  |
| summaries of 5 minutes  | 25 h      | 25 h        |
| summaries of an hour    | 31 days   | 31 days     |

Samples are 30 to 90 s apart (``history.actions.every_ms``). A sample counts until the next sample, for ``VALID`` at
most. The time after that is unknown.

Down-sampling keeps the largest known lag and whether a lag was unknown. An interval that is partly unknown has a lower bound
of its lag only: the largest known value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, zip_longest
from typing import Any

from django.db.models import Max, Q

from console.models import (
    ClusterLink,
    LinkSample,
    LinkSampleSummary,
    MirrorSample,
    MirrorSampleSummary,
    MirrorTopic,
)

SPANS: Mapping[str, timedelta] = {
    "1h": timedelta(hours=1),
    "2h": timedelta(hours=2),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
POINTS = 120  # maximum per chart that the server draws
MOST_STEPS = 180  # maximum per series
VALID = timedelta(minutes=2)  # as ``history.presenters.OLD``
KEEP_LINKS = timedelta(hours=24)  # at most 2,880 rows per link, and some more until the next cleanup
KEEP_MIRRORS = timedelta(hours=2, minutes=10)  # at most 260 rows per mirror, likewise; more than a span of 2 h with ``VALID``
KEEP_SUMMARIES: Mapping[int, timedelta] = {300: timedelta(hours=25), 3600: timedelta(days=31)}  # by seconds, ascending
STEPS_S = (60, 300, 600, 1800, 3600, 7200, 14_400)  # of series; divisors or multiples of the summaries' seconds
SHORTEST_STEP_S = 30  # of the last step of a series
ROUNDING_S = 1.0  # times are rounded to milliseconds, intervals of samples are not
TOP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A sample, or a summary of ``seconds`` from ``at`` on. Lags of a summary are the largest known lags, rates means."""

    at: datetime
    seconds: int = 0  # 0: a sample
    samples: int = 1
    unknown: int = 0  # samples without a lag, and 1 for time without samples; 0: the lag is known
    unknown_ms: int = 0  # likewise for the time lag
    lag: int | None = None
    lag_ms: int | None = None
    bytes_per_s: float | None = None
    records_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The aggregate of an interval, dated by its newest row: largest lags and mean rate. Unknown is None, never 0."""

    at: datetime
    lag: int | None
    lag_ms: int | None
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time span in steps. ``start`` is a multiple of ``step_s`` since the epoch."""

    start: datetime
    end: datetime
    step_s: int
    steps: int

    def step_of(self, at: datetime) -> int:
        """Return the number of the step that contains ``at``; negative or too large outside of the span.

        The last step is longer by the time after it up to ``end``.
        """
        step = int((at - self.start).total_seconds() // self.step_s)
        return min(step, self.steps - 1) if at < self.end else step

    def time_of(self, step: int) -> datetime:
        """Return when a step begins."""
        return self.start + timedelta(seconds=step * self.step_s)

    def end_of(self, step: int) -> datetime:
        """Return when a step ends."""
        return self.end if step == self.steps - 1 else self.time_of(step + 1)

    @property
    def read_from(self) -> datetime:
        """The time from which rows count within the span: the last sample before it counts at its start."""
        return self.start - VALID


def window(*, start: datetime, end: datetime) -> Window:
    """Return the span in at most ``MOST_STEPS`` + 1 steps. The last step is longer than the others, or at least 30 s."""
    seconds = (end - start).total_seconds()
    step_s = next((step for step in STEPS_S if seconds / step <= MOST_STEPS), STEPS_S[-1])
    first = begin_of(start, step_s)
    steps = int((end - first).total_seconds() - SHORTEST_STEP_S) // step_s + 1
    return Window(start=first, end=end, step_s=step_s, steps=max(1, steps))


def link_history(*, link: ClusterLink, span: timedelta, now: datetime, end: datetime | None = None) -> list[Point]:
    """Return at most ``POINTS`` + 1 points of a link up to ``end``, by default now; oldest first. Two queries at most."""
    start = (end or now) - span
    return _points(link_rows(link, start=start, end=end or now, step_s=_step_of(span), now=now), start=start, span=span)


def mirror_history(*, mirror: MirrorTopic, span: timedelta, now: datetime, end: datetime | None = None) -> list[Point]:
    """Return the points of a mirror, as ``link_history``."""
    start = (end or now) - span
    rows = mirror_rows(Q(mirror=mirror), start=start, end=end or now, step_s=_step_of(span), now=now)[mirror.pk]
    return _points(rows, start=start, span=span)


def link_rows(link: ClusterLink, *, start: datetime, end: datetime, step_s: int, now: datetime) -> list[Row]:
    """Return the rows of a link that suffice for steps of ``step_s``, oldest first. Two queries at most."""
    seconds = _seconds(start, step_s=step_s, now=now, kept=KEEP_LINKS)
    summaries, samples = LinkSampleSummary.objects.filter(link=link), LinkSample.objects.filter(link=link)
    return _read(summaries, samples, owner="link_id", seconds=seconds, start=start, end=end)[link.pk]


def mirror_rows(chosen: Q, *, start: datetime, end: datetime, step_s: int, now: datetime) -> defaultdict[int, list[Row]]:
    """Return the rows of mirrors by their primary key, as ``link_rows``. ``chosen`` is a condition on the field ``mirror``."""
    seconds = _seconds(start, step_s=step_s, now=now, kept=KEEP_MIRRORS)
    summaries, samples = MirrorSampleSummary.objects.filter(chosen), MirrorSample.objects.filter(chosen)
    return _read(summaries, samples, owner="mirror_id", seconds=seconds, start=start, end=end)


def stored_rows(subject: ClusterLink | MirrorTopic, *, start: datetime, end: datetime, now: datetime) -> list[Row]:
    """Return the finest stored rows of a link or mirror, oldest first: hours, 5 minutes, samples. Five queries at most."""
    fine, coarse = KEEP_SUMMARIES
    kept = KEEP_MIRRORS if isinstance(subject, MirrorTopic) else KEEP_LINKS
    cuts = (_next(now - KEEP_SUMMARIES[fine], coarse), _next(now - kept, fine))
    edges = [start, *(cut for cut in cuts if start < cut < end), end]
    found: list[Row] = []
    for first, last in pairwise(edges):
        part: dict[str, Any] = {"start": first, "end": last, "step_s": 1, "now": now}
        if isinstance(subject, MirrorTopic):
            found += mirror_rows(Q(mirror=subject), **part)[subject.pk]
        else:
            found += link_rows(subject, **part)
    return found


def begin_of(at: datetime, seconds: int) -> datetime:
    """Return the last multiple of ``seconds`` that is not after ``at``."""
    return datetime.fromtimestamp(at.timestamp() // seconds * seconds, tz=UTC)


def _next(at: datetime, seconds: int) -> datetime:
    """Return the first multiple of ``seconds`` that is not before ``at``."""
    return datetime.fromtimestamp(-(-at.timestamp() // seconds) * seconds, tz=UTC)


def top_mirrors(link: ClusterLink, *, where: Window, now: datetime) -> dict[int, str]:
    """Return names by primary key of the mirrors with the largest known lags in a span, none without a lag. One query."""
    seconds = _seconds(where.start, step_s=where.step_s, now=now, kept=KEEP_MIRRORS)
    within: dict[str, Any] = {"mirror__link": link, "mirror__drill": None, "lag__gt": 0, "at__lt": where.end}
    found = _largest_lags(MirrorSample.objects.filter(**within, at__gte=where.start))
    if seconds:
        first = where.start - timedelta(seconds=seconds)
        found = found.union(_largest_lags(MirrorSampleSummary.objects.filter(**within, at__gt=first, seconds=seconds)))
    largest_of: dict[tuple[int, str], int] = {}
    for pk, name, most in found:
        largest_of[pk, name] = max(most, largest_of.get((pk, name), 0))
    return dict(sorted(largest_of, key=lambda mirror: (-largest_of[mirror], mirror[1]))[:TOP])


def _largest_lags(rows: Any) -> Any:
    ranked = rows.order_by().values("mirror_id", "mirror__name").annotate(most=Max("lag"))
    return ranked.values_list("mirror_id", "mirror__name", "most")


def combine(rows: Sequence[Row], *, at: datetime, seconds: int) -> Row:
    """Return the summary of the rows of an interval, which are not empty."""
    return Row(
        at=at,
        seconds=seconds,
        samples=sum(row.samples for row in rows),
        unknown=sum(row.unknown for row in rows),
        unknown_ms=sum(row.unknown_ms for row in rows),
        lag=_most([row.lag for row in rows]),
        lag_ms=_most([row.lag_ms for row in rows]),
        bytes_per_s=_mean([(row.bytes_per_s, row.samples) for row in rows]),
        records_per_s=_mean([(row.records_per_s, row.samples) for row in rows]),
    )


def on_grid(rows: Sequence[Row], where: Window, *, now: datetime) -> list[Row | None]:
    """Return a row for each step of a span, None where nothing is known. ``rows`` are in the order of time.

    A step has the values of the rows that begin in it; if none does, those of the row that still counts. A step of which a part
    is not covered by rows is partly unknown.
    """
    begun: list[list[Row]] = [[] for _ in range(where.steps)]
    continued: list[Row | None] = [None] * where.steps
    covered_s = [0.0] * where.steps
    for row, following in zip_longest(rows, rows[1:]):
        until = row.at + timedelta(seconds=row.seconds) + VALID
        if following is not None:
            until = min(until, following.at)
        first = where.step_of(row.at)
        if 0 <= first < where.steps:
            begun[first].append(row)
        for step in range(max(0, first), min(where.steps - 1, where.step_of(until)) + 1):
            covered = min(until, where.end_of(step)) - max(row.at, where.time_of(step))
            covered_s[step] += max(0.0, covered.total_seconds())
            if step != first and covered > timedelta(0):
                continued[step] = row
    return [_step(begun[step] or continued[step], where, step, covered_s[step], now=now) for step in range(where.steps)]


def _step(found: Sequence[Row] | Row | None, where: Window, step: int, covered_s: float, *, now: datetime) -> Row | None:
    if found is None:
        return None
    row = combine([found] if isinstance(found, Row) else found, at=where.time_of(step), seconds=where.step_s)
    due_s = (min(now, where.end_of(step)) - row.at).total_seconds()
    if covered_s >= due_s - ROUNDING_S:
        return row
    return replace(row, unknown=row.unknown + 1, unknown_ms=row.unknown_ms + 1)


def largest(values: Sequence[int | None]) -> int | None:
    """Return the largest value; None if any value is unknown."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _step_of(span: timedelta) -> int:
    return max(1, int(span.total_seconds() // POINTS))


def _seconds(start: datetime, *, step_s: int, now: datetime, kept: timedelta) -> int:
    """Return the seconds of the summaries to read, 0 for samples: the coarsest that suffice and still cover ``start``."""
    fine = [seconds for seconds in KEEP_SUMMARIES if seconds <= step_s and now - start <= KEEP_SUMMARIES[seconds]]
    if fine:
        return max(fine)
    if now - start <= kept:
        return 0
    return next((seconds for seconds, keep in KEEP_SUMMARIES.items() if now - start <= keep), max(KEEP_SUMMARIES))


def _read(
    summaries: Any, samples: Any, *, owner: str, seconds: int, start: datetime, end: datetime
) -> defaultdict[int, list[Row]]:
    """Return summaries, and the samples after the newest summary, by owner and oldest first.

    Summaries of an interval are stored for all owners at once, so older samples are part of a summary.
    """
    found: defaultdict[int, list[Row]] = defaultdict(list)
    summarized = start
    values = ("lag", "lag_ms", "bytes_per_s", "records_per_s")
    if seconds:
        length = timedelta(seconds=seconds)
        within = summaries.filter(seconds=seconds, at__gt=start - length, at__lt=end).order_by("at")
        for key, at, size, count, unknown, unknown_ms, *rest in within.values_list(
            owner, "at", "seconds", "samples", "unknown", "unknown_ms", *values
        ):
            row = dict(zip(values, rest, strict=True))
            found[key].append(Row(at=at, seconds=size, samples=count, unknown=unknown, unknown_ms=unknown_ms, **row))
            summarized = max(summarized, at + length)
    for key, at, *rest in samples.filter(at__gte=summarized, at__lt=end).order_by("at").values_list(owner, "at", *values):
        found[key].append(sample_row(at, rest))
    return found


def sample_row(at: datetime, values: Sequence[Any]) -> Row:
    """Return the row of a sample with the values lag, lag_ms, bytes_per_s and records_per_s."""
    lag, lag_ms, bytes_per_s, records_per_s = values
    unknown = {"unknown": int(lag is None), "unknown_ms": int(lag_ms is None)}
    return Row(at=at, lag=lag, lag_ms=lag_ms, bytes_per_s=bytes_per_s, records_per_s=records_per_s, **unknown)


def _points(rows: Iterable[Row], *, start: datetime, span: timedelta) -> list[Point]:
    step = span / POINTS
    intervals: dict[int, list[Row]] = {}
    for row in rows:
        intervals.setdefault(max(0, int((row.at - start) / step)), []).append(row)
    return [_point(intervals[number]) for number in sorted(intervals)]


def _point(rows: Sequence[Row]) -> Point:
    whole = combine(rows, at=rows[-1].at, seconds=rows[-1].seconds)
    return Point(
        at=whole.at,
        lag=None if whole.unknown else whole.lag,
        lag_ms=None if whole.unknown_ms else whole.lag_ms,
        bytes_per_s=whole.bytes_per_s,
    )


def _most(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None
