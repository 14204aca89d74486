"""View model of the lineage of a mirror. Partitions with the same cluster, topic, link and start time form a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from console.presenters import numbers
from console.presenters.numbers import Moment, moment

if TYPE_CHECKING:
    from console.queries.lineage import Origin

SHOWN_RANGES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginRow:
    """An origin of records: a topic that they were copied from."""

    topic: str
    cluster: str  # name if registered, else cluster ID
    link: str
    offsets: str
    partitions: str
    ranges: Sequence[str]
    more: int
    since: Moment | None
    until: Moment | None
    behind: Sequence[str]  # the upstream origins, nearest first
    hidden: bool


def origin_rows(origins: Iterable[Origin], *, names: Mapping[str, str], now: datetime) -> list[OriginRow]:
    """Return the rows of the origins, oldest first. ``names``: names of visible clusters by cluster ID."""
    groups: dict[tuple[datetime, str, str, str], list[Origin]] = defaultdict(list)
    for origin in origins:
        groups[origin.since, origin.cluster_id, origin.topic, origin.link_name].append(origin)
    return [_row(groups[key], names=names, now=now) for key in sorted(groups)]


def _row(group: Sequence[Origin], *, names: Mapping[str, str], now: datetime) -> OriginRow:
    first = group[0]
    ends = [origin.until for origin in group if origin.until]
    until = max(ends, default=None) if len(ends) == len(group) else None
    return OriginRow(
        topic=first.topic,
        cluster=names.get(first.cluster_id, first.cluster_id),
        link=first.link_name,
        offsets=numbers.plural(sum(origin.end - origin.start for origin in group), "offset"),
        partitions=numbers.plural(len({origin.partition for origin in group}), "partition"),
        ranges=[f"partition {origin.partition}: {origin.start:,} to {origin.end:,}" for origin in group[:SHOWN_RANGES]],
        more=max(0, len(group) - SHOWN_RANGES),
        since=moment(first.since, now=now),
        until=moment(until, now=now) if until else None,
        behind=list(dict.fromkeys(_chain(group, names))),
        hidden=first.hidden,
    )


def _chain(origins: Iterable[Origin], names: Mapping[str, str]) -> list[str]:
    chain: list[str] = []
    for origin in origins:
        for upstream in origin.upstream:
            if upstream.hidden:
                chain.append("a topic that you do not have permission to see")
                continue
            cluster = names.get(upstream.cluster_id, upstream.cluster_id)
            chain.append(f"{upstream.topic} on {cluster}, over link {upstream.link_name}")
            chain += _chain([upstream], names)
    return chain
