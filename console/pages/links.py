"""The list of cluster links, and the Overview, Configuration and Activity tabs of a link."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.access import Permission, can, visible_clusters
from console.actors import Actor
from console.audit import path_of
from console.links import pairs
from console.models import ClusterLink
from console.models.links import LinkMode
from console.pages.columns import mirror_columns
from console.pages.linkpages import Observed, link_context, may_see, observe, side_with_mirrors
from console.pages.lists import MOST_DIGITS, PAGE_SIZE, page_from, page_of, pager, start_of
from console.pages.request_handling import actor_of, page, reply
from console.presenters import numbers
from console.presenters.audit import event_row
from console.presenters.configs import config_words
from console.presenters.health import HealthView, link_health_view
from console.presenters.links import flow, link_row, tiles, worst_first
from console.presenters.linktasks import task_label
from console.presenters.mirrors import mirror_row
from console.presenters.otherside import OtherSide, other_side
from console.presenters.states import LINK_LOOKS, MIRROR_LOOKS
from console.presenters.verbs import bulk_verbs
from console.queries import links as link_queries
from console.queries import mirrorpages
from console.queries.audit import readable_events
from linkengine.domain.linkconfigs import LINK_CONFIGS, is_connection

_EDITABLE = {name for name, spec in LINK_CONFIGS.items() if not (spec.read_only or spec.immutable or is_connection(name))}
REFRESH = timedelta(seconds=5)  # relative times of an unchanged page are updated at this interval


@page("links")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List the links that the user may see, worst first."""
    by, now = actor_of(request), timezone.now()
    query, state = request.GET.get("q", "").strip(), request.GET.get("state", "")
    summaries = link_queries.list_links(by=by, search=query, state=state if state in LINK_LOOKS else "")
    shown, where = page_of(request, worst_first([link_row(summary, now=now) for summary in summaries]))
    clusters = list(visible_clusters(by).select_related("environment"))
    context = {
        "rows": shown,
        "pager": where,
        "query": query,
        "state": state,
        "filtered": bool(query or state),
        "filterable": bool(shown or query or state),
        "states": list(LINK_LOOKS.values()),
        "clusters_known": bool(clusters),
        "may_create": by.may_do_all or any(can(by, Permission.MANAGE_LINK, cluster=cluster) for cluster in clusters),
    }
    return reply(request, "links/list.html", context)


@page("links")
@require_GET
def overview(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the overview: flow, figures and mirror topics. Polled every second; returns 204 if nothing has changed."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    if is_unchanged(request, link.sequence, now=now):
        return HttpResponse(status=204)
    other = pairs.other_side(link)
    seen = observe(link, by=by, now=now)
    holder, of_holder = side_with_mirrors(link, other, seen, by=by, now=now)
    health = link_health_view(of_holder.health, holder or link)
    context = link_context(link, by=by, now=now, tab="overview", health=health)
    context |= (
        _figures(link, holder, of_holder, health, by=by)
        | _mirror_list(request, link, seen, now=now)
        | {
            "pair": _pair(link, other, by=by),
            "holds_mirrors": link.mode != LinkMode.SOURCE,
            "failing_tasks": [(row.name, task_label(row.name), row.error_count) for row in seen.failing],
        }
    )
    return reply(request, "links/overview.html", context | {"seen": seen_token(link.sequence, now=now)})


def _pair(link: ClusterLink, other: ClusterLink | None, *, by: Actor) -> OtherSide | None:
    """Return the view of the paired link; None if this link needs none."""
    if not pairs.has_two_sides(link):
        return None
    visible = other is not None and may_see(other, by=by)
    may_create = link.source is not None and can(by, Permission.MANAGE_LINK, cluster=link.source)
    return other_side(link, other, may_see=visible, may_create=may_create)


def _figures(
    link: ClusterLink, holder: ClusterLink | None, seen: Observed, health: HealthView, *, by: Actor
) -> dict[str, object]:
    """Return the figures of the side with the mirror topics. If the user may not see that side, only the two clusters."""
    if holder is None:
        return {"flow": flow(link, None, health)}
    figures = mirrorpages.link_figures(link=holder, by=by, health=seen.health, current=seen.current)
    return {"flow": flow(link, figures, health), "tiles": tiles(figures, seen.health)}


def _mirror_list(request: HttpRequest, link: ClusterLink, seen: Observed, *, now: datetime) -> dict[str, object]:
    """Return the mirrors of the link that match the filter."""
    query, state = request.GET.get("q", "").strip(), request.GET.get("state", "")
    sort, start = request.GET.get("sort", ""), start_of(request)
    order = sort or "name"  # by name, rows keep their places while the page is polled
    verdicts = {pk: mirror.verdict for pk, mirror in seen.health.mirrors.items()}
    found = mirrorpages.mirror_page(
        by=actor_of(request),
        link=link,
        search=query,
        state=state,
        order=order,
        start=start,
        size=PAGE_SIZE,
        severities={pk: verdict.severity for pk, verdict in verdicts.items()},
        current=seen.current,
    )
    return {
        "rows": [mirror_row(summary, now=now, health=verdicts.get(summary.mirror.pk)) for summary in found.rows],
        "pager": pager(request, start=found.start, shown=len(found.rows), total=found.total),
        "query": query,
        "state": state,
        "sort": sort,
        "filtered": bool(query or state),
        "states": list(MIRROR_LOOKS.values()),
        "columns": mirror_columns(request, order),
        "pick_all": numbers.count(found.total),
        "bulk_verbs": bulk_verbs(bidirectional=link.mode == LinkMode.BIDIRECTIONAL),
    }


@page("links")
@require_GET
def configuration(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the effective configs. Secrets are masked."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    query, everything = request.GET.get("q", "").strip().lower(), bool(request.GET.get("all"))
    configs = [config for config in link_queries.effective_configs(link=link) if query in config.name]
    context = {
        "configs": [
            (config, config_words(config.name, config.value or ""))
            for config in configs
            if everything or query or not config.is_default
        ],
        "query": query,
        "all": everything,
        "editable": _EDITABLE,
    }
    return reply(request, "links/configuration.html", link_context(link, by=by, now=now, tab="configuration") | context)


@page("links")
@require_GET
def activity(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the audit events of the link and its mirror topics."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    shown, where = page_from(request, readable_events(by=by).matching(resource=path_of(link)))
    context = {"events": [event_row(event, now=now) for event in shown], "pager": where}
    return reply(request, "links/activity.html", link_context(link, by=by, now=now, tab="activity") | context)


def seen_token(*marks: object, now: datetime) -> str:
    """Return the version and the time of a page, which the next poll sends back."""
    return ":".join([*map(str, marks), str(int(now.timestamp()))])


def is_unchanged(request: HttpRequest, *marks: object, now: datetime) -> bool:
    """Return True if the polling page is up to date; False at least every ``REFRESH``, to update relative times."""
    *seen, at = request.GET.get("seen", "").split(":")
    fresh = at.isdecimal() and abs(now.timestamp() - int(at[:MOST_DIGITS])) < REFRESH.total_seconds()
    return bool(request.htmx) and fresh and seen == [str(mark) for mark in marks]  # type: ignore[attr-defined]
