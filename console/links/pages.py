"""The list of cluster links, the common parts of the pages of a link, and the tabs Overview, Configuration and Activity."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from functools import wraps

from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET

from console.access import Permission, can, visible_clusters, visible_links
from console.access.audit_pages import EVENTS, event_rows
from console.access.queries import readable_events_of
from console.actors import Actor
from console.links import pairs
from console.links import queries as link_queries
from console.links.health_queries import LinkHealth, Observation, observe_links
from console.links.presenters import (
    GAP_FILLERS,
    LinkRow,
    OtherSide,
    endpoints_of,
    flow,
    is_one_way,
    link_row,
    mode_label,
    other_side,
    tiles,
)
from console.links.task_presenters import task_label
from console.links.task_queries import failing_of
from console.mirrors import queries as mirror_queries
from console.mirrors.operation_presenters import bulk_verbs
from console.mirrors.presenters import mirror_row
from console.mirrors.queries import MirrorPage
from console.models import ClusterLink
from console.web import numbers
from console.web.badges import LINK_BADGES, MIRROR_BADGES, Badge, link_badge
from console.web.errors import ErrorNote, error_note
from console.web.health_presenters import HEALTH_BADGES, HealthView, link_health_view, severity
from console.web.lists import EVERY, PAGE_SIZE, Column, Filter, Listed, Listing, Value, pager, start_of
from console.web.numbers import config_words
from console.web.polling import is_in_time, is_unchanged, seen_token
from console.web.request_handling import Crumb, Tab, View, actor_of, fragment_of, page, reply
from linkengine.domain.errors import ErrorCode
from linkengine.domain.linkconfigs import LINK_CONFIGS, is_connection
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import LinkMode, LinkState

# --- common parts of all pages of a link ------------------------------------------------------------------------------


# (group, its tabs); a tab is (key, label, URL name). The address of a group is that of its first tab that the user may open.
_GROUPS = (
    (
        gettext_noop("Overview"),
        (("overview", gettext_noop("Summary"), "pages:link"), ("history", gettext_noop("History"), "pages:link-history")),
    ),
    (
        gettext_noop("Topics"),
        (
            ("topics", gettext_noop("Source topics"), "pages:link-topics"),
            ("filters", gettext_noop("Filters"), "pages:link-filters"),
        ),
    ),
    (
        gettext_noop("Sync"),
        (
            ("tasks", gettext_noop("Tasks"), "pages:link-tasks"),
            ("groups", gettext_noop("Groups"), "pages:link-groups"),
            ("acls", gettext_noop("ACLs"), "pages:link-acls"),
        ),
    ),
    (
        gettext_noop("Failover"),
        (
            ("failover", gettext_noop("Fail over"), "pages:link-failover"),
            ("stops", gettext_noop("Failover reports"), "pages:link-stops"),
            ("drills", gettext_noop("Drills"), "pages:link-drills"),
            ("readiness", gettext_noop("Readiness"), "pages:link-readiness"),
        ),
    ),
    (gettext_noop("Settings"), (("configuration", gettext_noop("Configuration"), "pages:link-configuration"),)),
    (gettext_noop("Activity"), (("activity", gettext_noop("Activity"), "pages:link-activity"),)),
)
HEAD = ("head",)  # fragments of tabs of which only the heading is polled
# Tabs that show data of all mirrors of the link; they need VIEW on the link itself.
_WHOLE_LINK_TABS = {
    "history",
    "topics",
    "filters",
    "tasks",
    "groups",
    "acls",
    "configuration",
    "drills",
    "readiness",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkHead:
    """The heading of the pages of a link."""

    name: str
    cluster_id: str  # of the cluster that it belongs to
    url: str
    fix_url: str  # page that fixes the link's error, "" if an edit does not help
    add_url: str
    badge: Badge  # of the API state
    mode: str
    is_one_way: bool
    prefix: str
    gap_filler: str
    source: str
    destination: str
    note: ErrorNote | None
    engine_note: ErrorNote | None  # why no copy job can run although the source is reachable
    deleting: bool
    paused: bool


def link_head(link: ClusterLink, *, now: datetime) -> LinkHead:
    """Create the heading of a link."""
    (source, _), (destination, _) = endpoints_of(link)
    return LinkHead(
        name=link.name,
        cluster_id=link.destination.cluster_id,
        url=link.get_absolute_url(),
        fix_url=""
        if link.error_code == ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR
        else reverse("pages:link-edit", args=link.url_args),
        add_url=reverse("pages:new-mirror", args=link.url_args),
        badge=link_badge(link.state),
        mode=mode_label(link),
        is_one_way=is_one_way(link),
        prefix=link.prefix,
        gap_filler=gettext(GAP_FILLERS[GapFiller(link.gap_filler)]),
        source=source,
        destination=destination,
        note=error_note(link.error_code, link.error_message, now=now, since=link.state_since),
        engine_note=error_note("COPY_ENGINE_UNAVAILABLE" if link.engine_error else "", link.engine_error, now=now),
        deleting=link.deletion_requested_at is not None,
        paused=link.state == LinkState.PAUSED,
    )


def link_context(
    link: ClusterLink, *, by: Actor, now: datetime, tab: str = "", last: str = "", health: HealthView | None = None
) -> dict[str, object]:
    """Return the template context of all pages of a link. ``last`` is the last breadcrumb below the link.

    The health is the headline of each page. Pages that have read it pass it; otherwise it is read here, by two queries, three
    if a task fails.
    """
    head = link_head(link, now=now)
    groups, tabs = _tabs_for(by, link, current=tab)
    health = headline(link, by=by, now=now) if health is None else health
    seen = seen_token(link_queries.version_of(link), now=now, steady=health.steady)
    return {
        "link": head,
        "health": health,
        "environment_name": link.destination.environment.name,
        "crumbs": crumbs(link, last=last),
        "tabs": groups,
        "subtabs": tabs,
        "may_edit": can(by, Permission.MANAGE_LINK, link=link),
        "may_mirror": link.mode != LinkMode.SOURCE and can(by, Permission.MANAGE_MIRROR, link=link),
        "may_operate": can(by, Permission.OPERATE_MIRROR, link=link),
        "holds_mirrors_here": link.mode != LinkMode.SOURCE,
        "seen": seen,
        "seen_head": seen,
    }


def polled(*, whole: bool = True, fragments: Collection[str] = ("live", *HEAD)) -> Callable[[View], View]:
    """Decorate the view of a page of a link: return 204 for polls of a page that shows the present version of the link.

    Polls come every second or two and rarely find a change, so the link is loaded only for those that do. ``whole``: the page
    is for users who may see the whole link. ``fragments``: those of the page that this version covers.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def poll(request: HttpRequest, cluster_id: str, link_name: str, **more: str) -> HttpResponse:
            by, now = actor_of(request), timezone.now()
            if request.method == "GET" and fragment_of(request) in fragments and is_in_time(request, now=now):
                version = link_queries.version_now(cluster_id=cluster_id, name=link_name, by=by, whole=whole)
                if version is not None and is_unchanged(request, version, now=now):
                    return HttpResponse(status=204)
            return view(request, cluster_id, link_name, **more)

        return poll

    return decorate


