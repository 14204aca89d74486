"""The list of cluster links, and the Overview, Configuration and Activity tabs of a link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.access import Permission, can, visible_clusters, visible_links, visible_mirrors
from console.actors import Actor
from console.audit import path_of
from console.links import pairs
from console.mirrors import progress
from console.mirrors.progress import CurrentMirror
from console.models import ClusterLink, LinkTask
from console.models.links import LinkMode
from console.pages.columns import mirror_columns
from console.pages.linkpages import link_context
from console.pages.lists import MOST_DIGITS, PAGE_SIZE, page_from, page_of, pager, start_of
from console.pages.request_handling import actor_of, page, reply
from console.presenters import numbers
from console.presenters.audit import event_row
from console.presenters.health import link_health_view
from console.presenters.links import flow, link_row, tiles, worst_first
from console.presenters.linktasks import task_label
from console.presenters.mirrors import mirror_row
from console.presenters.otherside import OtherSide, other_side
from console.presenters.states import LINK_LOOKS, MIRROR_LOOKS
from console.presenters.verbs import bulk_verbs
from console.queries import links as link_queries
from console.queries import mirrorpages
from console.queries.audit import readable_events
from console.queries.health import LinkHealth, health_of_link
from console.queries.linktasks import failing_rows
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
    seen = _observe(link, by=by, now=now)
    context = link_context(link, by=by, now=now, tab="overview") | _figures(link, other, seen, by=by, now=now)
    context |= _mirror_list(request, link, seen, now=now) | {
        "pair": _pair(link, other, by=by),
        "holds_mirrors": link.mode != LinkMode.SOURCE,
        "failing_tasks": [(row.name, task_label(row.name), row.error_count) for row in seen.failing],
    }
    return reply(request, "links/overview.html", context | {"seen": seen_token(link.sequence, now=now)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observed:
    """What is observed of a link, read once for figures, health and the list of mirrors."""

    health: LinkHealth
    failing: Sequence[LinkTask]  # tasks whose last run had errors; none if the user may not see the whole link
    current: Sequence[CurrentMirror]  # visible mirrors that are not stopped


def _observe(link: ClusterLink, *, by: Actor, now: datetime) -> _Observed:
    failing = failing_rows(links=[link]).get(link.pk, []) if getattr(link, "undone", True) else []
    mirrors, shows_tasks = visible_mirrors(by).filter(link=link), can(by, Permission.VIEW, link=link)
    current = progress.current(mirrors.unstopped(), now=now)
    health = health_of_link(link, mirrors, now=now, failing=failing, shows_tasks=shows_tasks, current=current)
    return _Observed(health=health, failing=failing if shows_tasks else (), current=current)


def _pair(link: ClusterLink, other: ClusterLink | None, *, by: Actor) -> OtherSide | None:
    """Return the view of the paired link; None if this link needs none."""
    if not pairs.has_two_sides(link):
        return None
    may_see = other is not None and _may_see(other, by=by)
    may_create = link.source is not None and can(by, Permission.MANAGE_LINK, cluster=link.source)
    return other_side(link, other, may_see=may_see, may_create=may_create)


def _figures(link: ClusterLink, other: ClusterLink | None, seen: _Observed, *, by: Actor, now: datetime) -> dict[str, object]:
    """Return the figures of a link. If the mirrors belong to a paired link that the user may not see, only the two clusters."""
    holder, health = (other if other is not None and link.mode == LinkMode.SOURCE else link), seen.health
    if holder is other and not _may_see(holder, by=by):
        view = link_health_view(health, link)
        return {"flow": flow(link, None, view), "health": view}
    if holder is other:
        seen = _observe(holder, by=by, now=now)
        verdict = min(seen.health.verdict, health.verdict, key=lambda verdict: verdict.severity)
        health = LinkHealth(verdict=verdict, mirrors=seen.health.mirrors)
    figures = mirrorpages.link_figures(link=holder, by=by, health=health, current=seen.current)
    view = link_health_view(health, holder)
    return {"flow": flow(link, figures, view), "tiles": tiles(figures, health), "health": view}


def _may_see(link: ClusterLink, *, by: Actor) -> bool:
    return visible_links(by).filter(pk=link.pk).exists()


def _mirror_list(request: HttpRequest, link: ClusterLink, seen: _Observed, *, now: datetime) -> dict[str, object]:
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
        "configs": [config for config in configs if everything or query or not config.is_default],
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
