"""The pages of a mirror topic: the overview, and a tab for each kind of data.

All are polled every second; a poll gets 204 if nothing has changed. A tab reads its own rows only, so that the number
of queries of a page does not grow with the data of the mirror.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET

from console.access import Permission, can
from console.actors import Actor
from console.clusters.queries import cluster_topics
from console.history.pages import MIRROR_SPAN, graph_context, range_of, segments
from console.history.presenters import charts_of
from console.history.queries import mirror_history
from console.links import task_queries
from console.links.form_presenters import curl
from console.links.group_presenters import clamped_row
from console.links.health_queries import config_errors
from console.links.pages import MIRROR_STATE
from console.links.queries import version_of
from console.mirrors import queries as mirror_queries
from console.mirrors.lineage import clusters_by_id, lineage_of
from console.mirrors.operation_pages import restores_of
from console.mirrors.page_parts import copied_words, mirror_context, mirror_tiles, restore_url
from console.mirrors.pages import rest_url
from console.mirrors.presenters import gap_groups, held_back, origin_rows, partition_row, steps
from console.mirrors.queries import followed_configs, list_reverts
from console.mirrors.reparenting import possible_links
from console.models import MirrorTopic
from console.verification import queries as verification_queries
from console.verification.presenters import coverage_view, gate_view, run_view
from console.verification.report_presenters import report_row
from console.verification.rules import newest_run
from console.web.errors import error_note, transition_notes
from console.web.lists import Column, Listing
from console.web.numbers import revert_row, synced_config_rows
from console.web.polling import is_unchanged
from console.web.request_handling import actor_of, page, reply
from linkengine.domain.states import GapReason

if TYPE_CHECKING:
    from console.web.request_handling import View

    Read = Callable[[HttpRequest, MirrorTopic, Actor, datetime], dict[str, object] | HttpResponse]

REPORTS_SHOWN = 5
CLAMPED_SHOWN = 100
LEVELS_SHOWN = 2  # links of the chain that the lineage shows; each takes a query


def _tab(name: str, template: str) -> Callable[[Read], View]:
    """Create the view of a tab from a function that returns the template context of the tab itself, or a file."""

    def decorate(read: Read) -> View:
        @page("links")
        @require_GET
        @wraps(read)
        def view(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
            by, now, names = actor_of(request), timezone.now(), {"cluster_id": cluster_id, "link_name": link_name}
            mirror = mirror_queries.get_mirror_only(**names, mirror_name=mirror_name, by=by)
            if is_unchanged(request, version_of(mirror.link), now=now):
                return HttpResponse(status=204)
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
    """Show the restores of the topic, with the files of exported records."""
    return restores_of(request, mirror)


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
