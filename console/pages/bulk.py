"""One operation on several mirror topics of a link: those that were ticked, or all that a filter leaves.

The confirmation says what is at stake for each. Whoever confirms "all" confirms those that were shown: where the list has
changed meanwhile, nothing is done and it is shown anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from django.db.models import prefetch_related_objects
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from console.actions import operations
from console.actors import Actor
from console.models import ClusterLink
from console.pages.doors import actor_of, done, page, reply
from console.pages.linkpages import crumbs, link_head
from console.pages.operations import NAMES_SHOWN, refused, verb_of
from console.presenters import numbers
from console.presenters.links import link_url
from console.presenters.mirrors import MirrorRow, mirror_row
from console.presenters.verbs import Verb, needs_typed_name, reversibility
from console.queries import links as link_queries
from console.queries import mirrorpages
from console.queries.mirrors import MirrorSummary
from console.queries.previews import GroupAtRisk, groups_at_risk
from linkengine.domain.states import MirrorState

MOST = 10_000  # mirror topics at once; more than that is done in parts, by the filter
CHANGED = {
    "code": "CONFLICT",
    "message": "The list of mirror topics has changed since you were asked, so nothing was done.",
    "meaning": "Below is what would be done now; confirm it, or go back.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """What the operation costs for one mirror topic, as far as anybody knows."""

    row: MirrorRow
    missing: str  # records that would stay behind
    groups: int  # that would be set back


@page("links")
@require_http_methods(["GET", "POST"])
def operate_many(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Confirm an operation on several mirror topics; each succeeds or fails by itself, and the answer tells which."""
    by, now = actor_of(request), timezone.now()
    values = request.POST if request.method == "POST" else request.GET
    verb = verb_of(values.get("operation", ""))
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    chosen = _chosen(values, link=link, by=by)
    if request.method == "GET" or not chosen:
        return _confirmation(request, link, verb, chosen, status=200 if chosen else 422)
    if values.get("all") and values.get("seen") != _mark(chosen):
        return _confirmation(request, link, verb, chosen, problem=CHANGED, status=409)
    if _is_typed(verb, link) and values.get("confirm", "").strip() != link.name:
        return _confirmation(request, link, verb, chosen, wrong_name="This is not the name of the link.", status=422)
    results = operations.operate_many(
        link=link, names=[one.mirror.name for one in chosen], operation=verb.event, by=by, now=now
    )
    failed = [one for one in results if one.error_code]
    if not failed:
        return done(request, link_url(link), f"{verb.label}: {numbers.plural(len(results), 'mirror topic')} accepted.")
    return _confirmation(request, link, verb, chosen, failed=failed, asked=len(results), status=409)


def _chosen(values: QueryDict, *, link: ClusterLink, by: Actor) -> Sequence[MirrorSummary]:
    """Answer those that were ticked, or all that the filter of the list leaves."""
    if not values.get("all"):
        names = values.getlist("mirror")
        return mirrorpages.mirror_page(by=by, link=link, names=names, order="name", size=len(names) or 1).rows
    query, state = values.get("q", "").strip(), values.get("state", "")
    return mirrorpages.mirror_page(by=by, link=link, search=query, state=state, order="name", size=MOST).rows


def _mark(chosen: Sequence[MirrorSummary]) -> str:
    """Answer what tells this choice from every other."""
    return sha256("\n".join(one.mirror.name for one in chosen).encode()).hexdigest()[:32]


def _confirmation(
    request: HttpRequest, link: ClusterLink, verb: Verb, chosen: Sequence[MirrorSummary], *, status: int = 200, **more: object
) -> HttpResponse:
    now = timezone.now()
    values = request.POST if request.method == "POST" else request.GET
    groups = groups_at_risk(link, [one.mirror for one in chosen]) if verb.loses_lag else {}
    context = {
        "link": link_head(link, now=now),
        "crumbs": crumbs(link, last=f"{verb.label} several"),
        "environment_name": link.destination.environment.name,
        "verb": verb,
        "stakes": [_stake(one, groups, now=now) for one in chosen[:NAMES_SHOWN]],
        "group_count": len({one.group for rows in groups.values() for one in rows}),
        "hindered": () if "failed" in more else _hindrances(link, chosen, verb, now=now),
        "total": len(chosen),
        "more_names": max(0, len(chosen) - NAMES_SHOWN),
        "at_risk": _at_risk(chosen),
        "typed": _is_typed(verb, link),
        "final_words": reversibility(verb.event, bidirectional=link.mode == "BIDIRECTIONAL"),
        "confirm": request.POST.get("confirm", ""),
        "repeated": _repeated(values, chosen),
    }
    return reply(request, "mirrors/operate_many.html", context | more, status=status)


def _repeated(values: QueryDict, chosen: Sequence[MirrorSummary]) -> list[tuple[str, str]]:
    """Answer the fields with which the confirmation asks for the same choice."""
    if not values.get("all"):
        return [("mirror", one.mirror.name) for one in chosen]
    return [("all", "1"), ("q", values.get("q", "")), ("state", values.get("state", "")), ("seen", _mark(chosen))]


def _at_risk(chosen: Sequence[MirrorSummary]) -> str:
    """Add up what would stay behind, a lower bound where it is not known of all; what is stopped loses nothing more."""
    counts = [one.missing for one in chosen if one.mirror.state != MirrorState.STOPPED]
    known = [count for count in counts if count is not None]
    unknown = len(counts) - len(known)
    if not known:
        return "unknown" if unknown else "0"
    sure = numbers.count(sum(known))
    return f"at least {sure}; not known of {numbers.plural(unknown, 'topic')}" if unknown else sure


def _stake(summary: MirrorSummary, groups: Mapping[int, Sequence[GroupAtRisk]], *, now: datetime) -> Stake:
    return Stake(
        row=mirror_row(summary, now=now),
        missing="unknown" if summary.missing is None else numbers.count(summary.missing),
        groups=len({one.group for one in groups.get(summary.mirror.pk, ())}),
    )


def _hindrances(link: ClusterLink, chosen: Sequence[MirrorSummary], verb: Verb, *, now: datetime) -> list[tuple[str, str]]:
    """Say beforehand which of those shown would be refused now, and why, as the confirmation of one does."""
    prefetch_related_objects([link], "configs")  # the gate's, once for all
    found = []
    for one in chosen[:NAMES_SHOWN]:
        one.mirror.link = link
        problem = refused(one.mirror, verb.event, now=now)
        if problem:
            found.append((one.mirror.name, problem["message"]))
    return found


def _is_typed(verb: Verb, link: ClusterLink) -> bool:
    return needs_typed_name(verb.event, bidirectional=link.mode == "BIDIRECTIONAL")
