"""Samples of a link or mirror over a span, thinned out so that a chart stays small."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from console.models import ClusterLink, LinkSample, MirrorSample, MirrorTopic
from console.models.samples import Sample

POINTS = 120  # of one chart: as many as a narrow screen can show


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The worst of an interval that begins at ``at``: the largest lag, the mean of the rates. Unknown is None, never 0."""

    at: datetime
    lag: int | None
    lag_ms: int | None
    bytes_per_s: float | None


def link_history(*, link: ClusterLink, span: timedelta, now: datetime) -> list[Point]:
    """Answer at most POINTS points, oldest first; one query."""
    return _thin(LinkSample.objects.filter(link=link, at__gte=now - span, at__lte=now), start=now - span, span=span)


def mirror_history(*, mirror: MirrorTopic, span: timedelta, now: datetime) -> list[Point]:
    """Answer the same of a mirror."""
    return _thin(MirrorSample.objects.filter(mirror=mirror, at__gte=now - span, at__lte=now), start=now - span, span=span)


def _thin(samples: Iterable[Sample], *, start: datetime, span: timedelta) -> list[Point]:
    step = span / POINTS
    intervals: dict[int, list[Sample]] = {}
    for one in samples:
        intervals.setdefault(int((one.at - start) / step), []).append(one)
    return [_point(intervals[number]) for number in sorted(intervals)]


def _point(samples: Sequence[Sample]) -> Point:
    return Point(
        at=samples[-1].at,
        lag=largest([one.lag for one in samples]),
        lag_ms=largest([one.lag_ms for one in samples]),
        bytes_per_s=_mean([one.bytes_per_s for one in samples]),
    )


def largest(values: Sequence[int | None]) -> int | None:
    """Answer the largest value; None where one of them is not known."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
