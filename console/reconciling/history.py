"""Stores samples of links and mirrors for charts, and deletes old samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from console.models import ClusterLink, LinkSample, MirrorSample, MirrorTopic
from console.queries.history import largest
from console.queries.mirrors import MirrorSummary, summarize
from linkengine.domain.states import MirrorState

EVERY_MS = 30_000
EACH_MS, LONGEST_MS = 60, 90_000  # the interval grows with the number of mirrors: up to 1,500 mirrors at most 17 rows/s
KEEP_LINKS = timedelta(hours=24)  # at most 2,880 rows per link, and some more until the next cleanup
KEEP_MIRRORS = timedelta(hours=2)  # at most 240 rows per mirror, likewise


def every_ms(mirrors: int) -> int:
    """Return the time between two samples of a link with so many mirrors."""
    return min(LONGEST_MS, max(EVERY_MS, EACH_MS * mirrors))


def keep_samples(*, link: ClusterLink, mirrors: Iterable[MirrorTopic], now: datetime, whole: bool = True) -> None:
    """Store a sample of the link and of each mirror that is not stopped, or nothing if there is no such mirror.

    Scratch copies of drills are not counted. Without ``whole``, ``mirrors`` lacks a mirror whose figures are unknown, so the
    link's figures are unknown, too, and only samples of mirrors are stored.
    """
    copied = [mirror for mirror in mirrors if mirror.drill_id is None and mirror.state != MirrorState.STOPPED]
    summaries = [summarize(mirror, now=now, errors=0) for mirror in copied]
    if not summaries:
        return
    MirrorSample.objects.bulk_create([_of_mirror(summary, now) for summary in summaries], batch_size=500)
    if not whole:
        return
    LinkSample.objects.create(
        link=link,
        at=now,
        lag=largest([summary.max_lag for summary in summaries]),
        lag_ms=largest([summary.lag_ms for summary in summaries]),
        bytes_per_s=_sum([summary.bytes_per_s for summary in summaries]),
        records_per_s=_sum([summary.records_per_s for summary in summaries]),
    )


def forget_old(*, now: datetime) -> None:
    """Delete samples that are too old for any chart."""
    LinkSample.objects.filter(at__lt=now - KEEP_LINKS).delete()
    MirrorSample.objects.filter(at__lt=now - KEEP_MIRRORS).delete()


def _of_mirror(summary: MirrorSummary, now: datetime) -> MirrorSample:
    rates = {"bytes_per_s": summary.bytes_per_s, "records_per_s": summary.records_per_s}
    return MirrorSample(mirror=summary.mirror, at=now, lag=summary.total_lag, lag_ms=summary.lag_ms, **rates)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
