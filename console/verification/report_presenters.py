"""View models of failover reports. Unknown is stated as such, never as 0."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.utils.translation import gettext, gettext_lazy, gettext_noop, ngettext

from console.links.group_presenters import readable_name
from console.links.presenters import Tile, mirror_topics
from console.web import numbers
from console.web.numbers import Moment, moment, readable_config
from linkengine.domain.mirrorjobs import FILLERS
from linkengine.domain.states import StopReason

if TYPE_CHECKING:
    from console.models import ClampedOffset, StopReport
    from console.verification.queries import Clamped, StopTotals


# --- failover reports -------------------------------------------------------------------------------------------------


RECENT = timedelta(seconds=15)  # between the last measurement of the source and the request
_TITLES = {
    StopReason.PROMOTE: gettext_noop("Promotion of %(subject)s"),
    StopReason.FAILOVER: gettext_noop("Failover of %(subject)s"),
}
REPORTED_OPERATIONS = {StopReason.PROMOTE: gettext_lazy("Promoted"), StopReason.FAILOVER: gettext_lazy("Failed over")}


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
    url: str  # of the mirror topic, "" if it was deleted
    page_url: str  # of the report, "" if it is not stored
    link_name: str
    link_url: str  # "" if the link was deleted
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
        name=report.mirror_name,
        url=report.mirror.get_absolute_url() if report.mirror else "",
        page_url=report.get_absolute_url() if report.pk else "",
        link_name=report.link_name,
        link_url=report.link.get_absolute_url() if report.link else "",
        kind=str(REPORTED_OPERATIONS[StopReason(report.reason)]),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampedLine:
    """A consumer offset that a stop clamped to the end of the mirror."""

    topic: str
    group: str
    partition: int
    source: str
    before: str
    after: str
    problem: str  # why it could not be set, "" if it was


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """The report of one stop, or of all stops that an operation requested, as a page and as a PDF have it."""

    title: str
    file_name: str  # without extension
    facts: Sequence[tuple[str, str]]  # (label, text)
    notes: Sequence[str]  # what is unknown or missing
    tiles: Sequence[Tile]
    checklist: Sequence[tuple[str, bool]]  # (sentence, confirmed)
    rows: Sequence[ReportRow]
    clamped: Sequence[ClampedLine]
    more_clamped: int  # not listed
    created: str


def report_document(
    reports: Sequence[StopReport],
    *,
    number: int | None = None,
    total: int,
    totals: StopTotals,
    clamped: Mapping[int, Clamped],
    unreported: int | None = 0,
    now: datetime,
) -> ReportDocument:
    """Create the document of a report, or of the reports of operation ``number``.

    ``reports`` are those that are listed, at least one, of ``total``. ``unreported`` is the number of accepted topics without
    a report, None if it is unknown: the operation was deleted, or the user may not see all of it.
    """
    first = reports[0]
    groups = {key: {row.group for row in found.rows} for key, found in clamped.items()}
    rows = [report_row(report, now=now, groups=groups.get(report.pk, ())) for report in reports]
    listed = [_clamped_line(report, row) for report in reports for row in _rows_of(clamped, report)]
    subject = first.mirror_name if number is None else mirror_topics(total)
    return ReportDocument(
        title=gettext(_TITLES[StopReason(first.reason)]) % {"subject": subject},
        file_name=f"failover-report-{first.pk}" if number is None else f"failover-operation-{number}",
        facts=_facts_of(first, number=number),
        notes=_notes_of(rows, totals, number=number, unreported=unreported),
        tiles=report_tiles(totals),
        checklist=[(str(item["text"]), bool(item["confirmed"])) for item in first.checklist],
        rows=rows,
        clamped=listed,
        more_clamped=sum(found.total for found in clamped.values()) - len(listed),
        created=numbers.exact(now),
    )


def _rows_of(clamped: Mapping[int, Clamped], report: StopReport) -> Sequence[ClampedOffset]:
    return clamped[report.pk].rows if report.pk in clamped else ()


def _clamped_line(report: StopReport, row: ClampedOffset) -> ClampedLine:
    return ClampedLine(
        topic=report.mirror_name,
        group=readable_name(row.group),
        partition=row.partition,
        source=numbers.count(row.source_offset),
        before=numbers.count(row.before),
        after=numbers.count(row.after),
        problem=row.message,
    )


def _facts_of(report: StopReport, *, number: int | None) -> list[tuple[str, str]]:
    """Return the facts that all reports of a document share, and those of a single topic."""
    name = report.link_name if report.link else gettext("%(name)s (deleted)") % {"name": report.link_name}
    facts = [
        (gettext("Cluster link"), name),
        (gettext("Source cluster"), report.source_cluster_id or gettext("unknown")),
        (gettext("Destination cluster"), report.destination_cluster_id or gettext("unknown")),
        (gettext("Requested by"), report.requested_by),
        (gettext("Requested"), numbers.exact(report.requested_at)),
        (gettext("Reason"), report.request_reason or gettext("none given")),
    ]
    if report.approved_by:
        facts.append((gettext("Approved by"), report.approved_by))
    if report.operation_number is not None:
        facts.insert(0, (gettext("Operation"), str(report.operation_number)))
    if number is None:
        facts.append((gettext("Source topic"), report.source_topic))
        facts.append((gettext("Writable"), numbers.exact(report.writable_at)))
    return facts


def _notes_of(rows: Sequence[ReportRow], totals: StopTotals, *, number: int | None, unreported: int | None) -> list[str]:
    notes = [rows[0].sentence] if number is None else []
    if number is not None and totals.records_not_copied is None:
        notes.append(
            gettext("The number of records that were not copied is unknown for at least one topic, so the total is unknown.")
        )
    if unreported:
        note = ngettext(
            "The stop of %(count)s topic of this operation has not ended, so there is no report of it yet.",
            "The stop of %(count)s topics of this operation has not ended, so there is no report of it yet.",
            unreported,
        )
        notes.append(note % {"count": numbers.count(unreported)})
    if unreported is None:
        notes.append(
            gettext("Topics that were refused, that have not stopped yet, or that you may not see are not known here.")
        )
    return notes


def _refused_row(row: Mapping[str, str | None], *, now: datetime) -> RefusedRow:
    name, value, resolved_at = row["name"] or "", row["value"] or "", row["resolved_at"]
    return RefusedRow(
        name=gettext("Empty records before the start") if name == FILLERS else name,
        value="" if name == FILLERS else readable_config(name, value) or gettext("cluster default"),
        reason=row["message"] or "",
        resolved=moment(datetime.fromisoformat(resolved_at), now=now) if resolved_at else None,
    )


def report_tiles(totals: StopTotals) -> list[Tile]:
    """Return the tiles with the totals of a link's failover reports."""
    return [
        Tile(label=gettext("Stopped mirrors"), value=numbers.count(totals.mirrors), hint=gettext("newest report of each")),
        Tile(
            label=gettext("Records not copied"),
            value=numbers.count(totals.records_not_copied),
            hint=gettext("unknown if a source was not measured recently"),
            alarm=bool(totals.mirrors) and totals.records_not_copied != 0,
        ),
        Tile(label=gettext("Worst RPO"), value=numbers.lag_time(totals.worst_rpo_ms), hint=gettext("data loss window")),
        Tile(
            label=gettext("Worst RTO"),
            value=numbers.duration(totals.worst_rto_ms),
            hint=gettext("from request to writable"),
        ),
    ]


