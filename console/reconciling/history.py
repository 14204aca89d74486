"""Keeps the figures of a link and its mirrors for charts, and forgets old ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from console.models import ClusterLink, LinkSample, MirrorSample, MirrorTopic
from console.queries.history import largest
from console.queries.mirrors import MirrorSummary, summarize
from linkengine.domain.states import MirrorState

EVERY_MS = 30_000
EACH_MS, LONGEST_MS = 60, 90_000  # the interval grows with the number of mirrors: up to 1,500 mirrors at most 17 rows/s
KEEP_LINKS = timedelta(hours=24)  # at most 2,880 rows of a link and some more until the next clearing
KEEP_MIRRORS = timedelta(hours=2)  # at most 240 of each mirror


def every_ms(mirrors: int) -> int:
    """Return the time between two samples of a link with so many mirrors."""
    return min(LONGEST_MS, max(EVERY_MS, EACH_MS * mirrors))


def keep_samples(*, link: ClusterLink, mirrors: Iterable[MirrorTopic], now: datetime, whole: bool = True) -> None:
    """Write one sample of the link and of each mirror that is not stopped; nothing where nothing is mirrored.

    Not ``whole``: a mirror is left out of which nobody knows anything, so nobody knows the link's figures either.
    """
    copied = [one for one in mirrors if one.drill_id is None and one.state != MirrorState.STOPPED]
    found = [summarize(one, now=now, errors=0) for one in copied]
    if not found:
        return
    MirrorSample.objects.bulk_create([_of_mirror(one, now) for one in found], batch_size=500)
    if not whole:
        return
    LinkSample.objects.create(
        link=link,
        at=now,
        lag=largest([one.max_lag for one in found]),
        lag_ms=largest([one.lag_ms for one in found]),
        bytes_per_s=_sum([one.bytes_per_s for one in found]),
        records_per_s=_sum([one.records_per_s for one in found]),
    )


def forget_old(*, now: datetime) -> None:
    """Delete what no chart shows any more."""
    LinkSample.objects.filter(at__lt=now - KEEP_LINKS).delete()
    MirrorSample.objects.filter(at__lt=now - KEEP_MIRRORS).delete()


def _of_mirror(one: MirrorSummary, now: datetime) -> MirrorSample:
    rates = {"bytes_per_s": one.bytes_per_s, "records_per_s": one.records_per_s}
    return MirrorSample(mirror=one.mirror, at=now, lag=one.total_lag, lag_ms=one.lag_ms, **rates)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
