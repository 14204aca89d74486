"""Tabs of a link about failovers: Fail over, Failover drills, Failover readiness. Reports of failovers: ``pages``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import Permission, can, role_needed
from console.access.approval_pages import approval_need
from console.actors import Actor
from console.errors import ConsoleError, NotFoundError
from console.links import queries as link_queries
from console.links.command_presenters import operation_command
from console.links.health_queries import Observation
from console.links.pages import MIRROR_STATE, head_poll, headline, link_context, observe, polled
from console.links.presenters import readiness_view
from console.links.readiness_queries import link_readiness
from console.mirrors import bulk_actions
from console.mirrors.bulk_pages import CHANGED, LONGEST_REASON, bulk_verb_of, digest_of
from console.mirrors.operation_pages import NAMES_SHOWN, refusals_of
from console.mirrors.operation_presenters import reversibility
from console.mirrors.operation_queries import groups_at_risk
from console.mirrors.queries import MirrorSummary, mirror_page
from console.models import ClusterLink
from console.verification.drill_actions import cancel_drill, start_drill
from console.verification.failover_presenters import (
    GROUPS_SHOWN,
    FailoverRow,
    check_items,
    drill_row,
    failover_row,
    failover_tiles,
    group_rows,
    records_words,
    rpo_words,
)
from console.verification.queries import FailoverRisk, failover_risk, records_at_risk
from console.web import numbers
from console.web.health_presenters import link_health_view
from console.web.lists import EVERY, PAGE_SIZE, Column, Listed, Listing, page_from, page_request, pager, start_of
from console.web.request_handling import actor_of, done, page, problem_of, reply, status_of
from linkengine.domain.linkrules import EARLIEST, LATEST
from linkengine.domain.states import LinkMode, MirrorEvent, MirrorState

# --- Fail over --------------------------------------------------------------------------------------------------------
#
# Choose topics, review what a failover costs now, confirm it. The figures are those of the newest reports; neither cluster is
# contacted, since a failover must not need the source. The confirmation applies to the topics that were reviewed
# (``bulk_pages.digest_of``). A worker carries the operation out (``console.mirrors.bulk_actions``); the page of the operation
# shows the progress, and leads to the report.


VERB = bulk_verb_of(MirrorEvent.FAILOVER)
NOTHING_CHOSEN = {
    "code": "",
    "message": gettext_lazy("No mirror topics are selected."),
    "meaning": gettext_lazy("Select topics, or all of them, then continue."),
}
TOPICS = Listing(  # ``mirror_page`` sorts and filters
    noun=gettext_noop("mirror topic"),
    plural=gettext_noop("mirror topics"),
    columns=(
        Column(title=gettext_lazy("Mirror topic"), key="name"),
        Column(title=gettext_lazy("Health"), key="health"),
        Column(title=gettext_lazy("Records at risk"), key="risk", css="number", descends=True),
        Column(title=gettext_lazy("RPO now"), key="age", css="number", descends=True),
        Column(title=gettext_lazy("Groups to be clamped")),
    ),
    default="name",  # rows keep their places while the page is polled
    search_label=gettext_lazy("Filter by topic name"),
    filters=(
        replace(MIRROR_STATE, options=[option for option in MIRROR_STATE.options or () if option[0] != MirrorState.STOPPED]),
    ),
    export={
        "mirror_topic": "row.name",
        "source_topic": "row.source_topic",
        "state": "row.badge.code",
        "health": lambda topic: topic.row.health.badge.code if topic.row.health else "",
        "records_at_risk": "records",
        "lag_ms": "lag_ms",
        "groups_to_be_clamped": lambda topic: json.dumps(topic.groups),
    },
)
_KEPT = ("q", "state", "sort")  # parameters of the list that a selection submits


@page("links")
@require_http_methods(["GET", "POST"])
@polled(whole=False)
def fail_over(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the topics with what a failover would cost (polled); review a selection; start the confirmed failover.

    A selection is read from the form only: as a URL it would be too long, and would be in the logs of proxies.
    """
    by, now, values = actor_of(request), timezone.now(), request.POST
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    if request.method == "GET":
        return head_poll(request, link, by=by, now=now, tab="failover") or _choose(request, link)
    seen = observe(link, by=by, now=now)
    chosen = _chosen(request, link, seen, by=by)
    if not chosen:
        return _choose(request, link, problem=NOTHING_CHOSEN, status=422)
    if not values.get("confirmed"):
        return _review(request, link, seen, chosen)
    if values.get("seen") != digest_of(chosen, VERB):
        return _review(request, link, seen, chosen, problem=CHANGED, status=409)
    wrong = _wrong(request, link)
    if wrong:
        return _review(request, link, seen, chosen, status=422, **wrong)
    confirmed = values.getlist("confirmed-item")
    started = bulk_actions.start(
        link=link,
        operation=VERB.name,
        topics={summary.mirror.name: summary.mirror for summary in chosen},
        options={
            "reason": values.get("reason", "").strip(),
            "checklist": [{"text": item.text, "confirmed": item.confirmed} for item in check_items(confirmed)],
        },
        by=by,
        now=now,
    )
    return done(request, started.get_absolute_url())


