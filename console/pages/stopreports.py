"""What the promotions and failovers of a link cost: a tab of the link, and the same as a file."""

from __future__ import annotations

from dataclasses import asdict

from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.models import StopReport
from console.pages.doors import actor_of, page, reply
from console.pages.linkpages import link_context
from console.presenters.stopreports import report_row, report_tiles
from console.queries import links as link_queries
from console.queries import stopreports

_HIDDEN = ("id", "mirror")
_CLAMPED = ("group", "partition", "source_offset", "before", "after", "message")


@page("links")
@require_GET
def stops(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """List what was stopped, with records left behind, RPO and RTO; ``?format=json`` answers a file."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    reports = stopreports.list_link_reports(link=link, by=by)
    totals = stopreports.link_totals(link=link, by=by)
    if request.GET.get("format") == "json":
        clamped = stopreports.clamped_of(reports)
        rows = [_as_json(one, clamped.get(one.pk)) for one in reports]
        return JsonResponse({"link_name": link.name, "totals": asdict(totals), "data": rows}, json_dumps_params={"indent": 2})
    groups = stopreports.groups_of(reports)
    shown = [report_row(one, now=now, groups=groups.get(one.pk, ())) for one in reports]
    context = {"reports": shown, "tiles": report_tiles(totals)}
    return reply(request, "links/stopreports.html", link_context(link, by=by, now=now, tab="stops") | context)


def _as_json(report: StopReport, clamped: stopreports.Clamped | None) -> dict[str, object]:
    groups = [model_to_dict(one, fields=_CLAMPED) for one in clamped.rows] if clamped else []
    return {
        "mirror_topic_name": report.mirror.name,
        **model_to_dict(report, exclude=_HIDDEN),
        "groups_clamped": groups,
        "groups_clamped_total": clamped.total if clamped else 0,
    }
