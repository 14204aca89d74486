"""Writes samples of a link and its mirrors for charts, summarizes them, and deletes old ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from django.db import transaction
from django.db.models import Max

from console.models import (
    ClusterLink,
    LinkSample,
    LinkSampleSummary,
    MirrorSample,
    MirrorSampleSummary,
    MirrorTopic,
)
from console.queries.history import KEEP_LINKS, KEEP_MIRRORS, KEEP_SUMMARIES, SAMPLE_S, Row, combine, largest, sample_row
from console.queries.mirrors import MirrorSummary, summarize
from linkengine.domain.states import MirrorState

EVERY_MS = SAMPLE_S * 1000
_SETTLED = timedelta(minutes=1)  # after which no sample of an interval is still being written
_VALUES = ("lag", "lag_ms", "bytes_per_s", "records_per_s")
_COUNTS = ("seconds", "samples", "unknown", "unknown_ms")
_BATCH = 500


def keep_samples(*, link: ClusterLink, mirrors: Iterable[MirrorTopic], now: datetime, whole: bool = True) -> None:
    """Write one sample of the link and of each mirror that is not stopped; nothing if nothing is mirrored.

    Not ``whole``: a mirror is missing of which nothing is known, so the link's figures are unknown, too.
    """
    copied = [mirror for mirror in mirrors if mirror.drill_id is None and mirror.state != MirrorState.STOPPED]
    found = [summarize(mirror, now=now, errors=0) for mirror in copied]
    if not found:
        return
    MirrorSample.objects.bulk_create([_of_mirror(row, now) for row in found], batch_size=_BATCH)
    if not whole:
        return
    LinkSample.objects.create(
        link=link,
        at=now,
        lag=largest([row.max_lag for row in found]),
        lag_ms=largest([row.lag_ms for row in found]),
        bytes_per_s=_sum([row.bytes_per_s for row in found]),
        records_per_s=_sum([row.records_per_s for row in found]),
    )


def summarize_samples(*, now: datetime) -> None:
    """Write the summaries of all intervals that have ended since the last run, each kind from the next finer rows."""
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
    """Delete samples and summaries that no chart shows. Call ``summarize_samples`` first."""
    LinkSample.objects.filter(at__lt=now - KEEP_LINKS).delete()
    MirrorSample.objects.filter(at__lt=now - KEEP_MIRRORS).delete()
    for model in (LinkSampleSummary, MirrorSampleSummary):
        for seconds, keep in KEEP_SUMMARIES.items():
            model.objects.filter(seconds=seconds, at__lt=now - keep).delete()


def _summarize(samples: Any, summaries: Any, owner: str, *, seconds: int, finer: int, now: datetime) -> None:
    """Write the missing summaries of one length. An interval is written for all owners in one transaction, or for none."""
    end = _begin_of(now - _SETTLED, seconds)
    done = summaries.objects.filter(seconds=seconds).aggregate(newest=Max("at"))["newest"]
    start = now - KEEP_SUMMARIES[seconds] if done is None else done + timedelta(seconds=seconds)
    rows = summaries.objects.filter(seconds=finer) if finer else samples.objects.all()
    rows = rows.filter(at__gte=start, at__lt=end).order_by(owner, "at").values_list(owner, "at", *_columns(finer))
    made = []
    for (key, at), group in groupby(_rows(rows, finer), key=lambda row: (row[0], _begin_of(row[1].at, seconds))):
        whole = combine([row for _, row in group], at=at, seconds=seconds)
        counts = {name: getattr(whole, name) for name in (*_COUNTS, *_VALUES)}
        made.append(summaries(**{owner: key}, at=at, **counts))
        if len(made) >= _BATCH:
            summaries.objects.bulk_create(made, ignore_conflicts=True)
            made = []
    summaries.objects.bulk_create(made, ignore_conflicts=True)


def _columns(finer: int) -> tuple[str, ...]:
    return (*_COUNTS, *_VALUES) if finer else _VALUES


def _rows(found: Any, finer: int) -> Iterator[tuple[int, Row]]:
    for key, at, *values in found.iterator(chunk_size=5_000):
        row = Row(at=at, **dict(zip(_columns(finer), values, strict=True))) if finer else sample_row(at, values)
        yield key, row


def _begin_of(at: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(at.timestamp() // seconds * seconds, tz=UTC)


def _of_mirror(row: MirrorSummary, now: datetime) -> MirrorSample:
    rates = {"bytes_per_s": row.bytes_per_s, "records_per_s": row.records_per_s}
    return MirrorSample(mirror=row.mirror, at=now, lag=row.total_lag, lag_ms=row.lag_ms, **rates)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