def head_poll(request: HttpRequest, link: ClusterLink, *, by: Actor, now: datetime, tab: str) -> HttpResponse | None:
    """Return the response to a poll of the heading; None for other requests.

    Tabs with a form, and tabs with charts that scripts draw, poll their heading instead of the whole page, so that the rest is
    not replaced. Their views are ``polled`` with ``HEAD``.
    """
    if fragment_of(request) != "head":
        return None
    return reply(request, "links/polled_head.html", link_context(link, by=by, now=now, tab=tab))


def observe(link: ClusterLink, *, by: Actor, now: datetime) -> Observation:
    """Return the state of a link from ``get_link``. Two queries, none if another request has read it in the last seconds."""
    return observe_links([link], by=by, now=now, failing={link.pk: failing_of(link)})[link.pk]


def side_with_mirrors(
    link: ClusterLink, other: ClusterLink | None, seen: Observation, *, by: Actor, now: datetime
) -> tuple[ClusterLink | None, Observation]:
    """Return the side of a link that has the mirror topics, and its observed state.

    That is the link itself, or for a source side the paired link from ``paired_link``; None if the user may not see the paired
    link. The health is the worse of both sides.
    """
    if link.mode != LinkMode.SOURCE or other is None:
        return link, seen
    if not is_seen(other):
        return None, seen
    there = observe(other, by=by, now=now)
    both = (there.health.status, seen.health.status)
    status = replace(min(both, key=lambda status: status.severity), steady=all(status.steady for status in both))
    health = LinkHealth(status=status, mirrors=there.health.mirrors)
    return other, replace(there, health=health)


