"""The pages of a mirror topic: what they have in common, the overview, and a tab for each kind of data.

All are polled every second; a poll gets 204 if nothing has changed. A tab reads its own rows only, so that the number
of queries of a page does not grow with the data of the mirror.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET

from console.access import Permission, can
from console.actors import Actor
from console.clusters.queries import cluster_topics
from console.errors import ConsoleError
from console.history.pages import MIRROR_SPAN, graph_context, range_of, segments
from console.history.presenters import charts_of
from console.history.queries import mirror_history
from console.links import pairs, task_queries
from console.links.command_presenters import curl, rest_url
from console.links.group_presenters import clamped_row
from console.links.health_queries import config_errors, health_of_mirror
from console.links.pages import MIRROR_STATE, crumbs, link_head
from console.links.presenters import source_name
from console.links.queries import version_of
from console.mirrors import diverged_exports, operation_queries
from console.mirrors import queries as mirror_queries
from console.mirrors.lineage import clusters_by_id, lineage_of
from console.mirrors.operation_presenters import VERBS, Verb
from console.mirrors.presenters import (
    copied_words,
    gap_groups,
    held_back,
    mirror_tiles,
    origin_rows,
    partition_row,
    start_label,
    steps,
)
from console.mirrors.queries import followed_configs, list_reverts
from console.mirrors.reparenting import possible_links
from console.mirrors.rules import allowed_now
from console.models import MirrorTopic
from console.verification import queries as verification_queries
from console.verification.presenters import coverage_view, gate_view, run_view
from console.verification.report_presenters import report_row
from console.verification.rules import newest_run
from console.web.badges import Badge, mirror_badge
from console.web.errors import error_note, transition_notes
from console.web.health_presenters import mirror_health_view
from console.web.lists import Column, Listing, page_from
from console.web.numbers import Moment, moment, revert_row, synced_config_rows
from console.web.polling import is_in_time, is_unchanged, seen_token
from console.web.request_handling import Tab, actor_of, page, problem_of, reply, status_of
from linkengine.domain.states import BIDIRECTIONAL_ONLY, GapReason, LinkMode, MirrorEvent, MirrorState

if TYPE_CHECKING:
    from console.web.request_handling import View

    Read = Callable[[HttpRequest, MirrorTopic, Actor, datetime], dict[str, object] | HttpResponse]

REPORTS_SHOWN = 5
RESTORES_SHOWN = 10  # on a page; the file of each is checked on disk
CLAMPED_SHOWN = 100
LEVELS_SHOWN = 2  # links of the chain that the lineage shows; each takes a query


# --- common parts: heading, tabs and actions --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorHead:
    """The heading and the details of a mirror topic."""

    name: str
    cluster_id: str  # of the cluster that it is on
    link_name: str
    url: str
    badge: Badge
    source_topic: str
    source: str
    read_only: bool
    writable: bool
    deleting: bool
    auto_created: bool
    since: Moment | None
    previous_state: str  # label of the previous state, "" if there is none
    failed_attempts: int  # consecutive failed attempts
    created: Moment | None
    created_by: str
    start: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An operation: a button, or the reason why it is not possible."""

    verb: Verb
    allowed: bool
    reason: str
    primary: bool


def mirror_head(mirror: MirrorTopic, *, now: datetime) -> MirrorHead:
    """Create the heading of a mirror."""
    return MirrorHead(
        name=mirror.name,
        cluster_id=mirror.link.destination.cluster_id,
        link_name=mirror.link.name,
        url=mirror.get_absolute_url(),
        badge=mirror_badge(mirror.state, mirror.stop_reason),
        source_topic=mirror.source_topic,
        source=source_name(mirror.link),
        read_only=mirror.read_only,
        writable=mirror.state == MirrorState.STOPPED,
        deleting=mirror.deletion_requested_at is not None,
        auto_created=mirror.auto_created,
        since=moment(mirror.state_since, now=now),
        previous_state=mirror_badge(mirror.prior_state, mirror.stop_reason).label if mirror.prior_state else "",
        failed_attempts=mirror.retry_count,
        created=moment(mirror.created_at, now=now),
        created_by=mirror.created_by,
        start=start_label(mirror.start_spec),
    )


