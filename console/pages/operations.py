"""Pause, resume, promote, fail over, delete: a confirmation that says what is at stake, then the action.

The confirmation is a page of its own; with JavaScript the same form opens in a dialog.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from console.access import check_permission
from console.actions import operations, restoring
from console.actions.reversing import REVERSALS, risks_of
from console.actors import Actor
from console.errors import ConflictError, ConsoleError, NotFoundError
from console.gatepolicies import gate_closed
from console.models import ClusterLink, MirrorTopic
from console.pages.doors import actor_of, done, page, problem_of, reply, status_of
from console.pages.linkpages import crumbs
from console.pages.mirrorpages import mirror_head, mirror_url
from console.policies import permission_for, why_not
from console.presenters import numbers
from console.presenters.groups import readable_name
from console.presenters.links import link_url
from console.presenters.verbs import VERBS, Verb, explanation, needs_typed_name, reversibility
from console.queries import links as link_queries
from console.queries import mirrors as mirror_queries
from console.queries.cautions import cautions_of
from console.queries.mirrors import MirrorSummary
from console.queries.previews import preview
from linkengine.domain.states import MirrorEvent

NAMES_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """What a step may cost, as known now."""

    label: str
    value: str
    age: str
    words: str


@page("links")
@require_http_methods(["GET", "POST"])
def operate(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str, *, operation: str) -> HttpResponse:
    """Confirm an operation on one mirror topic; 409 in place where its state does not allow it any more."""
    by, now, verb = actor_of(request), timezone.now(), verb_of(operation)
    mirror = _find(cluster_id, link_name, mirror_name, verb=verb, by=by)
    check_permission(by, permission_for(verb.event), mirror=mirror)
    if request.method == "GET":
        problem = refused(mirror, verb.event, now=now)
        return _confirmation(request, mirror, verb, problem=problem, refused=bool(problem), status=409 if problem else 200)
    typed = needs_typed_name(verb.event, bidirectional=_is_bidirectional(mirror.link))
    if typed and request.POST.get("confirm", "").strip() != mirror.name:
        words, seen = "This is not the name of the mirror topic.", request.POST.get("seen", "")
        return _confirmation(request, mirror, verb, wrong_name=words, seen=seen, status=422)
    try:
        _carry_out(request, mirror, verb, by=by, now=now)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        fresh = _find(cluster_id, link_name, mirror_name, verb=verb, by=by)
        hopeless = bool(refused(fresh, verb.event, now=now))
        return _confirmation(request, fresh, verb, problem=problem_of(error), refused=hopeless, status=status_of(error))
    url = link_url(mirror.link) if verb.event is MirrorEvent.DELETE else mirror_url(mirror)
    return done(request, url, verb.done.format(name=mirror.name))


def _carry_out(request: HttpRequest, mirror: MirrorTopic, verb: Verb, *, by: Actor, now: datetime) -> None:
    if verb.event is MirrorEvent.DELETE:
        operations.delete_as_seen(mirror=mirror, seen=request.POST.get("seen", ""), by=by, now=now)
    else:
        operations.operate(mirror=mirror, operation=verb.event, by=by, now=now)


def refused(mirror: MirrorTopic, event: MirrorEvent, *, now: datetime) -> dict[str, str]:
    """Word why an operation is not possible now; empty where it is."""
    reason = why_not(mirror, event)
    if reason:
        return problem_of(ConflictError(reason))
    closed = gate_closed(mirror, now=now) if event is MirrorEvent.PROMOTE else ""
    return problem_of(ConflictError(closed, code="GATE_CLOSED")) if closed else {}


def _find(cluster_id: str, link_name: str, mirror_name: str, *, verb: Verb, by: Actor) -> MirrorTopic:
    """Answer the mirror; a restore may be asked for on an ordinary topic whose former mirror is stopped."""
    try:
        return mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    except NotFoundError:
        if verb.event is not MirrorEvent.RESTORE:
            raise
        link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        found = restoring.candidate(link, mirror_name, by)
        if found is None:
            raise
        return found


def effect_of(mirror: MirrorTopic, verb: Verb) -> dict[str, object]:
    """Say what the step would do: configs and consumer groups it changes, records it drops."""
    told = preview(mirror, verb.event) if mirror.pk else None
    offsets = told.groups_clamped if told else ()
    points = None
    if verb.event is MirrorEvent.RESTORE:
        points = restoring.count_divergence(mirror.link, [mirror]).get(mirror.name)
    return {
        "groups": [replace(one, group=readable_name(one.group)) for one in offsets[:NAMES_SHOWN]],
        "group_count": len({one.group for one in offsets}),
        "more_offsets": max(0, len(offsets) - NAMES_SHOWN),
        "configs": sorted(told.configs_to_change.items()) if told else (),
        "restores": verb.event is MirrorEvent.RESTORE,
        "dropped": None if points is None else numbers.count(sum(one.diverged for one in points)),
        "points": [one for one in points or () if one.diverged][:NAMES_SHOWN],
    }


def risk_of(summary: MirrorSummary, verb: Verb) -> Risk | None:
    """Say how many records stay behind, as far as anybody knows."""
    if not verb.loses_lag and verb.event is not MirrorEvent.PROMOTE:
        return None
    total = summary.missing if verb.loses_lag else summary.total_lag
    words = {
        True: "The source is asked no more, so what it received since the last sample is not counted.",
        False: "The promotion waits until the lag is 0.",
    }[verb.loses_lag]
    if total is None:
        words = "Not all partitions have been measured, so nobody can say how many records the mirror lacks. " + words
    elif verb.loses_lag and total != summary.total_lag:
        words = "Some wait behind an open transaction; aborted records and markers among them would be no loss. " + words
    return Risk(
        label="Records at risk" if verb.loses_lag else "Lag, all partitions",
        value="unknown" if total is None else numbers.count(total),
        age=numbers.lag_time(summary.lag_ms) if summary.lag_ms is not None else "",
        words=words,
    )


def _confirmation(request: HttpRequest, mirror: MirrorTopic, verb: Verb, *, status: int = 200, **more: object) -> HttpResponse:
    now, bidirectional = timezone.now(), _is_bidirectional(mirror.link)
    head = mirror_head(mirror, now=now)
    context = {
        "mirror": head,
        "verb": verb,
        "explains": explanation(verb, state=mirror.state, since=mirror.state_since),
        "seen": operations.seen_state(mirror) if verb.event is MirrorEvent.DELETE else "",
        "action": f"{head.url}{verb.event}/",
        "back": head.url if mirror.pk else link_url(mirror.link),  # a topic that never was a mirror has no page yet
        "typed": needs_typed_name(verb.event, bidirectional=bidirectional),
        "final_words": reversibility(verb.event, bidirectional=bidirectional),
        "risk": risk_of(mirror_queries.summarize(mirror, now=now), verb) if mirror.pk else None,
        "effect": effect_of(mirror, verb),
        "warnings": _warnings(mirror, verb.event, by=actor_of(request)) if mirror.pk else (),
        "confirm": request.POST.get("confirm", ""),
        "crumbs": crumbs(mirror.link, last=f"{verb.label} {mirror.name}"),
        "environment_name": mirror.link.destination.environment.name,
    }
    return reply(request, "mirrors/operate.html", context | more, status=status)


def _warnings(mirror: MirrorTopic, event: MirrorEvent, *, by: Actor) -> tuple[str, ...]:
    asks = event in REVERSALS and not why_not(mirror, event)
    risks = risks_of(mirror.link, [mirror]).get(mirror.name) if asks else None
    return cautions_of(mirror, event, by=by, risks=risks)


def verb_of(operation: str) -> Verb:
    """Answer the words of an operation; raise NotFoundError where there is none of this name."""
    verb = next((verb for event, verb in VERBS.items() if event == operation), None)
    if verb is None:
        raise NotFoundError(f"There is no operation {operation!r} on mirror topics.")
    return verb


def _is_bidirectional(link: ClusterLink) -> bool:
    return link.mode == "BIDIRECTIONAL"
