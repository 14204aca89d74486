"""View models of failover reports (of promotions and failovers). Unknown is stated as such, never as 0."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from console.presenters import numbers
from console.presenters.groups import readable_name
from console.presenters.links import Tile
from console.presenters.numbers import Moment, moment
from linkengine.domain.mirrorjobs import FILLERS
from linkengine.domain.states import StopReason

if TYPE_CHECKING:
    from console.models import StopReport
    from console.queries.stopreports import StopTotals

RECENT = timedelta(seconds=15)  # between the last measurement of the source and the request
_OPERATIONS = {StopReason.PROMOTE: "Promoted", StopReason.FAILOVER: "Failed over"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPartition:
    """The offsets of a partition when mirroring stopped."""

    partition: int
    mirrored_end: str
    source_end: str
    not_copied: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A config that the destination rejected when mirroring stopped."""

    name: str
    value: str
    reason: str
    resolved: Moment | None  # when a retry succeeded


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """A failover report."""

    name: str
    url: str
    kind: str
    by: str
    requested: Moment | None
    writable: Moment | None
    rto: str
    rpo: str
    not_copied: str
    loses: bool  # records were not copied, or it is unknown, or the last measurement of the source was not recent
    sentence: str
    partitions: Sequence[StopPartition]
    groups: Sequence[str]  # groups whose offsets were clamped
    refused: Sequence[RefusedRow]
    retriable: bool  # a config is still rejected


def report_row(report: StopReport, *, now: datetime, groups: Collection[str] = ()) -> ReportRow:
    """Create the row of a report. ``groups`` are those whose offsets were clamped."""
    return ReportRow(
        name=report.mirror.name,
        url=report.mirror.get_absolute_url(),
        kind=_OPERATIONS[StopReason(report.reason)],
        by=report.requested_by,
        requested=moment(report.requested_at, now=now),
        writable=moment(report.writable_at, now=now),
        rto=numbers.duration(report.rto_ms),
        rpo=numbers.lag_time(report.rpo_ms),
        not_copied=numbers.count(report.records_not_copied),
        loses=report.records_not_copied != 0 or not _was_seen_recently(report),
        sentence=_sentence(report),
        partitions=[
            StopPartition(
                partition=partition["partition"],
                mirrored_end=numbers.count(partition["mirrored_end"]),
                source_end=numbers.count(partition["source_end"]),
                not_copied=numbers.count(partition["not_copied"]),
            )
            for partition in report.partitions
        ],
        groups=sorted(map(readable_name, groups)),
        refused=[_refused_row(row, now=now) for row in report.refused],
        retriable=any(row["resolved_at"] is None and row["name"] != FILLERS for row in report.refused),
    )


def _refused_row(row: Mapping[str, str | None], *, now: datetime) -> RefusedRow:
    resolved_at = row["resolved_at"]
    return RefusedRow(
        name="Empty records before the start" if row["name"] == FILLERS else row["name"] or "",
        value="" if row["name"] == FILLERS else row["value"] or "cluster default",
        reason=row["message"] or "",
        resolved=moment(datetime.fromisoformat(resolved_at), now=now) if resolved_at else None,
    )


def report_tiles(totals: StopTotals) -> list[Tile]:
    """Return the tiles with the totals of a link's failover reports."""
    return [
        Tile(label="Stopped mirrors", value=numbers.count(totals.mirrors), hint="newest report of each"),
        Tile(
            label="Records not copied",
            value=numbers.count(totals.records_not_copied),
            hint="unknown if a source was not measured recently",
            alarm=bool(totals.mirrors) and totals.records_not_copied != 0,
        ),
        Tile(label="Worst RPO", value=numbers.lag_time(totals.worst_rpo_ms), hint="data loss window"),
        Tile(label="Worst RTO", value=numbers.duration(totals.worst_rto_ms), hint="from request to writable"),
    ]


def _was_seen_recently(report: StopReport) -> bool:
    """Return True if the source was measured shortly before the request; otherwise "nothing missing" may be out of date."""
    return report.source_seen_at is not None and report.requested_at - report.source_seen_at <= RECENT


def _promoted(report: StopReport) -> str:
    if report.records_not_copied is None:
        return (
            "Source and mirror were in sync when the fence was started. The source could not be read afterwards, so it is "
            "unknown whether it received more records."
        )
    if not report.records_not_copied:
        return "Source and mirror were in sync before the fence, and the source had no more records after it: no loss."
    records = numbers.plural(report.records_not_copied, "record")
    return f"{records} reached the source after it was in sync with the mirror and are not here: producers still wrote to it."


def _sentence(report: StopReport) -> str:
    if report.reason == StopReason.PROMOTE:
        return _promoted(report)
    if report.records_not_copied is None or report.source_seen_at is None:
        return _unknown(report)
    seen, held_back = f"as of the last measurement of the source, {numbers.exact(report.source_seen_at)}", _held_back(report)
    if not report.records_not_copied:
        return f"All records were copied {seen}. Records that the source received later are not here."
    records = numbers.plural(report.records_not_copied, "record")
    if not held_back:
        return f"{records} were not copied {seen}. Records that the source received later are not here either."
    return (
        f"Up to {records} were not copied {seen}. {numbers.count(held_back)} of these offsets were behind an open "
        "transaction and could not be copied. Aborted records and transaction markers among them are not losses. "
        "Records that the source received later are not here either."
    )


def _unknown(report: StopReport) -> str:
    """Return what is known of a loss that cannot be counted."""
    counts = [partition.get("missing_when_seen") for partition in report.partitions]
    least = sum(count for count in counts if count is not None)
    if report.source_seen_at is None or None in counts:
        sentence = "How many records were left behind is not known: the source end was never seen in all partitions."
    else:
        age = numbers.duration(int((report.requested_at - report.source_seen_at).total_seconds() * 1000))
        sentence = (
            f"How many records were left behind is not known: the source was last seen {age} before the failover, "
            f"{numbers.exact(report.source_seen_at)}."
        )
    return f"{sentence} When last seen, at least {numbers.plural(least, 'record')} were missing." if least else sentence


def _held_back(report: StopReport) -> int:
    """Count the offsets behind open transactions. Old reports without ``stable_end`` have none."""
    known = [row for row in report.partitions if None not in (row.get("stable_end"), row["source_end"], row["mirrored_end"])]
    return sum(max(0, row["source_end"] - max(row["stable_end"], row["mirrored_end"])) for row in known)
