"""Pages of failover drills, the migration gate, single records and failover reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from django.contrib import messages
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import Permission, can, check_permission
from console.errors import ConsoleError, InvalidInputError, NotFoundError
from console.links import queries as link_queries
from console.links.health_queries import readiness_with_health
from console.links.pages import crumbs, is_unchanged, link_context, seen_token
from console.links.presenters import readiness_view, source_name
from console.mirrors import queries as mirror_queries
from console.mirrors.actions import retry_refused_configs
from console.mirrors.operation_queries import count_topics, visible_operations
from console.mirrors.page_parts import mirror_head, show_refusal
from console.models import BulkOperation, BulkOperationTopic, ClusterLink, MirrorTopic, StopReport
from console.verification import queries as verification_queries
from console.verification.actions import compare_record, override_gate, start_gate
from console.verification.failover_actions import cancel_drill, start_drill
from console.verification.failover_presenters import ReportDocument, drill_row, report_document, report_row, report_tiles
from console.verification.record_presenters import comparison_view
from console.verification.report_pdf import to_pdf
from console.web.health import link_health_view
from console.web.lists import Pager, page_from
from console.web.pages import MOST_ROWS
from console.web.request_handling import Crumb, actor_of, done, go, page, problem_of, reply, status_of
from linkengine.domain.linkrules import EARLIEST, LATEST
from linkengine.domain.states import MirrorEvent

# --- failover drills and failover readiness of a link -----------------------------------------------------------------


PER_PAGE = 10  # reports are long, and the page is polled every second
_STARTS = (LATEST, EARLIEST)


@page("links")
@require_http_methods(["GET", "POST"])
def drills(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the drills (polled like the overview); start one."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    if request.method == "GET":
        return HttpResponse(status=204) if is_unchanged(request, link.sequence, now=now) else _show(request, link)
    start = request.POST.get("start", LATEST)
    try:
        start_drill(link=link, start_spec=start if start in _STARTS else LATEST, by=by, now=now)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        return _show(request, link, problem=problem_of(error), status=status_of(error))
    return done(request, reverse("pages:link-drills", args=link.url_args), "Failover drill started.")


@page("links")
@require_POST
def cancel(request: HttpRequest, cluster_id: str, link_name: str, drill_id: int) -> HttpResponse:
    """Cancel a drill that is in progress."""
    by = actor_of(request)
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    drill = link.drills.select_related("link__destination__environment").filter(pk=drill_id).first()
    if drill is None:
        raise NotFoundError(f"Drill {drill_id} does not exist.", code="UNKNOWN_DRILL")
    try:
        cancel_drill(drill=drill, by=by, now=timezone.now())
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        return _show(request, link, problem=problem_of(error), status=status_of(error))
    return done(request, reverse("pages:link-drills", args=link.url_args), f"Drill {drill_id} canceled. It is cleaned up now.")


@page("links")
@require_GET
def readiness(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the failover readiness. The other tabs of its group load it as a fragment."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    found, health = readiness_with_health(link=link, now=now)
    view = None if health is None else link_health_view(health, link)
    context = link_context(link, by=by, now=now, tab="readiness", last="Failover readiness", health=view)
    return reply(request, "links/readiness.html", context | {"readiness": readiness_view(found)})


def _show(request: HttpRequest, link: ClusterLink, *, status: int = 200, **more: object) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    shown, pager = page_from(request, link.drills.all(), size=PER_PAGE)
    context = {
        "drills": [drill_row(drill, now=now) for drill in shown],
        "pager": pager,
        "may_drill": can(by, Permission.OPERATE_MIRROR, link=link) and can(by, Permission.MANAGE_MIRROR, link=link),
        "seen": seen_token(link.sequence, now=now),
    }
    return reply(request, "links/drills.html", link_context(link, by=by, now=now, tab="drills") | context | more, status=status)


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
            partition=_number(request, "partition"),
            offset=_number(request, "offset") if request.GET.get("offset") else None,
            timestamp_ms=None if request.GET.get("offset") else _time_ms(request.GET.get("time", "")),
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
        "crumbs": [*crumbs(mirror.link, last=mirror.name)[:-1], Crumb(label=mirror.name, url=head.url), Crumb(label="Records")],
        "last_partition": max(0, mirror.num_partitions - 1),
        "partition": request.GET.get("partition", "0"),
        "offset": request.GET.get("offset", ""),
        "time": request.GET.get("time", ""),
    }
    return reply(request, "mirrors/records.html", context | more, status=status)


def _number(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise InvalidInputError(f"The {name} must be a whole number.", field=name)
    return int(text)


def _time_ms(text: str) -> int:
    """Return a time of the form in milliseconds; it is in UTC unless it has another offset."""
    try:
        found = datetime.fromisoformat(text.strip())
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        message = "The time must be an ISO 8601 date and time, such as 2026-11-25T20:00:00. It is in UTC."
        raise InvalidInputError(message, field="time") from None


# --- failover reports -------------------------------------------------------------------------------------------------
#
# The tab of a link, all reports (also of deleted links), and a single report as page, JSON and PDF. A report is that of a
# topic, or that of all topics of an operation.


PDF_ROWS = 500  # topics in a PDF, which is made within the request; the JSON has all
_HIDDEN = ("id", "mirror", "link", "destination", "drill", "mirror_name")
_CLAMPED = ("group", "partition", "source_offset", "before", "after", "message")


@page("links")
@require_GET
def stops(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """List the failover reports with records not copied, RPO and RTO. ``?format=json`` returns a file."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    reports = verification_queries.link_reports(link=link, by=by)
    totals = verification_queries.link_totals(link=link, by=by)
    if request.GET.get("format") == "json":
        content = {"link_name": link.name, "stops": reports.count()} | _content(list(reports[:MOST_ROWS]), totals)
        return _file(f"stop-reports-{link.name}.json", content)
    shown, pager = page_from(request, reports)
    groups = verification_queries.groups_of(shown)
    rows = [report_row(report, now=now, groups=groups.get(report.pk, ())) for report in shown]
    whole = can(by, Permission.VIEW, link=link)
    context = {"reports": rows, "tiles": report_tiles(totals), "pager": pager, "sees_readiness": whole}
    return reply(request, "links/stopreports.html", link_context(link, by=by, now=now, tab="stops") | context)


