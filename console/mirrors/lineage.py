"""Lineage: from which topics the records of a topic came. Written when a mirror begins and ends to copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from console.access import Permission, can, visible_clusters
from console.actors import Actor
from console.mirrors import progress
from console.models import Cluster, ClusterLink, LineageRange, MirrorPartition, MirrorTopic, RoleBinding

# --- rows -------------------------------------------------------------------------------------------------------------
#
# Ranges are opened when a mirror begins to copy and closed where it ends. Each call is idempotent.


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


# --- queries ----------------------------------------------------------------------------------------------------------


DEEPEST = 8  # links in a chain; a ring of reversed links would never end
_FAR = 1 << 63
_Place = tuple[str, str, str]  # cluster id, topic, topic id


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Offsets ``[start, end)`` of a partition and the topic they came from; ``end`` grows while ``until`` is None.

    If ``hidden``, the reader may see neither the link nor the topic: their names are empty and ``upstream`` is left out.
    """

    partition: int
    start: int
    end: int
    cluster_id: str
    topic: str
    topic_id: str
    link_name: str
    since: datetime
    until: datetime | None
    hidden: bool = False
    upstream: Sequence[Origin] = ()  # the origins of the origin's own records, cut to these offsets


def lineage_of(mirror: MirrorTopic, *, by: Actor, limit: int = 1000) -> list[Origin]:
    """Return the origins of a mirror's records by partition and offset, earlier links of the same topic included.

    Copies over links that the actor may not see are hidden, except those over the link of the mirror itself. Two queries per
    topic of the chain, however many partitions there are.
    """
    known = _Known(by, mirror.link)
    place = (mirror.link.destination.cluster_id, mirror.name, mirror.mirror_topic_id)
    rows = [row for rows in known.rows(place).values() for row in rows]
    return [known.origin(row, within=(0, _FAR), depth=0) for row in rows[:limit]]


class _Known:
    """Lineage rows by topic, each topic read once, as far as a reader may see them."""

    def __init__(self, by: Actor, link: ClusterLink) -> None:
        self._by, self._link = by, link
        self._clusters: dict[str, Cluster] | None = None  # those that the reader may see in part or as a whole
        self._rows: dict[_Place, dict[int, list[LineageRange]]] = {}
        self._ends: dict[tuple[int, int], int] = {}  # mirror, partition

    def rows(self, place: _Place) -> dict[int, list[LineageRange]]:
        """Return the rows of a topic by partition."""
        if place not in self._rows:
            cluster_id, topic, topic_id = place
            found = self._rows[place] = defaultdict(list)
            for row in LineageRange.objects.filter(cluster_id=cluster_id, topic=topic, topic_id=topic_id):
                found[row.partition].append(row)
            self._read_ends({row.mirror_id for rows in found.values() for row in rows if row.closed_at is None})
        return self._rows[place]

    def origin(self, row: LineageRange, *, within: tuple[int, int], depth: int) -> Origin:
        """Return a row as an origin, cut to some offsets, with its upstream origins."""
        start, end = max(row.start, within[0]), min(self._end(row), within[1])
        common: dict[str, Any] = {"partition": row.partition, "start": start, "end": end}
        common |= {"since": row.opened_at, "until": row.closed_at}
        if not self._may_see(row):
            return Origin(**common, cluster_id="", topic="", topic_id="", link_name="", hidden=True)
        return Origin(
            **common,
            cluster_id=row.origin_cluster_id,
            topic=row.origin_topic,
            topic_id=row.origin_topic_id,
            link_name=row.link_name,
            upstream=self._upstream(row, within=(start, end), depth=depth + 1),
        )

    def _may_see(self, row: LineageRange) -> bool:
        """Return whether the reader may see the copy that a row is about: the topic it was written to, or its link."""
        if row.link_uuid == self._link.link_uuid:
            return True
        if self._clusters is None:
            visible = visible_clusters(self._by).select_related("environment")
            self._clusters = {cluster.cluster_id: cluster for cluster in visible}
        cluster = self._clusters.get(row.cluster_id)
        if cluster is None:
            return False
        kinds = ((RoleBinding.ResourceType.TOPIC, row.topic), (RoleBinding.ResourceType.CLUSTER_LINK, row.link_name))
        view = Permission.VIEW
        return any(can(self._by, view, cluster=cluster, resource_type=kind, resource_name=name) for kind, name in kinds)

    def _upstream(self, row: LineageRange, *, within: tuple[int, int], depth: int) -> tuple[Origin, ...]:
        if depth >= DEEPEST:
            return ()
        place = (row.origin_cluster_id, row.origin_topic, row.origin_topic_id)
        rows = self.rows(place).get(row.partition, ())
        earlier = [source for source in rows if not row.closed_at or source.opened_at <= row.closed_at]
        overlapping = [source for source in earlier if source.start < within[1] and within[0] < self._end(source)]
        return tuple(self.origin(source, within=within, depth=depth) for source in overlapping)

    def _end(self, row: LineageRange) -> int:
        """Return the end of a range; an open range ends where its mirror does."""
        if row.closed_at is not None or row.mirror_id is None:
            return row.end
        return max(row.end, self._ends.get((row.mirror_id, row.partition), 0))

    def _read_ends(self, mirrors: set[int | None]) -> None:
        known = MirrorTopic.objects.filter(pk__in=[pk for pk in mirrors if pk is not None])
        for mirror in progress.current(known, now=timezone.now()):
            for row in mirror.partitions:
                end = row.mirror_end if row.stopped_end is None else row.stopped_end
                self._ends[mirror.pk, row.partition] = end or 0
