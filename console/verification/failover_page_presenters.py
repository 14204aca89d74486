"""View models of the Failover page of a link: figures, topics, groups that would be clamped, and the checklist for clients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from console.links.group_presenters import readable_name
from console.links.presenters import Tile
from console.mirrors.presenters import MirrorRow, mirror_row
from console.web import numbers

if TYPE_CHECKING:
    from console.mirrors.operation_queries import GroupAtRisk
    from console.mirrors.queries import MirrorSummary
    from console.verification.queries import FailoverRisk
    from linkengine.domain.health import Verdict

GROUPS_SHOWN = 100
# Facts that the product cannot check. No confirmation is required, and the report shows which were confirmed.
CHECKLIST: Mapping[str, str] = MappingProxyType(
    {
        "producers": "Producers of these topics are stopped, or cannot reach the source cluster.",
        "consumers": "Consumers of these topics are stopped on the source cluster.",
        "clients": "Clients have the addresses and credentials of the destination cluster.",
        "records": "Applications can continue without the records that were not copied. New records get the same offsets.",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRow:
    """A mirror topic that could be failed over."""

    row: MirrorRow
    missing: str  # records that would not be copied
    groups: Sequence[str]  # consumer groups that would be clamped


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A consumer group that a failover would clamp to the end of a mirror topic."""

    group: str
    topic: str
    partition: int
    offset: str
    clamped_to: str
    distance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckItem:
    """A sentence of the checklist for clients."""

    key: str
    text: str
    confirmed: bool


def records_words(known: int, *, unknown: int, topics: int) -> str:
    """Return a number of records at risk: a lower bound if those of some topics are unknown."""
    if not unknown:
        return numbers.count(known)
    if unknown >= topics:
        return "unknown"
    return f"at least {numbers.count(known)}; unknown for {numbers.plural(unknown, 'topic')}"


def rpo_words(rpo_ms: int | None) -> str:
    """Return a time lag; "unknown" if it is not known."""
    return "unknown" if rpo_ms is None else numbers.lag_time(rpo_ms)


def failover_tiles(risk: FailoverRisk) -> list[Tile]:
    """Return the tiles with the cost of a failover of all topics of a link now."""
    topics = len(risk.records)
    return [
        Tile(label="Topics to fail over", value=numbers.count(topics), hint="mirror topics that are not stopped"),
        Tile(
            label="RPO now",
            value=rpo_words(risk.rpo_ms) if topics else numbers.UNKNOWN,
            hint=f"{numbers.plural(risk.never_seen, 'partition')} of unknown age" if risk.never_seen else "data loss window",
            alarm=bool(topics) and risk.rpo_ms is None,
        ),
        Tile(
            label="Records at risk",
            value=records_words(risk.known_records, unknown=risk.unknown, topics=topics) if topics else numbers.UNKNOWN,
            hint="not copied when last measured",
            alarm=risk.unknown > 0 or risk.known_records > 0,
        ),
    ]


def failover_row(
    summary: MirrorSummary, *, missing: int | None, groups: Collection[GroupAtRisk], health: Verdict | None, now: datetime
) -> FailoverRow:
    """Create the row of a mirror topic."""
    return FailoverRow(
        row=mirror_row(summary, now=now, health=health),
        missing="unknown" if missing is None else numbers.count(missing),
        groups=sorted({readable_name(row.group) for row in groups}),
    )


def group_rows(at_risk: Mapping[int, Iterable[GroupAtRisk]], names: Mapping[int, str]) -> list[GroupRow]:
    """Return the groups that would be clamped, the largest distance first; ``names`` are those of the mirrors."""
    found = [(row.offset - row.clamped_to, names[pk], row) for pk, rows in at_risk.items() for row in rows if pk in names]
    found.sort(key=lambda item: (-item[0], item[1], item[2].group, item[2].partition))
    return [
        GroupRow(
            group=readable_name(row.group),
            topic=topic,
            partition=row.partition,
            offset=numbers.count(row.offset),
            clamped_to=numbers.count(row.clamped_to),
            distance=numbers.count(distance),
        )
        for distance, topic, row in found
    ]


def check_items(confirmed: Collection[str]) -> list[CheckItem]:
    """Return the checklist with the confirmations of the user."""
    return [CheckItem(key=key, text=text, confirmed=key in confirmed) for key, text in CHECKLIST.items()]
