"""Samples of lag and throughput of a link or mirror over a time span, aggregated for a chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from console.models import ClusterLink, LinkSample, MirrorSample, MirrorTopic
from console.models.samples import Sample

POINTS = 120  # maximum per chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The aggregate of an interval, dated by its newest sample: largest lags and mean rate. Unknown is None, never 0."""

    at: datetime
    lag: int | None
    lag_ms: int | None
    bytes_per_s: float | None


def link_history(*, link: ClusterLink, span: timedelta, now: datetime) -> list[Point]:
    """Return at most ``POINTS`` points of a link, oldest first. One query."""
    return _aggregate(LinkSample.objects.filter(link=link, at__gte=now - span, at__lte=now), start=now - span, span=span)


def mirror_history(*, mirror: MirrorTopic, span: timedelta, now: datetime) -> list[Point]:
    """Return at most ``POINTS`` points of a mirror, oldest first. One query."""
    return _aggregate(MirrorSample.objects.filter(mirror=mirror, at__gte=now - span, at__lte=now), start=now - span, span=span)


def _aggregate(samples: Iterable[Sample], *, start: datetime, span: timedelta) -> list[Point]:
    step = span / POINTS
    intervals: dict[int, list[Sample]] = {}
    for sample in samples:
        intervals.setdefault(int((sample.at - start) / step), []).append(sample)
    return [_point(intervals[number]) for number in sorted(intervals)]


def _point(samples: Sequence[Sample]) -> Point:
    return Point(
        at=samples[-1].at,
        lag=largest([sample.lag for sample in samples]),
        lag_ms=largest([sample.lag_ms for sample in samples]),
        bytes_per_s=_mean([sample.bytes_per_s for sample in samples]),
    )


def largest(values: Sequence[int | None]) -> int | None:
    """Return the largest value; None if any value is unknown."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
