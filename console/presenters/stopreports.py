"""Reports of promotions and failovers as pages show them. Unknown is said in words, never as 0."""

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

LATELY = timedelta(seconds=15)
_WORDS = {StopReason.PROMOTE: "Promoted", StopReason.FAILOVER: "Failed over"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPartition:
    """One partition at the fence."""

    partition: int
    mirrored_end: str
    source_end: str
    not_copied: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """One config that the destination refused at a stop."""

    name: str
    value: str
    reason: str
    resolved: Moment | None  # when a retry resolved it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One stop."""

    name: str
    url: str
    kind: str
    by: str
    requested: Moment | None
    writable: Moment | None
    rto: str
    rpo: str
    not_copied: str
    loses: bool  # something was left behind, or nobody knows, or nobody had seen the source for a while
    sentence: str
    partitions: Sequence[StopPartition]
    groups: Sequence[str]  # that were set back
    refused: Sequence[RefusedRow]
    retriable: bool  # a config is still refused


def report_row(report: StopReport, *, now: datetime, groups: Collection[str] = ()) -> ReportRow:
    """Present one report; ``groups`` are those that its stop set back."""
    return ReportRow(
        name=report.mirror.name,
        url=f"/links/{report.mirror.link.destination.cluster_id}/{report.mirror.link.name}/mirrors/{report.mirror.name}/",
        kind=_WORDS[StopReason(report.reason)],
        by=report.requested_by,
        requested=moment(report.requested_at, now=now),
        writable=moment(report.writable_at, now=now),
        rto=numbers.duration(report.rto_ms),
        rpo=numbers.lag_time(report.rpo_ms),
        not_copied=numbers.count(report.records_not_copied),
        loses=report.records_not_copied != 0 or not _was_seen_lately(report),
        sentence=_sentence(report),
        partitions=[
            StopPartition(
                partition=one["partition"],
                mirrored_end=numbers.count(one["mirrored_end"]),
                source_end=numbers.count(one["source_end"]),
                not_copied=numbers.count(one["not_copied"]),
            )
            for one in report.partitions
        ],
        groups=sorted(map(readable_name, groups)),
        refused=[_refused_row(row, now=now) for row in report.refused],
        retriable=any(row["resolved_at"] is None and row["name"] != FILLERS for row in report.refused),
    )


def _refused_row(row: Mapping[str, str | None], *, now: datetime) -> RefusedRow:
    resolved_at = row["resolved_at"]
    return RefusedRow(
        name="Empty records at the head" if row["name"] == FILLERS else row["name"] or "",
        value="" if row["name"] == FILLERS else row["value"] or "the cluster's default",
        reason=row["message"] or "",
        resolved=moment(datetime.fromisoformat(resolved_at), now=now) if resolved_at else None,
    )


def report_tiles(totals: StopTotals) -> list[Tile]:
    """Answer the figures of a link's stops."""
    return [
        Tile(label="Stopped mirrors", value=numbers.count(totals.mirrors), hint="by their newest stop"),
        Tile(
            label="Records not copied",
            value=numbers.count(totals.records_not_copied),
            hint="unknown where a source was not seen shortly before",
            alarm=bool(totals.mirrors) and totals.records_not_copied != 0,
        ),
        Tile(label="Worst RPO", value=numbers.lag_time(totals.worst_rpo_ms), hint="age of what a mirror was missing"),
        Tile(label="Worst RTO", value=numbers.duration(totals.worst_rto_ms), hint="from request to writable"),
    ]


def _was_seen_lately(report: StopReport) -> bool:
    """Tell whether the source was in sight when the stop was asked for: of one unseen for long, nothing missing is no news."""
    return report.source_seen_at is not None and report.requested_at - report.source_seen_at <= LATELY


def _promoted(report: StopReport) -> str:
    if report.records_not_copied is None:
        return (
            "Both sides were equal when the fence was begun. The source could not be asked afterwards, so whether it took in "
            "more is not known."
        )
    if not report.records_not_copied:
        return "Both sides were equal before the fence, and the source had nothing more after it: nothing was left behind."
    records = numbers.plural(report.records_not_copied, "record")
    return f"{records} reached the source after both sides were equal and are not here: somebody went on writing to it."


def _sentence(report: StopReport) -> str:
    if report.reason == StopReason.PROMOTE:
        return _promoted(report)
    if report.records_not_copied is None or report.source_seen_at is None:
        return _unknown(report)
    seen, held_back = f"when the source was last seen, {numbers.exact(report.source_seen_at)}", _held_back(report)
    if not report.records_not_copied:
        return f"The mirror held everything {seen}. What the source took in after that is not here."
    records = numbers.plural(report.records_not_copied, "record")
    if not held_back:
        return f"{records} were not copied {seen}. What the source took in after that is not here either."
    return (
        f"Up to {records} were not copied {seen}. Of these offsets {numbers.count(held_back)} stood behind an open "
        "transaction, where nothing can be copied. Aborted records and transaction markers among them are no loss. "
        "What the source took in after that is not here either."
    )


def _unknown(report: StopReport) -> str:
    """Say what is known of a loss that cannot be counted."""
    counts = [one.get("missing_when_seen") for one in report.partitions]
    least = sum(count for count in counts if count is not None)
    if report.source_seen_at is None or None in counts:
        sentence = "How many records were left behind is not known: the end of the source was never seen in every partition."
    else:
        age = numbers.duration(int((report.requested_at - report.source_seen_at).total_seconds() * 1000))
        sentence = (
            f"How many records were left behind is not known: the source was last seen {age} before the failover, "
            f"{numbers.exact(report.source_seen_at)}."
        )
    return f"{sentence} When last seen, at least {numbers.plural(least, 'record')} were missing." if least else sentence


def _held_back(report: StopReport) -> int:
    """Count the offsets behind open transactions; reports from before these were counted have none."""
    known = [one for one in report.partitions if None not in (one.get("stable_end"), one["source_end"], one["mirrored_end"])]
    return sum(max(0, one["source_end"] - max(one["stable_end"], one["mirrored_end"])) for one in known)
