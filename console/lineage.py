"""Writes lineage: opened when a mirror begins to copy, closed where it ends. Each call may be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from console.models import LineageRange, MirrorPartition, MirrorTopic


def open_lineage(*, mirror: MirrorTopic, starts: Mapping[int, int], now: datetime) -> None:
    """From these offsets (by partition; the others begin at 0) on the mirror holds what its link's source holds.

    Partitions whose range is open stay as they are. Call it once the mirror's topic ids are known.
    """
    known = set(LineageRange.objects.filter(mirror=mirror, closed_at=None).values_list("partition", flat=True))
    missing = [number for number in range(mirror.num_partitions) if number not in known]
    rows = [_row(mirror, number, start=starts.get(number, 0), now=now) for number in missing]
    LineageRange.objects.bulk_create(rows, ignore_conflicts=True)


def close_lineage(*, mirror: MirrorTopic, ends: Mapping[int, int] | None = None, now: datetime) -> None:
    """Up to these offsets (by partition) the mirror holds its source's records; None: up to where it is known to be.

    Ranges that turn out empty are removed: nothing came over this link.
    """
    known = ends if ends is not None else mirror_ends(mirror)
    with transaction.atomic():
        for row in LineageRange.objects.filter(mirror=mirror, closed_at=None):
            end = max(row.start, known.get(row.partition, row.end))
            if end == row.start:
                row.delete()
            else:
                LineageRange.objects.filter(pk=row.pk, closed_at=None).update(end=end, closed_at=now)


def mirror_ends(mirror: MirrorTopic) -> dict[int, int]:
    """Answer where the mirror ends as far as it is known: at its fence, else as last reported."""
    rows = MirrorPartition.objects.filter(mirror=mirror).values_list("partition", "stopped_end", "mirror_end")
    ends = {partition: reported if fenced is None else fenced for partition, fenced, reported in rows}
    return {partition: end for partition, end in ends.items() if end is not None}


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