def _chosen(request: HttpRequest, link: ClusterLink, seen: Observation, *, by: Actor) -> Sequence[MirrorSummary]:
    """Return the selected topics that are not stopped, or all that match the filter and can be failed over.

    Raises InvalidInputError if more match than an operation takes.
    """
    values = request.POST
    common: dict[str, Any] = {"link": link, "order": "name", "current": seen.current}
    if values.get("all"):
        query, state = values.get("q", "").strip(), values.get("state", "")
        found = mirror_page(by=by, search=query, state=state, only="stoppable", size=bulk_actions.MOST, **common)
        bulk_actions.check_number(found.total)
        return found.rows
    names = values.getlist("mirror")
    return mirror_page(by=by, names=names, only="unstopped", size=len(names) or 1, **common).rows


def _wrong(request: HttpRequest, link: ClusterLink) -> dict[str, object]:
    """Return the errors of the confirmation, by field; empty if it is complete."""
    reason = request.POST.get("reason", "").strip()
    wrong: dict[str, object] = {}
    if not reason:
        wrong["wrong_reason"] = gettext("Enter a reason. The failover report shows it.")
    elif len(reason) > LONGEST_REASON:
        wrong["wrong_reason"] = gettext("The reason has %(count)s characters; at most %(most)s are stored.") % {
            "count": numbers.count(len(reason)),
            "most": LONGEST_REASON,
        }
    if request.POST.get("confirm", "").strip() != link.name:
        wrong["wrong_name"] = gettext("The name does not match the link name.")
    return wrong


def _choose(request: HttpRequest, link: ClusterLink, *, status: int = 200, **more: object) -> HttpResponse:
    """Show the topics that are not stopped, with records at risk, time lag and the groups that would be clamped."""
    by, now = actor_of(request), timezone.now()
    if request.method == "POST":
        kept = {name: request.POST.get(name, "") for name in _KEPT}
        listed = TOPICS.read(page_request(request, request.path, urlencode(kept)))
    else:
        listed = TOPICS.read(request)
    seen = observe(link, by=by, now=now)
    risk = failover_risk(link, seen, now=now)
    rows = _rows(listed, link, seen, risk, by=by, now=now)
    if listed.format:
        return listed.csv(f"failover-{link.name}", rows)
    context = {
        "list": listed,
        "tiles": failover_tiles(risk),
        "rows": rows,
        "pick_all": numbers.count(listed.pager.total if listed.pager else 0),
        "role": role_needed(Permission.OPERATE_MIRROR),
        "holds_mirrors": link.mode != LinkMode.SOURCE,
        "sees_readiness": can(by, Permission.VIEW, link=link),
    }
    health = link_health_view(seen.health, link) if link.mode != LinkMode.SOURCE else None
    head = link_context(link, by=by, now=now, tab="failover", health=health)
    return reply(request, "links/failover.html", head | context | more, status=status)