# (group, its tabs); a tab is (key, label, URL name). The address of a group is that of its first tab.
_GROUPS = (
    (gettext_noop("Overview"), (("overview", gettext_noop("Overview"), "pages:mirror"),)),
    (
        gettext_noop("Data"),
        (
            ("verification", gettext_noop("Verification"), "pages:mirror-verification"),
            ("filled-offsets", gettext_noop("Filled offsets"), "pages:mirror-filled-offsets"),
            ("lineage", gettext_noop("Lineage"), "pages:mirror-lineage"),
        ),
    ),
    (
        gettext_noop("Failover"),
        (
            ("gate", gettext_noop("Migration gate"), "pages:mirror-migration-gate"),
            ("reports", gettext_noop("Failover reports"), "pages:mirror-reports"),
            ("restores", gettext_noop("Restores"), "pages:mirror-restores"),
        ),
    ),
    (gettext_noop("Configs"), (("configs", gettext_noop("Configs"), "pages:mirror-configs"),)),
    (gettext_noop("History"), (("history", gettext_noop("History"), "pages:mirror-history"),)),
)


def mirror_context(mirror: MirrorTopic, *, by: Actor, now: datetime, tab: str = "") -> dict[str, object]:
    """Return the template context of all pages of a mirror: heading with health and actions, tabs and breadcrumbs.

    The parts of the mirror have to be read (``mirrors.queries.load_parts``). One query for a stopped mirror.
    """
    choices = action_choices(mirror, by=by)
    status, task_error = health_of_mirror(mirror, now=now)
    groups, tabs = _tabs(mirror, current=tab)
    return {
        "link": link_head(mirror.link, now=now),
        "environment_name": mirror.link.destination.environment.name,
        "crumbs": crumbs(mirror.link, last=mirror.name),
        "mirror": mirror_head(mirror, now=now),
        "tabs": groups,
        "subtabs": tabs,
        "choices": choices,
        "unavailable": [choice for choice in choices if not choice.allowed],
        "health": mirror_health_view(status, mirror.link, task_error=task_error),
        "seen": seen_token(version_of(mirror.link), now=now, steady=status.steady),
    }


def show_refusal(request: HttpRequest, mirror: MirrorTopic, error: ConsoleError) -> HttpResponse:
    """Show why an action on a mirror was not possible; raise the error again if it was denied."""
    if error.kind == "denied":
        raise error
    context = mirror_context(mirror, by=actor_of(request), now=timezone.now()) | {"problem": problem_of(error)}
    return reply(request, "mirrors/refused.html", context, status=status_of(error))


def _tabs(mirror: MirrorTopic, *, current: str) -> tuple[list[Tab], list[Tab]]:
    """Return the groups of tabs, and the tabs of the current group if it has several."""
    groups, shown = [], []
    for label, keys in _GROUPS:
        tabs = [
            Tab(label=gettext(name), url=reverse(page, args=mirror.url_args), current=key == current)
            for key, name, page in keys
        ]
        is_current = any(tab.current for tab in tabs)
        groups.append(Tab(label=gettext(label), url=tabs[0].url, current=is_current))
        if is_current and len(tabs) > 1:
            shown = tabs
    return groups, shown


def restore_url(mirror: MirrorTopic) -> str:
    """Return the URL that makes the former source of a stopped mirror its mirror; "" if that is not possible. One query."""
    if mirror.state != MirrorState.STOPPED or mirror.link.mode != LinkMode.BIDIRECTIONAL:
        return ""
    other = pairs.side_with_common_part(mirror)
    if other is None:
        return ""
    return reverse("pages:mirror-operation", args=(*other.url_args, mirror.source_topic, MirrorEvent.RESTORE))


def action_choices(mirror: MirrorTopic, *, by: Actor) -> list[Choice]:
    """Return the operations on a mirror; those of bidirectional links only for such links."""
    bidirectional = mirror.link.mode == LinkMode.BIDIRECTIONAL
    operations, shown = operation_queries.allowed(mirror, by), allowed_now(mirror)
    return [
        Choice(
            verb=VERBS[operation.event],
            allowed=operation.allowed,
            reason=operation.reason.removesuffix(f" {shown}"),  # the buttons show what is allowed on this kind of link
            primary=operation.event in {MirrorEvent.RESUME, MirrorEvent.RECOVER},
        )
        for operation in operations
        if bidirectional or operation.event not in BIDIRECTIONAL_ONLY
    ]


# --- tabs -------------------------------------------------------------------------------------------------------------