def headline(link: ClusterLink, *, by: Actor, now: datetime, seen: Observation | None = None) -> HealthView:
    """Return the health of a link for its heading. ``seen``: its state, if it was read."""
    seen = observe(link, by=by, now=now) if seen is None else seen
    other = paired_link(link, by=by) if link.mode == LinkMode.SOURCE else None
    holder, seen = side_with_mirrors(link, other, seen, by=by, now=now)
    return link_health_view(seen.health, holder or link)


def paired_link(link: ClusterLink, *, by: Actor) -> ClusterLink | None:
    """Return the other side of a link, if there is one; ``is_seen`` returns whether the user may see it. One query."""
    if not pairs.has_two_sides(link):
        return None
    visible = Exists(visible_links(by).filter(pk=OuterRef("pk")))
    return pairs.other_sides(link).annotate(seen=visible).first()


def is_seen(other: ClusterLink) -> bool:
    """Return whether the user may see a link that ``paired_link`` has returned."""
    return bool(other.seen)  # type: ignore[attr-defined]


def crumbs(link: ClusterLink, *, last: str = "") -> list[Crumb]:
    """Return the breadcrumbs from the environment to the link, or to ``last`` below it."""
    environment = link.destination.environment
    trail = [
        Crumb(label=environment.name, url=environment.get_absolute_url()),
        Crumb(label=gettext("Cluster links"), url=reverse("pages:links")),
        Crumb(label=link.name, url=link.get_absolute_url() if last else ""),
    ]
    return [*trail, Crumb(label=last)] if last else trail


def _tabs_for(by: Actor, link: ClusterLink, *, current: str) -> tuple[list[Tab], list[Tab]]:
    """Return the groups of tabs, and the tabs of the current group if it has several; only tabs that the user may open.

    Activity requires the permission to view the audit log.
    """
    hidden = set() if can(by, Permission.VIEW_AUDIT, cluster=link.destination) else {"activity"}
    if not can(by, Permission.VIEW, link=link):
        hidden |= _WHOLE_LINK_TABS
    groups: list[Tab] = []
    shown: list[Tab] = []
    for label, keys in _GROUPS:
        tabs = [
            Tab(label=gettext(name), url=reverse(page, args=link.url_args), current=key == current)
            for key, name, page in keys
            if key not in hidden
        ]
        is_current = any(tab.current for tab in tabs)
        if tabs:
            groups.append(Tab(label=gettext(label), url=tabs[0].url, current=is_current))
        if is_current and len(tabs) > 1:
            shown = tabs
    return groups, shown


# --- the list, and the tabs Overview, Configuration and Activity ------------------------------------------------------


_EDITABLE = {name for name, spec in LINK_CONFIGS.items() if not (spec.read_only or spec.immutable or is_connection(name))}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLink:
    """A link in the list, with its figures and how they are shown."""

    summary: link_queries.LinkSummary
    row: LinkRow


def _max_lag(row: ListedLink) -> int | None:
    """Return the largest lag; None if it is unknown, and if only 0 is known while others are unknown."""
    return None if row.summary.unknown_lags and not row.summary.max_lag else row.summary.max_lag