def _rows(
    listed: Listed, link: ClusterLink, seen: Observation, risk: FailoverRisk, *, by: Actor, now: datetime
) -> list[FailoverRow]:
    """Return the topics of the requested page, or of the file, and set the pager of the list."""
    found = mirror_page(
        by=by,
        link=link,
        search=listed.query,
        state=listed.values["state"],
        only="stoppable",
        order=listed.sort,
        start=0 if listed.format else start_of(listed.request),
        size=EVERY if listed.format else PAGE_SIZE,
        severities=seen.health.severities,
        at_risk=risk.records,
        current=seen.current,
    )
    listed.pager = pager(listed.request, start=found.start, shown=len(found.rows), total=found.total)
    mirrors = [summary.mirror for summary in found.rows]
    groups = groups_at_risk(link, mirrors, rows=seen.partitions)
    return [
        failover_row(
            summary,
            missing=risk.records.get(summary.mirror.pk),
            groups=groups.get(summary.mirror.pk, ()),
            health=seen.health.status_of(summary.mirror.pk),
            now=now,
        )
        for summary in found.rows
    ]


def _review(
    request: HttpRequest,
    link: ClusterLink,
    seen: Observation,
    chosen: Sequence[MirrorSummary],
    *,
    status: int = 200,
    **more: object,
) -> HttpResponse:
    """Show what a failover of the chosen topics costs, the checklist for clients, and the confirmation."""
    by, now, values = actor_of(request), timezone.now(), request.POST
    approval = approval_need(link, VERB.event, [summary.mirror for summary in chosen], by=by, now=now)
    refusals = refusals_of(link, chosen, VERB, unapproved=approval.missing if approval else (), now=now)
    possible = [summary for summary in chosen if summary.mirror.name not in refusals.names]
    mirrors = [summary.mirror for summary in possible]
    at_risk = {mirror.pk: records_at_risk(mirror, seen) for mirror in mirrors}
    groups = groups_at_risk(link, mirrors, rows=seen.partitions)
    known = [count for count in at_risk.values() if count is not None]
    clamped = group_rows(groups, {mirror.pk: mirror.name for mirror in mirrors})
    context = {
        "total": len(chosen),
        "refusals": refusals,
        "approval": approval,
        "at_risk": records_words(sum(known), unknown=len(at_risk) - len(known), topics=len(possible)),
        "rpo": rpo_words(_worst_rpo(possible)),
        "rows": [
            failover_row(
                summary,
                missing=at_risk[summary.mirror.pk],
                groups=groups.get(summary.mirror.pk, ()),
                health=seen.health.status_of(summary.mirror.pk),
                now=now,
            )
            for summary in possible[:NAMES_SHOWN]
        ],
        "more_names": max(0, len(possible) - NAMES_SHOWN),
        "groups": clamped[:GROUPS_SHOWN],
        "more_groups": max(0, len(clamped) - GROUPS_SHOWN),
        "group_count": len({row.group for row in clamped}),
        "unavailable": refusals.rows[:NAMES_SHOWN],
        "reversibility": reversibility(MirrorEvent.FAILOVER, bidirectional=link.mode == LinkMode.BIDIRECTIONAL),
        "checklist": check_items(values.getlist("confirmed-item")),
        "reason": values.get("reason", ""),
        "longest_reason": LONGEST_REASON,
        "confirm": values.get("confirm", ""),
        "command": operation_command(request, link, VERB.name, [summary.mirror.name for summary in chosen]),
        "measured": numbers.exact(seen.read_at),
        "repeated": [*_selection(request, chosen), ("seen", digest_of(chosen, VERB))],
    }
    health = link_health_view(seen.health, link)
    head = link_context(link, by=by, now=now, tab="failover", last=gettext("Fail over"), health=health)
    return reply(request, "links/failover_review.html", head | context | more, status=status)


