"""The common parts of all pages of a link: heading, tabs, breadcrumb and permissions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from console.access import Permission, can
from console.actors import Actor
from console.models import ClusterLink
from console.models.links import LinkMode
from console.pages.shell import Crumb, Tab
from console.presenters.badges import Badge
from console.presenters.links import GAP_FILLERS, endpoints_of, mode_label
from console.presenters.notes import ErrorNote, error_note
from console.presenters.states import link_look
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import GapFiller

_TABS = (
    ("overview", "Overview", "pages:link"),
    ("history", "History", "pages:link-history"),
    ("topics", "Source topics", "pages:link-topics"),
    ("filters", "Filters", "pages:link-filters"),
    ("tasks", "Tasks", "pages:link-tasks"),
    ("groups", "Groups", "pages:link-groups"),
    ("acls", "ACLs", "pages:link-acls"),
    ("configuration", "Configuration", "pages:link-configuration"),
    ("stops", "Failover reports", "pages:link-stops"),
    ("drills", "Drills", "pages:link-drills"),
    ("activity", "Activity", "pages:link-activity"),
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
}


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
    )


def link_context(link: ClusterLink, *, by: Actor, now: datetime, tab: str = "", last: str = "") -> dict[str, object]:
    """Return the template context of all pages of a link. ``last`` is the last breadcrumb below the link."""
    head = link_head(link, now=now)
    return {
        "link": head,
        "environment_name": link.destination.environment.name,
        "crumbs": crumbs(link, last=last),
        "tabs": _tabs_for(by, link, current=tab),
        "may_edit": can(by, Permission.MANAGE_LINK, link=link),
        "may_mirror": link.mode != LinkMode.SOURCE and can(by, Permission.MANAGE_MIRROR, link=link),
        "may_operate": can(by, Permission.OPERATE_MIRROR, link=link),
    }


def crumbs(link: ClusterLink, *, last: str = "") -> list[Crumb]:
    """Return the breadcrumbs from the environment to the link, or to ``last`` below it."""
    environment = link.destination.environment
    trail = [
        Crumb(label=environment.name, url=environment.get_absolute_url()),
        Crumb(label="Cluster links", url=reverse("pages:links")),
        Crumb(label=link.name, url=link.get_absolute_url() if last else ""),
    ]
    return [*trail, Crumb(label=last)] if last else trail


def _tabs_for(by: Actor, link: ClusterLink, *, current: str) -> list[Tab]:
    """Return the tabs that the user may open. Activity requires the permission to view the audit log."""
    hidden = set() if can(by, Permission.VIEW_AUDIT, cluster=link.destination) else {"activity"}
    if not can(by, Permission.VIEW, link=link):
        hidden |= _WHOLE_LINK_TABS
    return [
        Tab(label=label, url=reverse(name, args=link.url_args), current=key == current)
        for key, label, name in _TABS
        if key not in hidden
    ]
