"""Where the records of a topic came from: directly, and through chains of links as far as this console knows them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from console.models import Cluster, LineageRange, MirrorPartition, MirrorTopic

DEEPEST = 8  # links in a chain; a ring of reversed links would never end
_FAR = 1 << 63
_Place = tuple[str, str, str]  # cluster id, topic, topic id


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Offsets ``[start, end)`` of a partition and where they came from; ``end`` grows while ``until`` is None."""

    partition: int
    start: int
    end: int
    cluster_id: str
    topic: str
    topic_id: str
    link_name: str
    since: datetime
    until: datetime | None
    upstream: Sequence[Origin] = ()  # where the origin itself had them from, cut to these offsets


def lineage_of(mirror: MirrorTopic, *, limit: int = 1000) -> list[Origin]:
    """Answer the origins of a mirror's records by partition and offset, earlier links of the same topic included.

    Two queries per topic of the chain, however many partitions there are.
    """
    known = _Known()
    place = (mirror.link.destination.cluster_id, mirror.name, mirror.mirror_topic_id)
    rows = [row for rows in known.rows(place).values() for row in rows]
    return [known.origin(row, within=(0, _FAR), depth=0) for row in rows[:limit]]


def cluster_names() -> dict[str, str]:
    """Answer the names of registered clusters by Kafka's id."""
    return dict(Cluster.objects.values_list("cluster_id", "name"))


class _Known:
    """Lineage by topic, read once each."""

    def __init__(self) -> None:
        self._rows: dict[_Place, dict[int, list[LineageRange]]] = {}
        self._ends: dict[tuple[int, int], int] = {}  # mirror, partition

    def rows(self, place: _Place) -> dict[int, list[LineageRange]]:
        """Answer the rows of a topic by partition."""
        if place not in self._rows:
            cluster_id, topic, topic_id = place
            found = self._rows[place] = defaultdict(list)
            for row in LineageRange.objects.filter(cluster_id=cluster_id, topic=topic, topic_id=topic_id):
                found[row.partition].append(row)
            self._read_ends({row.mirror_id for rows in found.values() for row in rows if row.closed_at is None})
        return self._rows[place]

    def origin(self, row: LineageRange, *, within: tuple[int, int], depth: int) -> Origin:
        """Answer a row, cut to some offsets, and what lies behind it."""
        start, end = max(row.start, within[0]), min(self._end(row), within[1])
        return Origin(
            partition=row.partition,
            start=start,
            end=end,
            cluster_id=row.origin_cluster_id,
            topic=row.origin_topic,
            topic_id=row.origin_topic_id,
            link_name=row.link_name,
            since=row.opened_at,
            until=row.closed_at,
            upstream=self._upstream(row, within=(start, end), depth=depth + 1),
        )

    def _upstream(self, row: LineageRange, *, within: tuple[int, int], depth: int) -> tuple[Origin, ...]:
        if depth >= DEEPEST:
            return ()
        place = (row.origin_cluster_id, row.origin_topic, row.origin_topic_id)
        before = [one for one in self.rows(place).get(row.partition, ()) if not row.closed_at or one.opened_at <= row.closed_at]
        overlapping = [one for one in before if one.start < within[1] and within[0] < self._end(one)]
        return tuple(self.origin(one, within=within, depth=depth) for one in overlapping)

    def _end(self, row: LineageRange) -> int:
        """An open range reaches as far as its mirror does."""
        if row.closed_at is not None or row.mirror_id is None:
            return row.end
        return max(row.end, self._ends.get((row.mirror_id, row.partition), 0))

    def _read_ends(self, mirrors: set[int | None]) -> None:
        rows = MirrorPartition.objects.filter(mirror__in=[one for one in mirrors if one is not None])
        for mirror_id, partition, fenced, reported in rows.values_list("mirror", "partition", "stopped_end", "mirror_end"):
            self._ends[mirror_id, partition] = (reported if fenced is None else fenced) or 0
