"""Failover drills as the link's tab shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from console.presenters import numbers
from console.presenters.looks import Family, Look
from console.presenters.numbers import Moment, moment

if TYPE_CHECKING:
    from console.models import Drill


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
class DrillRowView:
    """One drill."""

    key: int
    look: Look
    live: bool
    at: Moment | None
    by: str
    start: str
    rto: str
    problem: str
    lines: Sequence[DrillLine]


def drill_row(drill: Drill, *, now: datetime) -> DrillRowView:
    """Present a drill."""
    look = DRILL_LOOKS[drill.status]
    return DrillRowView(
        key=drill.pk,
        look=look,
        live=look.family is Family.BUSY,
        at=moment(drill.requested_at, now=now),
        by=drill.requested_by,
        start=drill.start_spec,
        rto=numbers.duration(drill.rto_ms),
        problem=drill.problem,
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
            for one in drill.report
        ],
    )