@page("links")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List all failover reports that the user may see, newest first, also those of deleted links."""
    by, now = actor_of(request), timezone.now()
    query = request.GET.get("q", "").strip()
    shown, pager = page_from(request, verification_queries.all_reports(by=by, search=query))
    groups = verification_queries.groups_of(shown)
    context = {
        "reports": [report_row(report, now=now, groups=groups.get(report.pk, ())) for report in shown],
        "pager": pager,
        "query": query,
        "crumbs": [Crumb(label="Cluster links", url=reverse("pages:links")), Crumb(label="Failover reports")],
    }
    return reply(request, "reports/list.html", context)


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
        accepted = count_topics([operation])[operation.pk][BulkOperationTopic.Status.ACCEPTED]
        unreported = max(0, accepted - total)
    if form == "json":
        found = list(reports[:MOST_ROWS])
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
        Crumb(label="Cluster links", url=reverse("pages:links")),
        Crumb(label="Failover reports", url=reverse("pages:reports")),
        Crumb(label=document.title),
    ]
    return reply(request, "reports/detail.html", {"document": document, "crumbs": crumbs_} | files | more)


def _no_report(request: HttpRequest, operation: BulkOperation | None, number: int) -> HttpResponse:
    """Return to an operation whose topics have not stopped yet; raise NotFoundError if there is none with reports."""
    if operation is None or operation.operation not in (MirrorEvent.FAILOVER, MirrorEvent.PROMOTE):
        raise NotFoundError(f"Operation {number} has no failover report.", code="UNKNOWN_REPORT")
    messages.info(request, "No topic of this operation has stopped yet, so there is no report yet.")
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