def _worst_rpo(chosen: Sequence[MirrorSummary]) -> int | None:
    """Return the largest time lag; None if that of any topic is unknown."""
    known = [summary.lag_ms for summary in chosen if summary.lag_ms is not None]
    return max(known) if len(known) == len(chosen) else None


def _selection(request: HttpRequest, chosen: Sequence[MirrorSummary]) -> list[tuple[str, str]]:
    """Return the hidden fields with which the confirmation submits the same selection."""
    if request.POST.get("all"):
        return [("all", "1"), ("q", request.POST.get("q", "")), ("state", request.POST.get("state", ""))]
    return [("mirror", summary.mirror.name) for summary in chosen]


# --- Failover drills and Failover readiness ---------------------------------------------------------------------------


DRILLS_PER_PAGE = 10  # reports are long, and the page is polled every second
_STARTS = (LATEST, EARLIEST)


@page("links")
@require_http_methods(["GET", "POST"])
@polled()
def drills(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the drills (polled like the overview); start one."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    if request.method == "GET":
        return head_poll(request, link, by=by, now=now, tab="drills") or _drills_page(request, link)
    start = request.POST.get("start", LATEST)
    try:
        start_drill(link=link, start_spec=start if start in _STARTS else LATEST, by=by, now=now)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        return _drills_page(request, link, problem=problem_of(error), status=status_of(error))
    return done(request, reverse("pages:link-drills", args=link.url_args), gettext("Failover drill started."))


@page("links")
@require_POST
def cancel_running_drill(request: HttpRequest, cluster_id: str, link_name: str, drill_id: int) -> HttpResponse:
    """Cancel a drill that is in progress."""
    by = actor_of(request)
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    drill = link.drills.select_related("link__destination__environment").filter(pk=drill_id).first()
    if drill is None:
        raise NotFoundError(
            gettext("Drill %(number)s does not exist. Check the number.") % {"number": drill_id}, code="UNKNOWN_DRILL"
        )
    try:
        cancel_drill(drill=drill, by=by, now=timezone.now())
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        return _drills_page(request, link, problem=problem_of(error), status=status_of(error))
    message = gettext("Drill %(number)s canceled. It is cleaned up now.") % {"number": drill_id}
    return done(request, reverse("pages:link-drills", args=link.url_args), message)


@page("links")
@require_GET
@polled()
def readiness(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the failover readiness, polled like the overview. The other tabs of its group load it as a fragment."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    seen = observe(link, by=by, now=now)
    found, view = link_readiness(link, seen, now=now), headline(link, by=by, now=now, seen=seen)
    context = link_context(link, by=by, now=now, tab="readiness", last=gettext("Failover readiness"), health=view)
    more = {"readiness": readiness_view(found), "uncounted": len(seen.health.mirrors) - len(seen.stoppable)}
    return reply(request, "links/readiness.html", context | more)


def _drills_page(request: HttpRequest, link: ClusterLink, *, status: int = 200, **more: object) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    shown, pager = page_from(request, link.drills.all(), size=DRILLS_PER_PAGE)
    context = {
        "drills": [drill_row(drill, now=now) for drill in shown],
        "pager": pager,
        "may_drill": can(by, Permission.OPERATE_MIRROR, link=link) and can(by, Permission.MANAGE_MIRROR, link=link),
        # After a refused action the address of the page is that of the action, which cannot be polled.
        "poll_url": "" if request.method == "GET" else reverse("pages:link-drills", args=link.url_args),
    }
    return reply(request, "links/drills.html", link_context(link, by=by, now=now, tab="drills") | context | more, status=status)
