"""Failover drills as the link's tab shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from console.presenters import numbers
from console.presenters.looks import Family, Look
from console.presenters.numbers import Moment, moment
from linkengine.domain.drills import BATCH, DrillRow
from linkengine.domain.startspec import EARLIEST, LATEST

if TYPE_CHECKING:
    from console.models import Drill

NAMED = 3  # partitions of a group that are written out
LISTED = 50  # topics and groups of a drill; REST has them all

_STARTS = {LATEST: "copies held what arrived from then on", EARLIEST: "copies held everything the source had"}


def _busy(code: str, label: str, meaning: str) -> Look:
    return Look(code=code, label=label, icon="arrow-repeat", family=Family.BUSY, meaning=meaning)


DRILL_LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "PREPARING": _busy("PREPARING", "Copying", "Scratch copies are made and catch up with the source."),
        "FAILING_OVER": _busy("FAILING_OVER", "Failing over", "The scratch copies are failed over."),
        "CHECKING": _busy("CHECKING", "Checking", "Every record is compared, then each partition is written to and read."),
        "CLEANING": _busy("CLEANING", "Cleaning up", "The scratch copies are deleted."),
        "PASSED": Look(
            code="PASSED",
            label="Passed",
            icon="check-circle-fill",
            family=Family.OK,
            meaning="A failover at that moment would have gone well.",
        ),
        "FAILED": Look(
            code="FAILED",
            label="Failed",
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning="A failover at that moment would have had a problem, or nothing could be compared.",
            next_step="Mend what the report names, then rehearse again.",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillLine:
    """What one scratch copy went through."""

    name: str
    rto: str
    rpo: str
    compared: str
    differences: str
    writable: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """Where a failover would leave a group on a topic."""

    group: str
    topic: str
    partitions: str
    clamped: str
    set_back: str
    offsets: str  # those that would change, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRowView:
    """One drill."""

    key: int
    look: Look
    live: bool
    at: Moment | None
    by: str
    start: str
    rto: str
    of_batches: bool  # the RTO is that of the slowest one
    problem: str
    progress: str  # how many topics have had their turn, while there are more
    topics: int
    lines: Sequence[DrillLine]  # those with a problem first
    more_lines: int
    groups: Sequence[GroupLine]  # those to be set back the furthest first
    more_groups: int
    clamped_groups: int
    unsure: bool  # some groups, or partitions of them, could not be looked at


def drill_row(drill: Drill, *, now: datetime) -> DrillRowView:
    """Present a drill."""
    look = DRILL_LOOKS[drill.status]
    return DrillRowView(
        key=drill.pk,
        look=look,
        live=look.family is Family.BUSY,
        at=moment(drill.requested_at, now=now),
        by=drill.requested_by,
        start=_STARTS.get(drill.start_spec, f"copies began at {drill.start_spec}"),
        rto=numbers.duration(drill.rto_ms),
        of_batches=len(drill.report) > BATCH,
        problem=drill.problem,
        progress=_progress(drill) if look.family is Family.BUSY else "",
        topics=len(drill.report),
        more_lines=max(0, len(drill.report) - LISTED),
        more_groups=max(0, len(drill.groups) - LISTED),
        groups=[_group_line(one) for one in sorted(drill.groups, key=_least_set_back)[:LISTED]],
        clamped_groups=len({one["group"] for one in drill.groups if one["clamped"]}),
        unsure=_is_unsure(drill),
        lines=[
            DrillLine(
                name=one["mirror_topic_name"],
                rto=numbers.duration(one["rto_ms"]),
                rpo=numbers.lag_time(one["rpo_ms"]),
                compared=numbers.count(one["records_compared"]),
                differences=numbers.count(one["differences"]),
                writable="yes" if one["writable"] else "no",
                problem=one["problem"] or one.get("note", ""),
            )
            for one in sorted(drill.report, key=_is_good)[:LISTED]
        ],
    )


def _is_unsure(drill: Drill) -> bool:
    """Tell whether a copy was not failed over, so that nobody knows of its groups, or an end is not known."""
    return any(one["rto_ms"] is None for one in drill.report) or any(one["unknown"] for one in drill.groups)


def _is_good(row: Mapping[str, Any]) -> bool:
    return DrillRow(**row).passed


def _least_set_back(row: Mapping[str, Any]) -> int:
    return -int(row["offsets_set_back"])


def _progress(drill: Drill) -> str:
    done, total = len(drill.report), max(len(drill.topics), len(drill.report))
    return f"{numbers.count(done)} of {numbers.plural(total, 'topic')} done"


def _group_line(row: Mapping[str, Any]) -> GroupLine:
    listed = [
        f"{one['partition']}: {numbers.count(one['source_offset'])} → {numbers.count(one['offset_after'])}"
        for one in row["clamped_offsets"][:NAMED]
    ]
    more = row["clamped"] - len(listed)
    unknown = f"{numbers.plural(row['unknown'], 'partition')} unknown" if row["unknown"] else ""
    words = [*listed, *([f"{more} more"] if more else []), *([unknown] if unknown else [])]
    return GroupLine(
        group=row["group"],
        topic=row["mirror_topic_name"],
        partitions=numbers.count(row["partitions"]),
        clamped=numbers.count(row["clamped"]),
        set_back=numbers.count(row["offsets_set_back"]),
        offsets=", ".join(words) or "as at the source",
    )
