"""The common parts of all pages of a link: heading, health, tabs, breadcrumb and permissions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from console.access import Permission, can, visible_links, visible_mirrors
from console.actors import Actor
from console.links import pairs
from console.mirrors import progress
from console.mirrors.progress import CurrentMirror
from console.models import ClusterLink, LinkTask
from console.models.links import LinkMode
from console.pages.shell import Crumb, Tab
from console.presenters.badges import Badge
from console.presenters.health import HealthView, link_health_view
from console.presenters.links import GAP_FILLERS, endpoints_of, mode_label
from console.presenters.notes import ErrorNote, error_note
from console.presenters.states import link_look
from console.queries.health import LinkHealth, health_of_link
from console.queries.linktasks import failing_rows
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import LinkState

# (group, its tabs); a tab is (key, label, URL name). The address of a group is that of its first tab that the user may open.
_GROUPS = (
    ("Overview", (("overview", "Summary", "pages:link"), ("history", "History", "pages:link-history"))),
    ("Topics", (("topics", "Source topics", "pages:link-topics"), ("filters", "Filters", "pages:link-filters"))),
    (
        "Sync",
        (
            ("tasks", "Tasks", "pages:link-tasks"),
            ("groups", "Groups", "pages:link-groups"),
            ("acls", "ACLs", "pages:link-acls"),
        ),
    ),
    (
        "Failover",
        (
            ("failover", "Fail over", "pages:link-failover"),
            ("stops", "Failover reports", "pages:link-stops"),
            ("drills", "Drills", "pages:link-drills"),
            ("readiness", "Readiness", "pages:link-readiness"),
        ),
    ),
    ("Settings", (("configuration", "Configuration", "pages:link-configuration"),)),
    ("Activity", (("activity", "Activity", "pages:link-activity"),)),
)
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
class Observed:
    """What is observed of a link, read once for health, figures and the list of mirrors."""

    health: LinkHealth
    failing: Sequence[LinkTask]  # tasks whose last run had errors; none if the user may not see the whole link
    current: Sequence[CurrentMirror]  # visible mirrors that are not stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkHead:
    """The heading of the pages of a link."""

    name: str
    cluster_id: str  # of the cluster that it belongs to
    url: str
    fix_url: str  # page that fixes the link's error, "" if an edit does not help
    add_url: str
    look: Badge  # of the API state
    mode: str
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
        look=link_look(link.state),
        mode=mode_label(link),
        prefix=link.prefix,
        gap_filler=GAP_FILLERS[GapFiller(link.gap_filler)],
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
    return {
        "link": head,
        "health": headline(link, by=by, now=now) if health is None else health,
        "environment_name": link.destination.environment.name,
        "crumbs": crumbs(link, last=last),
        "tabs": groups,
        "subtabs": tabs,
        "may_edit": can(by, Permission.MANAGE_LINK, link=link),
        "may_mirror": link.mode != LinkMode.SOURCE and can(by, Permission.MANAGE_MIRROR, link=link),
        "may_operate": can(by, Permission.OPERATE_MIRROR, link=link),
        "holds_mirrors_here": link.mode != LinkMode.SOURCE,
    }


def observe(link: ClusterLink, *, by: Actor, now: datetime, current: Sequence[CurrentMirror] | None = None) -> Observed:
    """Return what is observed of a link, of the mirrors that the user may see.

    ``current``: the progress of at least these mirrors, if it was read.
    """
    failing = failing_rows(links=[link]).get(link.pk, []) if getattr(link, "undone", True) else []
    mirrors, shows_tasks = visible_mirrors(by).filter(link=link), can(by, Permission.VIEW, link=link)
    if current is None:
        current = progress.current(mirrors.unstopped(), now=now)
    health = health_of_link(link, mirrors, now=now, failing=failing, shows_tasks=shows_tasks, current=current)
    return Observed(health=health, failing=failing if shows_tasks else (), current=current)


def side_with_mirrors(
    link: ClusterLink, other: ClusterLink | None, seen: Observed, *, by: Actor, now: datetime
) -> tuple[ClusterLink | None, Observed]:
    """Return the side of a link that has the mirror topics, and what is observed of it.

    That is the link itself, or for a source side the paired link; None if the user may not see that one. The health is the
    worse of both sides.
    """
    if link.mode != LinkMode.SOURCE or other is None:
        return link, seen
    if not may_see(other, by=by):
        return None, seen
    there = observe(other, by=by, now=now)
    verdict = min(there.health.verdict, seen.health.verdict, key=lambda verdict: verdict.severity)
    health = LinkHealth(verdict=verdict, mirrors=there.health.mirrors)
    return other, Observed(health=health, failing=there.failing, current=there.current)


def headline(link: ClusterLink, *, by: Actor, now: datetime, current: Sequence[CurrentMirror] | None = None) -> HealthView:
    """Return the health of a link for its heading. ``current`` as for ``observe``."""
    seen = observe(link, by=by, now=now, current=current)
    other = pairs.other_side(link) if link.mode == LinkMode.SOURCE else None
    holder, seen = side_with_mirrors(link, other, seen, by=by, now=now)
    return link_health_view(seen.health, holder or link)


def may_see(link: ClusterLink, *, by: Actor) -> bool:
    """Return whether the user may see a link. One query."""
    return visible_links(by).filter(pk=link.pk).exists()


def crumbs(link: ClusterLink, *, last: str = "") -> list[Crumb]:
    """Return the breadcrumbs from the environment to the link, or to ``last`` below it."""
    environment = link.destination.environment
    trail = [
        Crumb(label=environment.name, url=environment.get_absolute_url()),
        Crumb(label="Cluster links", url=reverse("pages:links")),
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
            Tab(label=name, url=reverse(page, args=link.url_args), current=key == current)
            for key, name, page in keys
            if key not in hidden
        ]
        is_current = any(tab.current for tab in tabs)
        if tabs:
            groups.append(Tab(label=label, url=tabs[0].url, current=is_current))
        if is_current and len(tabs) > 1:
            shown = tabs
    return groups, shown
