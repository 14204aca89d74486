"""View models of failover drills. Unknown is stated as such, never as 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext, gettext_noop, ngettext

from console.web import numbers
from console.web.badges import Badge, Family
from console.web.numbers import Moment, moment
from linkengine.domain.failover import BATCH, DrillRow
from linkengine.domain.linkrules import EARLIEST, LATEST

if TYPE_CHECKING:
    from console.models import Drill


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
