"""Lineage queries: the topics that the records of a topic came from, directly and through chains of links stored here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from console.access import Permission, can, visible_clusters
from console.actors import Actor
from console.mirrors import progress
from console.models import Cluster, ClusterLink, LineageRange, MirrorTopic, RoleBinding

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
