"""View models of the Failover page of a link: figures, topics, groups that would be clamped, and the checklist for clients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.utils.translation import gettext, gettext_noop, ngettext

from console.links.group_presenters import readable_name
from console.links.presenters import Tile
from console.mirrors.presenters import MirrorRow, mirror_row
from console.web import numbers

if TYPE_CHECKING:
    from console.mirrors.operation_queries import GroupAtRisk
    from console.mirrors.queries import MirrorSummary
    from console.verification.queries import FailoverRisk
    from linkengine.domain.health import HealthStatus

GROUPS_SHOWN = 100
# Facts that the product cannot check. No confirmation is required, and the report shows which were confirmed. The operation and
# its reports store them in English; the pages translate them.
CHECKLIST: Mapping[str, str] = MappingProxyType(
    {
        "producers": gettext_noop("Producers of these topics are stopped, or cannot reach the source cluster."),
        "consumers": gettext_noop("Consumers of these topics are stopped on the source cluster."),
        "clients": gettext_noop("Clients have the addresses and credentials of the destination cluster."),
        "records": gettext_noop(
            "Applications can continue without the records that were not copied. New records get the same offsets."
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRow:
    """A mirror topic that could be failed over."""

    row: MirrorRow
    records: int | None  # that would not be copied
    missing: str  # the same in words
    lag_ms: int | None
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
        return gettext("unknown")
    text = ngettext(
        "at least %(known)s; unknown for %(count)s topic", "at least %(known)s; unknown for %(count)s topics", unknown
    )
    return text % {"known": numbers.count(known), "count": numbers.count(unknown)}


def rpo_words(rpo_ms: int | None) -> str:
    """Return a time lag; "unknown" if it is not known."""
    return gettext("unknown") if rpo_ms is None else numbers.lag_time(rpo_ms)


def failover_tiles(risk: FailoverRisk) -> list[Tile]:
    """Return the tiles with the cost of a failover of all topics of a link now."""
    topics = len(risk.records)
    return [
        Tile(
            label=gettext("Topics to fail over"),
            value=numbers.count(topics),
            hint=gettext("mirror topics that are neither stopped nor being deleted"),
        ),
        Tile(
            label=gettext("RPO now"),
            value=rpo_words(risk.rpo_ms) if topics else numbers.UNKNOWN,
            hint=ngettext("%(count)s partition of unknown age", "%(count)s partitions of unknown age", risk.never_seen)
            % {"count": numbers.count(risk.never_seen)}
            if risk.never_seen
            else gettext("data loss window"),
            alarm=bool(topics) and risk.rpo_ms is None,
        ),
        Tile(
            label=gettext("Records at risk"),
            value=records_words(risk.known_records, unknown=risk.unknown, topics=topics) if topics else numbers.UNKNOWN,
            hint=gettext("not copied when last measured"),
            alarm=risk.unknown > 0 or risk.known_records > 0,
        ),
    ]


def failover_row(
    summary: MirrorSummary, *, missing: int | None, groups: Collection[GroupAtRisk], health: HealthStatus | None, now: datetime
) -> FailoverRow:
    """Create the row of a mirror topic."""
    return FailoverRow(
        row=mirror_row(summary, now=now, health=health),
        records=missing,
        missing=gettext("unknown") if missing is None else numbers.count(missing),
        lag_ms=summary.lag_ms,
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
