"""Lineage: from which topics the records of a topic came. Written when a mirror begins and ends to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Greatest

from console.access import Permission, can, visible_clusters
from console.actors import Actor
from console.mirrors import progress
from console.models import Cluster, LineageRange, MirrorPartition, MirrorTopic, RoleBinding

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


def lineage_of(
    mirror: MirrorTopic,
    *,
    by: Actor,
    limit: int = 1000,
    levels: int = DEEPEST,
    clusters: Mapping[str, Cluster] | None = None,
) -> list[Origin]:
    """Return the origins of a mirror's records by partition and offset, earlier links of the same topic included.

    Copies over links that the actor may not see are hidden, except those over the link of the mirror itself. A query for each
    link of the chain, at most ``levels``, and one for ``clusters``, those that the actor may see in part or as a whole, by
    Kafka's cluster id, unless they were read.
    """
    place = (mirror.link.destination.cluster_id, mirror.name, mirror.mirror_topic_id)
    known = _Known(by, mirror, rows=_read_chain(place, levels=levels), clusters=clusters)
    return [known.origin(row, within=(0, _FAR), depth=1) for row in known.rows[place][:limit]]


def _read_chain(place: _Place, *, levels: int) -> dict[_Place, list[LineageRange]]:
    """Return the rows of a topic and of the topics it came from, by topic. A query for each link of the chain."""
    found: dict[_Place, list[LineageRange]] = {place: []}
    level = {place}
    for _ in range(levels):
        chosen = Q(pk__in=())
        for cluster_id, topic, topic_id in level:
            chosen |= Q(cluster_id=cluster_id, topic=topic, topic_id=topic_id)
        rows = list(LineageRange.objects.filter(chosen))
        for row in rows:
            found[row.cluster_id, row.topic, row.topic_id].append(row)
        level = {_origin_of(row) for row in rows}.difference(found)
        found |= {origin: [] for origin in level}
        if not level:
            break
    return found


def _origin_of(row: LineageRange) -> _Place:
    return row.origin_cluster_id, row.origin_topic, row.origin_topic_id


def clusters_by_id(by: Actor) -> dict[str, Cluster]:
    """Return the clusters that an actor may see in part or as a whole, by Kafka's cluster id. One query."""
    return {cluster.cluster_id: cluster for cluster in visible_clusters(by).select_related("environment")}


class _Known:
    """The lineage of a mirror, as far as a reader may see it."""

    def __init__(
        self,
        by: Actor,
        mirror: MirrorTopic,
        *,
        rows: dict[_Place, list[LineageRange]],
        clusters: Mapping[str, Cluster] | None,
    ) -> None:
        self.rows = rows
        self._by, self._link, self._mirror_id = by, mirror.link, mirror.pk
        self._clusters = clusters
        ends = ((row.partition, row.mirror_end, row.stopped_end) for row in mirror.partitions.all())
        self._ends = {partition: (end if stopped is None else stopped) or 0 for partition, end, stopped in ends}

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
            upstream=self._upstream(row, within=(start, end), depth=depth),
        )

    def _may_see(self, row: LineageRange) -> bool:
        """Return whether the reader may see the copy that a row is about: the topic it was written to, or its link."""
        if row.link_uuid == self._link.link_uuid:
            return True
        if self._clusters is None:
            self._clusters = clusters_by_id(self._by)
        cluster = self._clusters.get(row.cluster_id)
        if cluster is None:
            return False
        kinds = ((RoleBinding.ResourceType.TOPIC, row.topic), (RoleBinding.ResourceType.CLUSTER_LINK, row.link_name))
        view = Permission.VIEW
        return any(can(self._by, view, cluster=cluster, resource_type=kind, resource_name=name) for kind, name in kinds)

    def _upstream(self, row: LineageRange, *, within: tuple[int, int], depth: int) -> tuple[Origin, ...]:
        if depth >= DEEPEST:
            return ()
        rows = [source for source in self.rows.get(_origin_of(row), ()) if source.partition == row.partition]
        earlier = [source for source in rows if not row.closed_at or source.opened_at <= row.closed_at]
        overlapping = [source for source in earlier if source.start < within[1] and within[0] < self._end(source)]
        return tuple(self.origin(source, within=within, depth=depth + 1) for source in overlapping)

    def _end(self, row: LineageRange) -> int:
        """Return the end of a range. An open range of the mirror itself ends where the mirror does.

        An open range of an earlier topic of the chain has no end: everything that was read of that topic since the range began
        came from its origin, so the offsets that were read are the limit.
        """
        if row.closed_at is not None or row.mirror_id is None:
            return row.end
        return max(row.end, self._ends.get(row.partition, 0)) if row.mirror_id == self._mirror_id else _FAR