def _was_seen_recently(report: StopReport) -> bool:
    """Return True if the source was measured shortly before the request; otherwise "nothing missing" may be out of date."""
    return report.source_seen_at is not None and report.requested_at - report.source_seen_at <= RECENT


def _promoted(report: StopReport) -> str:
    if report.records_not_copied is None:
        return gettext(
            "Source and mirror were in sync when the fence was started. The source could not be read afterwards, so it is "
            "unknown whether it received more records."
        )
    if not report.records_not_copied:
        return gettext("Source and mirror were in sync before the fence, and the source had no records after it: no loss.")
    text = ngettext(
        "%(count)s record reached the source after it was in sync with the mirror and are not here: "
        "producers still wrote to it.",
        "%(count)s records reached the source after it was in sync with the mirror and are not here: "
        "producers still wrote to it.",
        report.records_not_copied,
    )
    return text % {"count": numbers.count(report.records_not_copied)}


def _sentence(report: StopReport) -> str:
    if report.reason == StopReason.PROMOTE:
        return _promoted(report)
    if report.records_not_copied is None or report.source_seen_at is None:
        return _unknown(report)
    missing, seen, held_back = report.records_not_copied, numbers.exact(report.source_seen_at), _held_back(report)
    if not missing:
        text = gettext(
            "All records were copied as of the last measurement of the source, %(seen)s. "
            "Records that the source received later are not here."
        )
        return text % {"seen": seen}
    if not held_back:
        text = ngettext(
            "%(count)s record were not copied as of the last measurement of the source, %(seen)s. "
            "Records that the source received later are not here either.",
            "%(count)s records were not copied as of the last measurement of the source, %(seen)s. "
            "Records that the source received later are not here either.",
            missing,
        )
        return text % {"count": numbers.count(missing), "seen": seen}
    text = ngettext(
        "Up to %(count)s record were not copied as of the last measurement of the source, %(seen)s. "
        "%(held_back)s of these offsets were behind an open transaction and could not be copied. "
        "Aborted records and transaction markers among them are not losses. "
        "Records that the source received later are not here either.",
        "Up to %(count)s records were not copied as of the last measurement of the source, %(seen)s. "
        "%(held_back)s of these offsets were behind an open transaction and could not be copied. "
        "Aborted records and transaction markers among them are not losses. "
        "Records that the source received later are not here either.",
        missing,
    )
    return text % {"count": numbers.count(missing), "seen": seen, "held_back": numbers.count(held_back)}


def _unknown(report: StopReport) -> str:
    """Return what is known of a loss that cannot be counted."""
    counts = [partition.get("missing_when_seen") for partition in report.partitions]
    least = sum(count for count in counts if count is not None)
    if report.source_seen_at is None or None in counts:
        sentence = gettext("How many records were left behind is not known: the source end was never seen in all partitions.")
    else:
        age = numbers.duration(int((report.requested_at - report.source_seen_at).total_seconds() * 1000))
        sentence = gettext(
            "How many records were left behind is not known: the source was last seen %(age)s before the failover, %(seen)s."
        ) % {"age": age, "seen": numbers.exact(report.source_seen_at)}
    if not least:
        return sentence
    text = ngettext(
        "When last seen, at least %(count)s record were missing.",
        "When last seen, at least %(count)s records were missing.",
        least,
    )
    return f"{sentence} {text % {'count': numbers.count(least)}}"


def _held_back(report: StopReport) -> int:
    """Count the offsets behind open transactions. Old reports without ``stable_end`` have none."""
    known = [row for row in report.partitions if None not in (row.get("stable_end"), row["source_end"], row["mirrored_end"])]
    return sum(max(0, row["source_end"] - max(row["stable_end"], row["mirrored_end"])) for row in known)