LINKS = Listing(
    noun=gettext_noop("link"),
    plural=gettext_noop("links"),
    columns=(
        Column(title=gettext_lazy("Name"), key="name", by=lambda link: link.row.name),
        Column(title=gettext_lazy("Direction"), key="direction", by=lambda link: (link.row.source, link.row.destination)),
        Column(
            title=gettext_lazy("Health"),
            key="health",
            by=lambda link: (severity(link.row.health), -link.row.attention, link.row.name),
        ),
        Column(title=gettext_lazy("Mirror topics"), key="mirrors", by=lambda link: link.row.mirrors, descends=True),
        Column(title=gettext_lazy("Max lag"), key="lag", by=_max_lag, css="number", descends=True),
        Column(
            title=gettext_lazy("RPO now"),
            key="age",
            by=lambda link: link.summary.oldest_lag_ms,
            css="number only-wide",
            descends=True,
        ),
        Column(
            title=gettext_lazy("Throughput"),
            key="rate",
            by=lambda link: link.summary.bytes_per_s,
            css="number only-wide",
            descends=True,
        ),
    ),
    default="health",  # the worst first
    search_label=gettext_lazy("Filter by name"),
    filters=(
        Filter(
            name="state",
            label=gettext_lazy("State"),
            every=gettext_lazy("All states"),
            options=[(badge.code, gettext_lazy(badge.label)) for badge in LINK_BADGES.values()],
        ),
        Filter(
            name="health",
            label=gettext_lazy("Health"),
            every=gettext_lazy("All health"),
            options=[(badge.code, gettext_lazy(badge.label)) for badge in HEALTH_BADGES.values()],
            by=lambda link: link.row.health.badge.code,
        ),
    ),
    export={
        "cluster_id": "summary.link.destination.cluster_id",
        "link": "row.name",
        "source": "row.source",
        "destination": "row.destination",
        "mode": "summary.link.mode",
        "state": "summary.link.state",
        "state_since": "summary.link.state_since",
        "health": "row.health.badge.code",
        "mirror_topics": "row.mirrors",
        "need_attention": "row.attention",
        "max_lag": _max_lag,
        "unknown_lags": "summary.unknown_lags",
        "lag_ms": "summary.oldest_lag_ms",
        "bytes_per_s": "summary.bytes_per_s",
        "records_per_s": "summary.records_per_s",
        "error_code": "summary.link.error_code",
        "created_at": "summary.link.created_at",
    },
)
MIRROR_STATE = Filter(
    name="state",
    label=gettext_lazy("State"),
    every=gettext_lazy("All states"),
    options=[(badge.code, gettext_lazy(badge.label)) for badge in MIRROR_BADGES.values()],
)
MIRROR_EXPORT: dict[str, str | Value] = {
    "mirror_topic": "mirror.name",
    "source_topic": "mirror.source_topic",
    "state": "mirror.state",
    "state_since": "mirror.state_since",
    "partitions": lambda row: row.mirror.num_partitions or None,  # 0: not set up yet
    "max_lag": "max_lag",
    "lag_ms": "lag_ms",
    "bytes_per_s": "bytes_per_s",
    "records_per_s": "records_per_s",
    "errors": "errors",
    "error_code": "mirror.error_code",
}
MIRRORS = Listing(  # ``mirror_page`` sorts and filters
    noun=gettext_noop("mirror topic"),
    plural=gettext_noop("mirror topics"),
    columns=(
        Column(title=gettext_lazy("Mirror topic"), key="name"),
        Column(title=gettext_lazy("Source topic"), css="only-wide"),
        Column(title=gettext_lazy("Health"), key="health"),
        Column(title=gettext_lazy("Max lag"), key="lag", css="number", descends=True),
        Column(title=gettext_lazy("Time lag"), key="age", css="number", descends=True),
        Column(title=gettext_lazy("Throughput"), key="rate", css="number only-wide", descends=True),
        Column(title=gettext_lazy("Partitions"), css="number only-wide"),
        Column(title=gettext_lazy("State since"), key="since", css="only-wide"),
    ),
    default="name",  # rows keep their places while the page is polled
    search_label=gettext_lazy("Filter by topic name"),
    filters=(MIRROR_STATE,),
    export=MIRROR_EXPORT,
)


