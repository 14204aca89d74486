"""Pages of the migration gate, single records, filled offsets and failover reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET, require_POST

from console.access import Permission, can, check_permission, visible_operations
from console.errors import ConsoleError, InvalidInputError, NotFoundError
from console.links import queries as link_queries
from console.links.pages import crumbs, head_poll, link_context
from console.links.presenters import source_name
from console.mirrors import queries as mirror_queries
from console.mirrors.actions import retry_refused_configs
from console.mirrors.page_parts import mirror_head, show_refusal
from console.models import BulkOperation, BulkOperationTopic, MirrorTopic, StopReport
from console.verification import queries as verification_queries
from console.verification.actions import compare_record, override_gate, start_gate
from console.verification.record_presenters import comparison_view
from console.verification.report_pdf import to_pdf
from console.verification.report_presenters import (
    REPORTED_OPERATIONS,
    ReportDocument,
    report_document,
    report_row,
    report_tiles,
)
from console.web import numbers
from console.web.badges import GAP_BADGES
from console.web.lists import Column, Filter, Listed, Listing, Pager, page_from, time_of
from console.web.polling import is_unchanged
from console.web.request_handling import Crumb, actor_of, done, go, page, problem_of, reply, status_of
from linkengine.domain.states import GapReason, MirrorEvent

# --- the migration gate -----------------------------------------------------------------------------------------------


@page("links")
@require_POST
def run(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Start the checks. The tab Migration gate shows their progress."""
    mirror = _mirror(request, cluster_id, link_name, mirror_name)
    return _do(request, mirror, lambda: start_gate(mirror=mirror, by=actor_of(request), now=timezone.now()))


