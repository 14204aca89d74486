"""View models of failover drills and of the Failover page of a link. Unknown is stated as such, never as 0."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext, gettext_noop, ngettext

from console.links.group_presenters import readable_name
from console.links.presenters import Tile
from console.mirrors.presenters import MirrorRow, mirror_row
from console.web import numbers
from console.web.badges import Badge, Family
from console.web.numbers import Moment, moment
from linkengine.domain.failover import BATCH, DrillRow
from linkengine.domain.linkrules import EARLIEST, LATEST

if TYPE_CHECKING:
    from console.mirrors.operation_queries import GroupAtRisk
    from console.mirrors.queries import MirrorSummary
    from console.models import Drill
    from console.verification.queries import FailoverRisk
    from linkengine.domain.health import HealthStatus

# --- failover drills --------------------------------------------------------------------------------------------------


NAMED = 3  # partitions of a group that are listed
LISTED = 50  # topics and groups of a drill; the REST API lists all

_STARTS = {LATEST: gettext_noop("new records only"), EARLIEST: gettext_noop("all records of the source")}


def _busy(code: str, label: str, meaning: str) -> Badge:
    return Badge(code=code, label=label, icon="arrow-repeat", family=Family.BUSY, meaning=meaning)


DRILL_BADGES: Mapping[str, Badge] = MappingProxyType(
    {
        "PREPARING": _busy(
            "PREPARING", gettext_noop("Copying"), gettext_noop("Scratch copies are created and catch up with the source.")
        ),
        "FAILING_OVER": _busy(
            "FAILING_OVER", gettext_noop("Failing over"), gettext_noop("The scratch copies are being failed over.")
        ),
        "CHECKING": _busy(
            "CHECKING",
            gettext_noop("Checking"),
            gettext_noop("All records are compared, then each partition is written to and read."),
        ),
        "CLEANING": _busy("CLEANING", gettext_noop("Cleaning up"), gettext_noop("The scratch copies are being deleted.")),
        "PASSED": Badge(
            code="PASSED",
            label=gettext_noop("Passed"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("A failover at that time would have succeeded."),
        ),
        "FAILED": Badge(
            code="FAILED",
            label=gettext_noop("Failed"),
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning=gettext_noop("A failover at that time would have had a problem, or no records could be compared."),
            next_step=gettext_noop("Fix the problems in the report, then start another drill."),
        ),
        "CANCELED": Badge(
            code="CANCELED",
            label=gettext_noop("Canceled"),
            icon="dash-circle",
            family=Family.DONE,
            meaning=gettext_noop("A user canceled the drill. Its scratch copies were deleted."),
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillLine:
    """The result of a drill for a mirror topic."""

    name: str
    rto: str
    rpo: str
    compared: str
    differences: str
    writable: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """The offsets of a consumer group on a topic after a failover."""

    group: str
    topic: str
    partitions: str
    clamped: str
    clamped_by: str
    offsets: str  # the offsets that would change


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRowView:
    """A drill."""

    key: int
    badge: Badge
    live: bool
    canceling: bool  # canceled, and not cleaned up yet
    at: Moment | None
    by: str
    start: str
    rto: str
    of_batches: bool  # more than one batch; the RTO is that of the slowest
    problem: str
    progress: str  # finished topics, while the drill runs
    topics: int
    lines: Sequence[DrillLine]  # those with a problem first
    more_lines: int
    groups: Sequence[GroupLine]  # the most clamped first
    more_groups: int
    clamped_groups: int
    unsure: bool  # some groups or partitions could not be checked


def drill_row(drill: Drill, *, now: datetime) -> DrillRowView:
    """Create the view of a drill."""
    badge = DRILL_BADGES[drill.status]
    return DrillRowView(
        key=drill.pk,
        badge=badge,
        live=badge.family is Family.BUSY,
        canceling=badge.family is Family.BUSY and bool(drill.canceled_by),
        at=moment(drill.requested_at, now=now),
        by=drill.requested_by,
        start=_start(drill.start_spec),
        rto=numbers.duration(drill.rto_ms),
        of_batches=len(drill.report) > BATCH,
        problem=drill.problem,
        progress=_progress(drill) if badge.family is Family.BUSY else "",
        topics=len(drill.report),
        more_lines=max(0, len(drill.report) - LISTED),
        more_groups=max(0, len(drill.groups) - LISTED),
        groups=[_group_line(row) for row in sorted(drill.groups, key=_least_clamped)[:LISTED]],
        clamped_groups=len({row["group"] for row in drill.groups if row["clamped"]}),
        unsure=_is_unsure(drill),
        lines=[
            DrillLine(
                name=row["mirror_topic_name"],
                rto=numbers.duration(row["rto_ms"]),
                rpo=numbers.lag_time(row["rpo_ms"]),
                compared=numbers.count(row["records_compared"]),
                differences=numbers.count(row["differences"]),
                writable=gettext("yes") if row["writable"] else gettext("no"),
                problem=row["problem"] or row.get("note", ""),
            )
            for row in sorted(drill.report, key=_is_good)[:LISTED]
        ],
    )


def _start(spec: str) -> str:
    """Return which records the scratch copies have, in words."""
    return gettext(_STARTS[spec]) if spec in _STARTS else gettext("records since %(start)s") % {"start": spec}


def _is_unsure(drill: Drill) -> bool:
    """Return True if a copy was not failed over, so that its groups are unknown, or an end offset is unknown."""
    return any(row["rto_ms"] is None for row in drill.report) or any(row["unknown"] for row in drill.groups)


def _is_good(row: Mapping[str, Any]) -> bool:
    return DrillRow(**row).passed


def _least_clamped(row: Mapping[str, Any]) -> int:
    return -int(row["offsets_set_back"])


def _progress(drill: Drill) -> str:
    done, total = len(drill.report), max(len(drill.topics), len(drill.report))
    text = ngettext("%(done)s of %(count)s topic done", "%(done)s of %(count)s topics done", total)
    return text % {"done": numbers.count(done), "count": numbers.count(total)}


def _group_line(row: Mapping[str, Any]) -> GroupLine:
    listed = [
        f"{offset['partition']}: {numbers.count(offset['source_offset'])} → {numbers.count(offset['offset_after'])}"
        for offset in row["clamped_offsets"][:NAMED]
    ]
    more, unknown = row["clamped"] - len(listed), row["unknown"]
    if more:
        listed.append(gettext("%(count)s more") % {"count": more})
    if unknown:
        text = ngettext("%(count)s partition unknown", "%(count)s partitions unknown", unknown)
        listed.append(text % {"count": numbers.count(unknown)})
    return GroupLine(
        group=row["group"],
        topic=row["mirror_topic_name"],
        partitions=numbers.count(row["partitions"]),
        clamped=numbers.count(row["clamped"]),
        clamped_by=numbers.count(row["offsets_set_back"]),
        offsets=", ".join(listed) or gettext("same as source"),
    )


# --- the Failover page of a link --------------------------------------------------------------------------------------
#
# Figures, topics, groups that would be clamped, and the checklist for clients.


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
            hint=ngettext("%(count)s partition of unknown age", "%(count)s partitions of unknown age", risk.unknown_time_lags)
            % {"count": numbers.count(risk.unknown_time_lags)}
            if risk.unknown_time_lags
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
