"""Failover reports: the tab of a link, all reports (also of deleted links), and one report as page, JSON and PDF.

One report is that of a topic, or that of all topics of an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from django.contrib import messages
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from console.access import Permission, can
from console.actions.refusals import retry_refused_configs
from console.errors import ConsoleError, NotFoundError
from console.models import BulkOperation, BulkOperationTopic, StopReport
from console.pages.exports import MOST_ROWS
from console.pages.linkpages import crumbs, link_context
from console.pages.lists import Pager, page_from
from console.pages.mirrorpages import mirror_context
from console.pages.request_handling import actor_of, done, go, page, problem_of, reply, status_of
from console.pages.shell import Crumb
from console.presenters.reportpdf import to_pdf
from console.presenters.stopreports import ReportDocument, report_document, report_row, report_tiles
from console.queries import links as link_queries
from console.queries import mirrors as mirror_queries
from console.queries import stopreports
from console.queries.bulkoperations import count_topics, visible_operations
from linkengine.domain.states import MirrorEvent

PDF_ROWS = 500  # topics in a PDF, which is made within the request; the JSON has all
_HIDDEN = ("id", "mirror", "link", "destination", "drill", "mirror_name")
_CLAMPED = ("group", "partition", "source_offset", "before", "after", "message")


@page("links")
@require_GET
def stops(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """List the failover reports with records not copied, RPO and RTO. ``?format=json`` returns a file."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    reports = stopreports.link_reports(link=link, by=by)
    totals = stopreports.link_totals(link=link, by=by)
    if request.GET.get("format") == "json":
        content = {"link_name": link.name, "stops": reports.count()} | _content(list(reports[:MOST_ROWS]), totals)
        return _file(f"stop-reports-{link.name}.json", content)
    shown, pager = page_from(request, reports)
    groups = stopreports.groups_of(shown)
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
    shown, pager = page_from(request, stopreports.all_reports(by=by, search=query))
    groups = stopreports.groups_of(shown)
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
    found = [stopreports.get_report(report_id=report_id, by=actor_of(request))]
    totals = stopreports.total_of(found)
    if form == "json":
        return _file(f"failover-report-{report_id}.json", _content(found, totals))
    document = report_document(found, total=1, totals=totals, clamped=stopreports.clamped_of(found), now=timezone.now())
    return _pdf(document) if form == "pdf" else _page(request, document, name="report", number=report_id)


@page("links")
@require_GET
def operation_report(request: HttpRequest, operation_id: int, form: str = "page") -> HttpResponse:
    """Show the report of all topics of an operation that have stopped; ``form`` is page, json or pdf."""
    by, now = actor_of(request), timezone.now()
    reports = stopreports.operation_reports(number=operation_id, by=by)
    totals = stopreports.totals_of(reports)
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
        clamped=stopreports.clamped_of(found),
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
        if error.kind == "denied":
            raise
        context = mirror_context(mirror, by=by, now=timezone.now())
        problem = {"problem": problem_of(error), "crumbs": crumbs(mirror.link)}
        return reply(request, "mirrors/refused.html", context | problem, status=status_of(error))
    return done(request, f"{mirror.get_absolute_url()}#stop-reports")


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


def _content(reports: Sequence[StopReport], totals: stopreports.StopTotals) -> dict[str, object]:
    clamped = stopreports.clamped_of(reports)
    return {"totals": asdict(totals), "data": [_as_json(report, clamped.get(report.pk)) for report in reports]}


def _as_json(report: StopReport, clamped: stopreports.Clamped | None) -> dict[str, object]:
    groups = [model_to_dict(row, fields=_CLAMPED) for row in clamped.rows] if clamped else []
    return {
        "mirror_topic_name": report.mirror_name,
        **model_to_dict(report, exclude=_HIDDEN),
        "groups_clamped": groups,
        "groups_clamped_total": clamped.total if clamped else 0,
    }
