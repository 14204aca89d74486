"""Writes lineage: ranges are opened when a mirror begins to copy and closed where it ends. Each call is idempotent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import F, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Greatest

from console.mirrors import progress
from console.models import LineageRange, MirrorPartition, MirrorTopic


def open_lineage(*, mirror: MirrorTopic, starts: Mapping[int, int], now: datetime) -> None:
    """Open the ranges of a mirror: from ``starts`` (by partition, default 0) on it holds its link's source's records.

    Partitions whose range is open stay as they are. Call it once the mirror's topic ids are known.
    """
    known = set(LineageRange.objects.filter(mirror=mirror, closed_at=None).values_list("partition", flat=True))
    missing = [number for number in range(mirror.num_partitions) if number not in known]
    rows = [_row(mirror, number, start=starts.get(number, 0), now=now) for number in missing]
    LineageRange.objects.bulk_create(rows, ignore_conflicts=True)


def close_lineage(*, mirror: MirrorTopic, ends: Mapping[int, int] | None = None, now: datetime) -> None:
    """Close the ranges of a mirror at ``ends`` (by partition), the ends of its source's records; None: as ``close_many``.

    Empty ranges are removed: no record was copied over this link.
    """
    if ends is None:
        close_many([mirror], now=now)
        return
    with transaction.atomic():
        ranges = LineageRange.objects.filter(mirror=mirror, closed_at=None)
        for partition, end in ends.items():
            ranges.filter(partition=partition).update(end=Greatest(F("start"), Value(end)))
        _close(ranges, now=now)


def close_many(mirrors: Sequence[MirrorTopic], *, now: datetime) -> None:
    """Close the ranges of mirrors at the fence, else at the last reported end, else at the last stored end."""
    rows = MirrorPartition.objects.filter(mirror=OuterRef("mirror"), partition=OuterRef("partition"))
    recorded = Subquery(rows.values_list("stopped_end")[:1])
    with transaction.atomic():
        ranges = LineageRange.objects.filter(mirror__in=mirrors, closed_at=None)
        ranges.update(end=Greatest(F("start"), Coalesce(recorded, F("end"))))
        for (mirror, partition), end in _reported(mirrors, now=now).items():
            ranges.filter(mirror=mirror, partition=partition).update(end=Greatest(F("start"), Value(end)))
        _close(ranges, now=now)


def _reported(mirrors: Sequence[MirrorTopic], *, now: datetime) -> dict[tuple[int, int], int]:
    """Return the ends of partitions that have no fence, as last reported; after an ordinary stop there are none."""
    unfenced = MirrorPartition.objects.filter(mirror__in=mirrors, stopped_end=None).values("mirror")
    return {
        (mirror.pk, row.partition): row.mirror_end
        for mirror in progress.current(MirrorTopic.objects.filter(pk__in=unfenced), now=now, insist=True)
        for row in mirror.partitions
        if row.stopped_end is None and row.mirror_end is not None
    }


def _close(ranges: QuerySet[LineageRange], *, now: datetime) -> None:
    ranges.filter(end=F("start")).delete()
    ranges.update(closed_at=now)


def _row(mirror: MirrorTopic, partition: int, *, start: int, now: datetime) -> LineageRange:
    link = mirror.link
    return LineageRange(
        mirror=mirror,
        cluster_id=link.destination.cluster_id,
        topic=mirror.name,
        topic_id=mirror.mirror_topic_id,
        partition=partition,
        start=start,
        end=start,
        origin_cluster_id=link.source_cluster_id,
        origin_topic=mirror.source_topic,
        origin_topic_id=mirror.source_topic_id,
        link_name=link.name,
        link_uuid=link.link_uuid,
        opened_at=now,
    )
