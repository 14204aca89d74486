"""Where a mirror's records came from: partitions that share cluster, topic, link and time are one line."""

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
    """One origin."""

    topic: str
    cluster: str  # its name where it is registered, else its id
    link: str
    offsets: str
    partitions: str
    ranges: Sequence[str]
    more: int
    since: Moment | None
    until: Moment | None
    behind: Sequence[str]  # the chain behind the origin, nearest first
    hidden: bool


def origin_rows(origins: Iterable[Origin], *, names: Mapping[str, str], now: datetime) -> list[OriginRow]:
    """Present origins, oldest first; ``names`` are those of the clusters that the reader may see, by id."""
    groups: dict[tuple[datetime, str, str, str], list[Origin]] = defaultdict(list)
    for one in origins:
        groups[one.since, one.cluster_id, one.topic, one.link_name].append(one)
    return [_row(groups[key], names=names, now=now) for key in sorted(groups)]


def _row(group: Sequence[Origin], *, names: Mapping[str, str], now: datetime) -> OriginRow:
    first = group[0]
    until = max((one.until for one in group if one.until), default=None) if all(one.until for one in group) else None
    return OriginRow(
        topic=first.topic,
        cluster=names.get(first.cluster_id, first.cluster_id),
        link=first.link_name,
        offsets=numbers.plural(sum(one.end - one.start for one in group), "offset"),
        partitions=numbers.plural(len({one.partition for one in group}), "partition"),
        ranges=[f"partition {one.partition}: {one.start:,} to {one.end:,}" for one in group[:SHOWN_RANGES]],
        more=max(0, len(group) - SHOWN_RANGES),
        since=moment(first.since, now=now),
        until=moment(until, now=now) if until else None,
        behind=list(dict.fromkeys(_chain(group, names))),
        hidden=first.hidden,
    )


def _chain(origins: Iterable[Origin], names: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    for one in origins:
        for behind in one.upstream:
            if behind.hidden:
                found.append("a topic that you may not see")
                continue
            found.append(f"{behind.topic} on {names.get(behind.cluster_id, behind.cluster_id)}, over {behind.link_name}")
            found += _chain([behind], names)
    return found