def _tab(name: str, template: str) -> Callable[[Read], View]:
    """Create the view of a tab from a function that returns the template context of the tab itself, or a file."""

    def decorate(read: Read) -> View:
        @page("links")
        @require_GET
        @wraps(read)
        def view(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
            by, now = actor_of(request), timezone.now()
            names = {"cluster_id": cluster_id, "link_name": link_name, "mirror_name": mirror_name}
            if is_in_time(request, now=now):  # a poll, which rarely finds a change: the mirror is loaded only for those that do
                version = mirror_queries.version_now(**names, by=by)
                if version is not None and is_unchanged(request, version, now=now):
                    return HttpResponse(status=204)
            mirror = mirror_queries.get_mirror_only(**names, by=by)
            mirror_queries.load_parts(mirror)
            shown = read(request, mirror, by, now)
            if not isinstance(shown, dict):
                return shown
            return reply(request, template, mirror_context(mirror, by=by, now=now, tab=name) | shown)

        return view

    return decorate


# --- overview ---------------------------------------------------------------------------------------------------------


@_tab("overview", "mirrors/overview.html")
def overview(request: HttpRequest, mirror: MirrorTopic, by: Actor, now: datetime) -> dict[str, object]:
    """Show errors, figures, charts, partitions and details."""
    summary = mirror_queries.summarize(mirror, now=now)
    context = {
        **_errors(mirror, now=now),
        "held_back": held_back(mirror, summary.partitions, now=now),
        "tiles": mirror_tiles(summary),
        "copied": copied_words(summary),
        "partitions": [partition_row(row, now=now) for row in summary.partitions],
        "restore_url": restore_url(mirror),
        "parents": possible_links(mirror, by),
        "reads_records": can(by, Permission.READ_RECORDS, mirror=mirror),
        "may_edit": can(by, Permission.MANAGE_LINK, link=mirror.link),
        "edit_url": reverse("pages:link-edit", args=mirror.link.url_args),
        "snippet": curl("GET", rest_url(request, "kafka:mirror", mirror.url_args, include_state_transition_errors="true")),
    }
    if not (request.htmx and request.htmx.target == "live"):  # type: ignore[attr-defined]
        chosen = range_of(request, now=now, default=MIRROR_SPAN)
        points = mirror_history(mirror=mirror, span=chosen.span, now=now, end=chosen.end)
        context["charts"] = charts_of(points, span=chosen.span, now=chosen.end, past=not chosen.name)
        context |= {"spans": segments(mirror.get_absolute_url(), chosen), **graph_context(mirror, chosen)}
    return context


def _errors(mirror: MirrorTopic, *, now: datetime) -> dict[str, object]:
    task_errors = config_errors(mirror)
    return {
        "note": error_note(mirror.error_code, mirror.error_message, now=now, since=mirror.error_since),
        "transition_notes": transition_notes(mirror.transition_errors.all(), now=now),
        "task_notes": [error_note(code, message, now=now) for code, message in task_errors],
        "tasks_url": reverse("pages:link-tasks", args=mirror.link.url_args) if task_errors else "",
    }


# --- data -------------------------------------------------------------------------------------------------------------


@_tab("verification", "mirrors/verification.html")
def verification(_request: HttpRequest, mirror: MirrorTopic, by: Actor, now: datetime) -> dict[str, object]:
    """Show the newest verification run and the verified offsets."""
    reads_records = can(by, Permission.READ_RECORDS, mirror=mirror)
    return {
        "run": run_view(mirror.verify_runs.first(), now=now, reads_records=reads_records),
        "coverage": coverage_view(
            verification_queries.coverage(mirror=mirror),
            getattr(mirror, "verify_watch", None),
            enabled=verification_queries.is_continuous(link=mirror.link),
            watched=mirror.state in verification_queries.WATCHED,
            now=now,
            reads_records=reads_records,
            missing=verification_queries.missing_as_reported(mirror=mirror),
        ),
        "may_verify": can(by, Permission.VERIFY, mirror=mirror),
    }


@_tab("filled-offsets", "mirrors/filled_offsets.html")
def filled_offsets(_request: HttpRequest, mirror: MirrorTopic, _by: Actor, _now: datetime) -> dict[str, object]:
    """Show the offsets that have fillers instead of copied records, by reason."""
    gaps = list(mirror.gaps.all())
    return {
        "gaps": gap_groups(gaps),
        "has_dated_fillers": any(gap.reason != GapReason.HEAD for gap in gaps),  # fillers of the head are deleted again
    }


@_tab("lineage", "mirrors/lineage.html")
def lineage(_request: HttpRequest, mirror: MirrorTopic, by: Actor, now: datetime) -> dict[str, object]:
    """Show from which topics the records came."""
    clusters = clusters_by_id(by)
    origins = lineage_of(mirror, by=by, levels=LEVELS_SHOWN, clusters=clusters)
    names = {cluster_id: cluster.name for cluster_id, cluster in clusters.items()}
    return {"lineage": origin_rows(origins, names=names, now=now), "earlier": any(origin.upstream for origin in origins)}


# --- failover ---------------------------------------------------------------------------------------------------------


@_tab("gate", "mirrors/gate.html")
def gate(_request: HttpRequest, mirror: MirrorTopic, by: Actor, now: datetime) -> dict[str, object]:
    """Show the newest checks before a promotion."""
    return {
        "gate": gate_view(newest_run(mirror), now=now),
        "gate_on": mirror.link.config("migration.gate.enable") == "true",
        "may_verify": can(by, Permission.VERIFY, mirror=mirror),
        "may_operate": can(by, Permission.OPERATE_MIRROR, mirror=mirror),
    }


@_tab("reports", "mirrors/failover_reports.html")
def reports(_request: HttpRequest, mirror: MirrorTopic, by: Actor, now: datetime) -> dict[str, object]:
    """Show the newest failover reports and the consumer offsets that were clamped."""
    found = verification_queries.list_reports(mirror=mirror, limit=REPORTS_SHOWN + 1)
    clamped = task_queries.list_clamped(mirror=mirror, limit=CLAMPED_SHOWN)
    more = task_queries.count_clamped(mirror=mirror) - CLAMPED_SHOWN if len(clamped) == CLAMPED_SHOWN else 0
    return {
        "reports": [report_row(report, now=now) for report in found[:REPORTS_SHOWN]],
        "earlier_stops": len(found) > REPORTS_SHOWN,
        "clamped": [clamped_row(row) for row in clamped],
        "more_clamped": more,
        "may_operate": can(by, Permission.OPERATE_MIRROR, mirror=mirror),
    }


@_tab("restores", "mirrors/restores.html")
def restores(request: HttpRequest, mirror: MirrorTopic, _by: Actor, _now: datetime) -> dict[str, object]:
    """Show the restores of the topic, newest first, with the files of exported records; files can be missing."""
    shown, pager = page_from(request, mirror.restores.all(), size=RESTORES_SHOWN, name="restores")
    return {
        "restores": shown,
        "restores_pager": pager,
        "lost_files": [restore for restore in shown if diverged_exports.is_lost(restore)],
    }


# --- configs and history ----------------------------------------------------------------------------------------------


@_tab("configs", "mirrors/configs.html")
def configs(_request: HttpRequest, mirror: MirrorTopic, by: Actor, now: datetime) -> dict[str, object]:
    """Show the configs that are synced from the source, and the local changes that were reverted."""
    rows = synced_config_rows(followed_configs(mirror))
    return {
        "differing_configs": [row for row in rows if row.differs],
        "equal_configs": [row for row in rows if not row.differs],
        "reverts": [revert_row(revert, now=now) for revert in list_reverts(mirror)],
        "topic_url": _topic_url(mirror, by),
    }


def _topic_url(mirror: MirrorTopic, by: Actor) -> str:
    """Return the URL of the mirror topic's page among the topics of its cluster; "" if the actor finds none there."""
    cluster = mirror.link.destination
    if not cluster_topics(cluster=cluster, by=by).filter(name=mirror.name).exists():
        return ""
    return reverse("pages:cluster-topic", args=(cluster.cluster_id, mirror.name))


TRANSITIONS = Listing(
    noun=gettext_noop("state change"),
    plural=gettext_noop("state changes"),
    columns=(
        # By key, which is the order of the changes: see ``StateTransition``.
        Column(title=gettext_lazy("Time"), key="at", by=("pk",), descends=True),
        Column(title=gettext_lazy("State"), key="state", by=("to_state",)),
        Column(title=gettext_lazy("Previous state"), key="previous", by=("from_state",)),
        Column(title=gettext_lazy("Event"), key="event", by=("event",)),
        Column(title=gettext_lazy("By"), key="by", by=("by",)),
        Column(title=gettext_lazy("Details")),
    ),
    default="-at",
    search=("by", "event", "detail"),
    search_label=gettext_lazy("User, event or details"),
    filters=(replace(MIRROR_STATE, by="to_state"),),
    time="at",
    export={name: name for name in ("at", "from_state", "to_state", "event", "by", "detail")},
)


@_tab("history", "mirrors/history.html")
def history(request: HttpRequest, mirror: MirrorTopic, _by: Actor, now: datetime) -> dict[str, object] | HttpResponse:
    """List the state transitions."""
    listed = TRANSITIONS.read(request)
    found = listed.select(mirror.transitions.all())
    if listed.format:
        return listed.csv(f"history-{mirror.name}", found)
    return {"list": listed, "steps": steps(listed.page(found), now=now)}
