"""The Failover reports tab of a link, and the JSON export of the reports."""

from __future__ import annotations

from dataclasses import asdict

from django.db.models import QuerySet
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from console.access import Permission, can
from console.actions.refusals import retry_refused_configs
from console.errors import ConsoleError
from console.models import StopReport
from console.pages.exports import MOST_ROWS
from console.pages.linkpages import crumbs, link_context
from console.pages.lists import page_from
from console.pages.mirrorpages import mirror_context
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.presenters.stopreports import report_row, report_tiles
from console.queries import links as link_queries
from console.queries import mirrors as mirror_queries
from console.queries import stopreports

_HIDDEN = ("id", "mirror")
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
        return _file(link.name, totals, reports)
    shown, pager = page_from(request, reports)
    groups = stopreports.groups_of(shown)
    rows = [report_row(report, now=now, groups=groups.get(report.pk, ())) for report in shown]
    whole = can(by, Permission.VIEW, link=link)
    context = {"reports": rows, "tiles": report_tiles(totals), "pager": pager, "sees_readiness": whole}
    return reply(request, "links/stopreports.html", link_context(link, by=by, now=now, tab="stops") | context)


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


def _file(link_name: str, totals: stopreports.StopTotals, found: QuerySet[StopReport]) -> JsonResponse:
    """Return all reports as JSON. ``stops`` is their total number."""
    reports = list(found[:MOST_ROWS])
    clamped = stopreports.clamped_of(reports)
    rows = [_as_json(report, clamped.get(report.pk)) for report in reports]
    content = {"link_name": link_name, "totals": asdict(totals), "stops": found.count(), "data": rows}
    return JsonResponse(content, json_dumps_params={"indent": 2})


def _as_json(report: StopReport, clamped: stopreports.Clamped | None) -> dict[str, object]:
    groups = [model_to_dict(row, fields=_CLAMPED) for row in clamped.rows] if clamped else []
    return {
        "mirror_topic_name": report.mirror.name,
        **model_to_dict(report, exclude=_HIDDEN),
        "groups_clamped": groups,
        "groups_clamped_total": clamped.total if clamped else 0,
    }