@page("links")
@require_POST
def override(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Override the gate with a reason."""
    mirror, reason = _mirror(request, cluster_id, link_name, mirror_name), request.POST.get("reason", "")
    return _do(request, mirror, lambda: override_gate(mirror=mirror, reason=reason, by=actor_of(request), now=timezone.now()))


def _mirror(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> MirrorTopic:
    by = actor_of(request)
    return mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)


def _do(request: HttpRequest, mirror: MirrorTopic, action: Callable[[], object]) -> HttpResponse:
    try:
        action()
    except ConsoleError as error:
        return show_refusal(request, mirror, error)
    return done(request, f"{reverse('pages:mirror-migration-gate', args=mirror.url_args)}#gate")


# --- single records: the Records page of a mirror topic ---------------------------------------------------------------


_MOST_DIGITS = 19  # of an offset, which is an int64
_PARTITION = gettext_noop("The partition must be a whole number.")
_OFFSET = gettext_noop("The offset must be a whole number.")


@page("links")
@require_GET
def records(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Show the form; with a partition and an offset or a time, also the comparison."""
    by, now = actor_of(request), timezone.now()
    mirror = mirror_queries.get_mirror_only(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    check_permission(by, Permission.READ_RECORDS, mirror=mirror)
    if not (request.GET.get("offset") or request.GET.get("time")):
        return _show_record(request, mirror)
    try:
        found = compare_record(
            mirror=mirror,
            partition=_number(request, "partition", _PARTITION),
            offset=_number(request, "offset", _OFFSET) if request.GET.get("offset") else None,
            timestamp_ms=None if request.GET.get("offset") else _time_ms(request),
            by=by,
            now=now,
        )
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        status = 503 if error.kind == "unavailable" else status_of(error)
        return _show_record(request, mirror, problem=problem_of(error), status=status)
    view = comparison_view(found, source=source_name(mirror.link), destination=mirror.link.destination.name)
    return _show_record(request, mirror, comparison=view, partition=str(found.partition), offset=str(found.offset), time="")


def _show_record(request: HttpRequest, mirror: MirrorTopic, *, status: int = 200, **more: object) -> HttpResponse:
    head = mirror_head(mirror, now=timezone.now())
    context = {
        "mirror": head,
        "environment_name": mirror.link.destination.environment.name,
        "crumbs": [
            *crumbs(mirror.link, last=mirror.name)[:-1],
            Crumb(label=mirror.name, url=head.url),
            Crumb(label=gettext("Records")),
        ],
        "last_partition": max(0, mirror.num_partitions - 1),
        "partition": request.GET.get("partition", "0"),
        "offset": request.GET.get("offset", ""),
        "time": request.GET.get("time", ""),
        "zone": timezone.get_current_timezone_name(),
    }
    return reply(request, "mirrors/records.html", context | more, status=status)


def _number(request: HttpRequest, name: str, wrong: str) -> int:
    text = request.GET.get(name, "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise InvalidInputError(gettext(wrong), field=name)
    return int(text)


def _time_ms(request: HttpRequest) -> int:
    at = time_of(request, "time")
    if at is None:
        message = gettext("The time must be an ISO 8601 date and time, such as 2026-11-25T20:00:00.")
        raise InvalidInputError(message, field="time")
    return int(at.timestamp() * 1000)


# --- filled offsets of a mirror topic -----------------------------------------------------------------------------------


def _with_offset(text: str) -> Q:
    """Return the condition for ranges with an offset; none has an offset that is no number."""
    if not (text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS):
        return Q(pk__in=())
    return Q(start__lte=int(text), end__gt=int(text))


GAPS = Listing(
    noun=gettext_noop("range"),
    plural=gettext_noop("ranges"),
    columns=(
        Column(title=gettext_lazy("Partition"), key="partition", by=("partition", "start"), css="number"),
        Column(title=gettext_lazy("First offset"), key="start", by=("start", "partition"), css="number"),
        Column(title=gettext_lazy("Last offset"), key="end", by=("end", "partition"), css="number"),
        Column(title=gettext_lazy("Filled"), key="filled", by=("filled",), css="number", descends=True),
        Column(title=gettext_lazy("Reason"), key="reason", by=("reason",)),
        Column(title=gettext_lazy("Last change"), key="noted", by=("noted_at",), descends=True),
    ),
    default="partition",
    search=_with_offset,
    search_label=gettext_lazy("Ranges with the offset"),
    filters=(
        Filter(
            name="reason",
            label=gettext_lazy("Reason"),
            every=gettext_lazy("All reasons"),
            options=[(badge.code, gettext_lazy(badge.label)) for badge in GAP_BADGES.values()],
            by="reason",
        ),
    ),
    export={
        "partition": "partition",
        "start": "start",
        "end": "end",
        "offsets": "filled",
        "reason": "reason",
        "before_ms": "before_ms",
        "after_ms": "after_ms",
        "noted_at": "noted_at",
    },
)


@page("links")
@require_GET
def gaps(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """List the gap ledger of a mirror. In the file, ``end`` is the offset after the last."""
    by, now = actor_of(request), timezone.now()
    mirror = mirror_queries.get_mirror_only(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    listed = GAPS.read(request)
    found = listed.select(mirror.gaps.all())
    if listed.format:
        return listed.csv(f"gaps-{mirror.name}", found)
    head = mirror_head(mirror, now=now)
    rows = [
        {
            "partition": gap.partition,
            "first": numbers.count(gap.start),
            "last": numbers.count(gap.end - 1),
            "filled": numbers.count(gap.filled),
            "badge": GAP_BADGES[GapReason(gap.reason)],
            "noted": numbers.moment(gap.noted_at, now=now),
        }
        for gap in listed.page(found)
    ]
    context = {
        "list": listed,
        "rows": rows,
        "mirror": head,
        "environment_name": mirror.link.destination.environment.name,
        "crumbs": [
            *crumbs(mirror.link, last=mirror.name)[:-1],
            Crumb(label=mirror.name, url=head.url),
            Crumb(label=gettext("Filled offsets")),
        ],
    }
    return reply(request, "mirrors/gap_list.html", context)


# --- failover reports -------------------------------------------------------------------------------------------------
#
# The tab of a link, all reports (also of deleted links), and a single report as page, JSON and PDF. A report is that of a
# topic, or that of all topics of an operation.


PDF_ROWS = 500  # topics in a PDF, which is made within the request; the JSON has all
_HIDDEN = ("id", "mirror", "link", "destination", "drill", "mirror_name")
_CLAMPED = ("group", "partition", "source_offset", "before", "after", "message")


_MIRROR = Column(title=gettext_lazy("Mirror topic"), key="name", by=("mirror_name",))
_LINK = Column(title=gettext_lazy("Cluster link"), key="link", by=("link_name",))
_FIGURES = (
    Column(title=gettext_lazy("Operation"), key="operation", by=("reason",)),
    Column(title=gettext_lazy("Writable"), key="writable", by=("writable_at",), descends=True),
    Column(
        title=gettext_lazy("Not copied"),
        key="not-copied",
        by=("records_not_copied",),
        css="number",
        descends=True,
        optional=True,
    ),
    Column(title="RPO", key="rpo", by=("rpo_ms",), css="number", descends=True, optional=True),
    Column(title="RTO", key="rto", by=("rto_ms",), css="number", descends=True),
)
_BY = Column(title=gettext_lazy("By"), key="by", by=("requested_by",))
_OPERATION = Filter(
    name="operation",
    label=gettext_lazy("Operation"),
    every=gettext_lazy("All operations"),
    options=[(reason.value, label) for reason, label in REPORTED_OPERATIONS.items()],
    by="reason",
)
REPORTS = Listing(
    noun=gettext_noop("report"),
    plural=gettext_noop("reports"),
    columns=(_MIRROR, _LINK, *_FIGURES, _BY),
    default="-writable",
    search=("mirror_name", "link_name", "requested_by"),
    search_label=gettext_lazy("Mirror topic, link or user"),
    filters=(_OPERATION,),
    time="writable_at",
    export={
        "report": "pk",
        "mirror_topic": "mirror_name",
        "source_topic": "source_topic",
        "link": "link_name",
        "source_cluster_id": "source_cluster_id",
        "destination_cluster_id": "destination_cluster_id",
        "operation": "reason",
        "requested_by": "requested_by",
        "requested_at": "requested_at",
        "approved_by": "approved_by",
        "request_reason": "request_reason",
        "writable_at": "writable_at",
        "records_not_copied": "records_not_copied",
        "source_seen_at": "source_seen_at",
        "rpo_ms": "rpo_ms",
        "rto_ms": "rto_ms",
    },
    has_json=True,
)
LINK_REPORTS = replace(
    REPORTS,
    columns=(_MIRROR, *_FIGURES, Column(title=gettext_lazy("Clamped groups")), _BY),
    search=("mirror_name", "requested_by"),
    search_label=gettext_lazy("Mirror topic or user"),
)


@page("links")
@require_GET
def stops(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """List the failover reports of a link with records not copied, RPO and RTO. Polled like the overview."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    if polled := head_poll(request, link, by=by, now=now, tab="stops"):
        return polled
    if is_unchanged(request, link_queries.version_of(link), now=now):
        return HttpResponse(status=204)
    reports = verification_queries.link_reports(link=link, by=by)
    listed = LINK_REPORTS.read(request)
    found = listed.select(reports)
    if listed.format:
        return _list_file(listed, found, name=f"stop-reports-{link.name}", link_name=link.name)
    shown = listed.page(found)
    groups = verification_queries.groups_of(shown)
    context = {
        "list": listed,
        "reports": [report_row(report, now=now, groups=groups.get(report.pk, ())) for report in shown],
        "tiles": report_tiles(verification_queries.link_totals(link=link, by=by)),
        "sees_readiness": can(by, Permission.VIEW, link=link),
    }
    return reply(request, "links/failover_reports.html", link_context(link, by=by, now=now, tab="stops") | context)


@page("links")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List all failover reports that the user may see, also those of deleted links."""
    by, now = actor_of(request), timezone.now()
    listed = REPORTS.read(request)
    found = listed.select(verification_queries.all_reports(by=by))
    if listed.format:
        return _list_file(listed, found, name="failover-reports")
    shown = listed.page(found)
    groups = verification_queries.groups_of(shown)
    context = {
        "list": listed,
        "reports": [report_row(report, now=now, groups=groups.get(report.pk, ())) for report in shown],
        "crumbs": [Crumb(label=gettext("Cluster links"), url=reverse("pages:links")), Crumb(label=gettext("Failover reports"))],
    }
    return reply(request, "reports/list.html", context)


def _list_file(listed: Listed, found: QuerySet[StopReport], *, name: str, **about: object) -> HttpResponse:
    """Return the reports of a list as CSV, or as JSON with partitions, clamped groups and totals."""
    if listed.format == "csv":
        return listed.csv(name, found.defer("partitions", "refused", "checklist"))
    reports = list(found)
    totals = verification_queries.total_of(sorted(reports, key=lambda row: (row.writable_at, row.pk), reverse=True))
    return _file(f"{name}.json", about | {"stops": len(reports)} | _content(reports, totals))


@page("links")
@require_GET
def report(request: HttpRequest, report_id: int, form: str = "page") -> HttpResponse:
    """Show the report of a topic; ``form`` is page, json or pdf."""
    found = [verification_queries.get_report(report_id=report_id, by=actor_of(request))]
    totals = verification_queries.total_of(found)
    if form == "json":
        return _file(f"failover-report-{report_id}.json", _content(found, totals))
    document = report_document(
        found, total=1, totals=totals, clamped=verification_queries.clamped_of(found), now=timezone.now()
    )
    return _pdf(document) if form == "pdf" else _page(request, document, name="report", number=report_id)


@page("links")
@require_GET
def operation_report(request: HttpRequest, operation_id: int, form: str = "page") -> HttpResponse:
    """Show the report of all topics of an operation that have stopped; ``form`` is page, json or pdf."""
    by, now = actor_of(request), timezone.now()
    reports = verification_queries.operation_reports(number=operation_id, by=by)
    totals = verification_queries.totals_of(reports)
    operation = visible_operations(by).filter(pk=operation_id).first()
    if not totals.mirrors:
        return _no_report(request, operation, operation_id)
    total = totals.mirrors  # a topic is in an operation once
    unreported: int | None = None
    if operation is not None:
        accepted = operation.topics.filter(status=BulkOperationTopic.Status.ACCEPTED).count()
        unreported = max(0, accepted - total)
    if form == "json":
        found = list(reports)
        content = {"operation_id": operation_id, "topics_without_report": unreported, "stops": total}
        return _file(f"failover-operation-{operation_id}.json", content | _content(found, totals))
    pager: Pager | None = None
    if form == "pdf":
        found = list(reports[:PDF_ROWS])
    else:
        shown, pager = page_from(request, reports)
        found = list(shown)
    document = report_document(
        found,
        number=operation_id,
        total=total,
        totals=totals,
        clamped=verification_queries.clamped_of(found),
        unreported=unreported,
        now=now,
    )
    if form == "pdf":
        return _pdf(document, more=total - len(found))
    return _page(request, document, name="operation-report", number=operation_id, pager=pager, operation=operation)


@page("links")
@require_POST
def retry_refused(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Retry the configs that the destination rejected at the newest promotion or failover of a mirror."""
    by = actor_of(request)
    mirror = mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    try:
        retry_refused_configs(mirror=mirror, by=by, now=timezone.now())
    except ConsoleError as error:
        return show_refusal(request, mirror, error)
    return done(request, f"{reverse('pages:mirror-reports', args=mirror.url_args)}#stop-reports")


def _page(request: HttpRequest, document: ReportDocument, *, name: str, number: int, **more: object) -> HttpResponse:
    """Show a report. ``name`` and ``number`` are those of its URL; the files have the same number."""
    files = {f"{form}_url": reverse(f"pages:{name}-{form}", args=(number,)) for form in ("json", "pdf")}
    crumbs_ = [
        Crumb(label=gettext("Cluster links"), url=reverse("pages:links")),
        Crumb(label=gettext("Failover reports"), url=reverse("pages:reports")),
        Crumb(label=document.title),
    ]
    return reply(request, "reports/report.html", {"document": document, "crumbs": crumbs_} | files | more)


def _no_report(request: HttpRequest, operation: BulkOperation | None, number: int) -> HttpResponse:
    """Return to an operation whose topics have not stopped yet; raise NotFoundError if there is none with reports."""
    if operation is None or operation.operation not in (MirrorEvent.FAILOVER, MirrorEvent.PROMOTE):
        raise NotFoundError(gettext("Operation %(number)s has no failover report.") % {"number": number}, code="UNKNOWN_REPORT")
    messages.info(request, gettext("No topic of this operation has stopped yet, so there is no report yet."))
    return go(request, operation.get_absolute_url())


def _pdf(document: ReportDocument, *, more: int = 0) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{document.file_name}.pdf"'}
    return HttpResponse(to_pdf(document, more=more), content_type="application/pdf", headers=headers)


def _file(name: str, content: dict[str, object]) -> JsonResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return JsonResponse(content, json_dumps_params={"indent": 2}, headers=headers)


def _content(reports: Sequence[StopReport], totals: verification_queries.StopTotals) -> dict[str, object]:
    clamped = verification_queries.clamped_of(reports)
    return {"totals": asdict(totals), "data": [_as_json(report, clamped.get(report.pk)) for report in reports]}


def _as_json(report: StopReport, clamped: verification_queries.Clamped | None) -> dict[str, object]:
    groups = [model_to_dict(row, fields=_CLAMPED) for row in clamped.rows] if clamped else []
    return {
        "mirror_topic_name": report.mirror_name,
        **model_to_dict(report, exclude=_HIDDEN),
        "groups_clamped": groups,
        "groups_clamped_total": clamped.total if clamped else 0,
    }