@page("links")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List the links that the user may see, worst first. Polled every two seconds; returns 204 if nothing has changed."""
    by, now = actor_of(request), timezone.now()
    listed = LINKS.read(request)
    loaded = link_queries.load_links(by=by, search=listed.query, state=listed.values["state"])
    versions = link_queries.versions_of(loaded, by=by)
    if is_unchanged(request, *versions, now=now):
        return HttpResponse(status=204)
    summaries = link_queries.summarize(loaded, by=by)
    links = [ListedLink(summary=summary, row=link_row(summary, now=now)) for summary in summaries]
    found = listed.select(links)
    if listed.format:
        return listed.csv("cluster-links", found)
    clusters = list(visible_clusters(by).select_related("environment"))
    context = {
        "list": listed,
        "rows": [link.row for link in listed.page(found)],
        "clusters_known": bool(clusters),
        "may_create": by.may_do_all or any(can(by, Permission.MANAGE_LINK, cluster=cluster) for cluster in clusters),
        "seen": seen_token(*versions, now=now, steady=all(link.row.health.steady for link in links)),
    }
    return reply(request, "links/list.html", context)


@page("links")
@require_GET
@polled(whole=False)
def overview(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the overview: flow, figures and mirror topics. Polled every second; returns 204 if nothing has changed."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    seen = observe(link, by=by, now=now)
    listed = MIRRORS.read(request)
    if listed.format:
        return listed.csv(f"mirrors-{link.name}", _mirrors(listed, link, seen, by=by, size=EVERY).rows)
    other = paired_link(link, by=by)
    holder, of_holder = side_with_mirrors(link, other, seen, by=by, now=now)
    health = link_health_view(of_holder.health, holder or link)
    context = link_context(link, by=by, now=now, tab="overview", health=health)
    context |= (
        _figures(link, holder, of_holder, health, now=now)
        | ({} if link.mode == LinkMode.SOURCE else _mirror_list(listed, link, seen, by=by, now=now))
        | {
            "pair": _pair(link, other, by=by),
            "holds_mirrors": link.mode != LinkMode.SOURCE,
            "failing_tasks": [(row.name, task_label(row.name), row.error_count) for row in seen.failing],
        }
    )
    return reply(request, "links/overview.html", context)


def _pair(link: ClusterLink, other: ClusterLink | None, *, by: Actor) -> OtherSide | None:
    """Return the view of the paired link; None if this link needs none."""
    if not pairs.has_two_sides(link):
        return None
    visible = other is not None and is_seen(other)
    may_create = link.source is not None and can(by, Permission.MANAGE_LINK, cluster=link.source)
    return other_side(link, other, may_see=visible, may_create=may_create)


def _figures(
    link: ClusterLink, holder: ClusterLink | None, seen: Observation, health: HealthView, *, now: datetime
) -> dict[str, object]:
    """Return the figures of the side with the mirror topics. If the user may not see that side, only the two clusters."""
    if holder is None:
        return {"flow": flow(link, None, health)}
    figures = mirror_queries.link_figures(seen, now=now)
    return {"flow": flow(link, figures, health), "tiles": tiles(figures, seen.health)}


def _mirrors(listed: Listed, link: ClusterLink, seen: Observation, *, by: Actor, size: int, start: int = 0) -> MirrorPage:
    """Return the mirrors of the link that match the filter, in the order of the list."""
    return mirror_queries.mirror_page(
        by=by,
        link=link,
        search=listed.query,
        state=listed.values["state"],
        order=listed.sort,
        start=start,
        size=size,
        severities=seen.health.severities,
        current=seen.current,
    )


def _mirror_list(listed: Listed, link: ClusterLink, seen: Observation, *, by: Actor, now: datetime) -> dict[str, object]:
    """Return the template context of the list of mirrors."""
    found = _mirrors(listed, link, seen, by=by, start=start_of(listed.request), size=PAGE_SIZE)
    listed.pager = pager(listed.request, start=found.start, shown=len(found.rows), total=found.total)
    return {
        "list": listed,
        "rows": [mirror_row(summary, now=now, health=seen.health.status_of(summary.mirror.pk)) for summary in found.rows],
        "filtered": listed.is_filtered,  # for parts/picked.html
        "pick_all": numbers.count(found.total),
        "bulk_verbs": bulk_verbs(bidirectional=link.mode == LinkMode.BIDIRECTIONAL),
    }


@page("links")
@require_GET
@polled(fragments=HEAD)
def configuration(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the effective configs. Secrets are masked."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    if polled := head_poll(request, link, by=by, now=now, tab="configuration"):
        return polled
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
@polled(whole=False)
def activity(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the audit events of the link and its mirror topics. Polled like the overview."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    listed, readable = EVENTS.read(request), readable_events_of(link, by=by)
    found = listed.select(readable)
    if listed.format:
        return listed.csv(f"activity-{link.name}", found)
    listed.options = {"action": [(name, name) for name in readable.actions()]}
    context = {
        "list": listed,
        "events": event_rows(listed.page(found), by=by, now=now),
    }
    return reply(request, "links/activity.html", link_context(link, by=by, now=now, tab="activity") | context)
