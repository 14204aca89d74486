"""Stores samples of links and mirrors for charts, summarizes them, and deletes old samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db import transaction
from django.db.models import Max

from console.history.queries import (
    KEEP_LINKS,
    KEEP_MIRRORS,
    KEEP_SUMMARIES,
    Row,
    Window,
    begin_of,
    largest,
    on_grid,
    sample_row,
)
from console.mirrors.queries import MirrorSummary, summarize
from console.models import (
    ClusterLink,
    EndedError,
    LinkSample,
    LinkSampleSummary,
    MirrorSample,
    MirrorSampleSummary,
    MirrorTopic,
)
from linkengine.domain.states import MirrorState

EVERY_MS = 30_000
EACH_MS, LONGEST_MS = 60, 90_000  # the interval grows with the number of mirrors: up to 1,500 mirrors at most 17 rows/s
_SETTLED = timedelta(minutes=1)  # after which no sample of an interval is still being written
_VALUES = ("lag", "lag_ms", "bytes_per_s", "records_per_s")
_COUNTS = ("samples", "unknown", "unknown_ms")
_BATCH = 500


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
    MirrorSample.objects.bulk_create([_of_mirror(summary, now) for summary in summaries], batch_size=_BATCH)
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


def summarize_samples(*, now: datetime) -> None:
    """Store the summaries of all intervals that have ended since the last run, each length from the next finer rows."""
    for samples, summaries, owner in (
        (LinkSample, LinkSampleSummary, "link_id"),
        (MirrorSample, MirrorSampleSummary, "mirror_id"),
    ):
        finer = 0
        for seconds in KEEP_SUMMARIES:
            with transaction.atomic():
                _summarize(samples, summaries, owner, seconds=seconds, finer=finer, now=now)
            finer = seconds


def forget_old(*, now: datetime) -> None:
    """Delete samples, summaries and ended errors that no chart shows. Call ``summarize_samples`` first."""
    LinkSample.objects.filter(at__lt=now - KEEP_LINKS).delete()
    MirrorSample.objects.filter(at__lt=now - KEEP_MIRRORS).delete()
    for model in (LinkSampleSummary, MirrorSampleSummary):
        for seconds, keep in KEEP_SUMMARIES.items():
            model.objects.filter(seconds=seconds, at__lt=now - keep).delete()
    EndedError.objects.filter(until__lt=now - max(KEEP_SUMMARIES.values())).delete()


def _summarize(samples: Any, summaries: Any, owner: str, *, seconds: int, finer: int, now: datetime) -> None:
    """Store the missing summaries of one length. An interval is stored for all owners in one transaction, or for none."""
    end = begin_of(now - _SETTLED, seconds)
    newest = summaries.objects.filter(seconds=seconds).aggregate(newest=Max("at"))["newest"]
    start = begin_of(now - KEEP_SUMMARIES[seconds], seconds) if newest is None else newest + timedelta(seconds=seconds)
    where = Window(start=start, end=end, step_s=seconds, steps=int((end - start).total_seconds()) // seconds)
    if where.steps <= 0:
        return
    rows = summaries.objects.filter(seconds=finer) if finer else samples.objects.all()
    rows = rows.filter(at__gte=where.read_from, at__lt=end).order_by(owner, "at")
    columns = (*_COUNTS, *_VALUES) if finer else _VALUES
    made: list[Any] = []
    for key, group in groupby(rows.values_list(owner, "at", *columns).iterator(chunk_size=5_000), key=itemgetter(0)):
        for row in on_grid([_row(at, values, finer) for _, at, *values in group], where, now=now):
            if row is not None:
                found = {name: getattr(row, name) for name in (*_COUNTS, *_VALUES)}
                made.append(summaries(**{owner: key}, at=row.at, seconds=seconds, **found))
        if len(made) >= _BATCH:
            summaries.objects.bulk_create(made, batch_size=_BATCH, ignore_conflicts=True)
            made = []
    summaries.objects.bulk_create(made, batch_size=_BATCH, ignore_conflicts=True)


def _row(at: datetime, values: Sequence[Any], seconds: int) -> Row:
    if not seconds:
        return sample_row(at, values)
    return Row(at=at, seconds=seconds, **dict(zip((*_COUNTS, *_VALUES), values, strict=True)))


def _of_mirror(summary: MirrorSummary, now: datetime) -> MirrorSample:
    rates = {"bytes_per_s": summary.bytes_per_s, "records_per_s": summary.records_per_s}
    return MirrorSample(mirror=summary.mirror, at=now, lag=summary.total_lag, lag_ms=summary.lag_ms, **rates)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
