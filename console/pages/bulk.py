"""An operation on several mirror topics of a link: the selected ones, or all that match the filter of the list.

The confirmation shows the effects on each topic. A confirmation of "all" applies to the topics that it showed: if the list has
changed since, nothing is done and the confirmation is shown again.
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
from console.actions.reversing import risks_of
from console.actors import Actor
from console.mirrors import loss
from console.models import ClusterLink
from console.pages.linkpages import crumbs, link_head
from console.pages.operations import NAMES_SHOWN, refused, verb_of
from console.pages.request_handling import actor_of, done, page, reply
from console.presenters import numbers
from console.presenters.links import link_url
from console.presenters.mirrors import MirrorRow, mirror_row
from console.presenters.verbs import Verb, needs_typed_name, reversibility
from console.queries import links as link_queries
from console.queries import mirrorpages
from console.queries.cautions import REVERSALS, WARNED, cautions_of_many
from console.queries.mirrors import MirrorSummary
from console.queries.previews import GroupAtRisk, groups_at_risk
from linkengine.domain.states import MirrorState

MOST = 10_000  # mirror topics per request; for more, use the filter
CHANGED = {
    "code": "CONFLICT",
    "message": "The list of mirror topics has changed since you opened this page. Nothing was changed.",
    "meaning": "Review the new list below and confirm again, or go back.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """The known effects of the operation on a mirror topic."""

    row: MirrorRow
    missing: str  # records that would not be copied
    groups: int  # groups whose offsets would be clamped


@page("links")
@require_http_methods(["GET", "POST"])
def operate_many(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the confirmation; perform the operation on each topic separately and list the topics that failed."""
    by, now = actor_of(request), timezone.now()
    values = request.POST if request.method == "POST" else request.GET
    verb = verb_of(values.get("operation", ""))
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    chosen = _chosen(values, link=link, by=by)
    if request.method == "GET" or not chosen:
        return _confirmation(request, link, verb, chosen, status=200 if chosen else 422)
    if values.get("all") and values.get("seen") != _digest(chosen):
        return _confirmation(request, link, verb, chosen, problem=CHANGED, status=409)
    if _is_typed(verb, link) and values.get("confirm", "").strip() != link.name:
        return _confirmation(request, link, verb, chosen, wrong_name="The name does not match the link name.", status=422)
    results = operations.operate_many(
        link=link, names=[summary.mirror.name for summary in chosen], operation=verb.event, by=by, now=now
    )
    failed = [result for result in results if result.error_code]
    if not failed:
        return done(request, link_url(link), f"{verb.label} requested for {numbers.plural(len(results), 'mirror topic')}.")
    return _confirmation(request, link, verb, chosen, failed=failed, asked=len(results), status=409)


def _chosen(values: QueryDict, *, link: ClusterLink, by: Actor) -> Sequence[MirrorSummary]:
    """Return the selected mirror topics, or all that match the filter of the list."""
    if not values.get("all"):
        names = values.getlist("mirror")
        return mirrorpages.mirror_page(by=by, link=link, names=names, order="name", size=len(names) or 1).rows
    query, state = values.get("q", "").strip(), values.get("state", "")
    return mirrorpages.mirror_page(by=by, link=link, search=query, state=state, order="name", size=MOST).rows


def _digest(chosen: Sequence[MirrorSummary]) -> str:
    """Return a digest that identifies the list of mirror topics."""
    return sha256("\n".join(summary.mirror.name for summary in chosen).encode()).hexdigest()[:32]


def _confirmation(
    request: HttpRequest, link: ClusterLink, verb: Verb, chosen: Sequence[MirrorSummary], *, status: int = 200, **more: object
) -> HttpResponse:
    now = timezone.now()
    values = request.POST if request.method == "POST" else request.GET
    groups = groups_at_risk(link, [summary.mirror for summary in chosen]) if verb.loses_lag else {}
    at_risk = loss.records_at_risk_of([summary.mirror for summary in chosen]) if verb.loses_lag else {}
    unavailable = () if "failed" in more else _unavailable(link, chosen, verb, now=now)
    context = {
        "link": link_head(link, now=now),
        "crumbs": crumbs(link, last=f"{verb.label} mirror topics"),
        "environment_name": link.destination.environment.name,
        "verb": verb,
        "stakes": [
            _stake(summary, groups, missing=at_risk.get(summary.mirror.pk), now=now) for summary in chosen[:NAMES_SHOWN]
        ],
        "group_count": len({row.group for rows in groups.values() for row in rows}),
        "unavailable": unavailable,
        "warnings": () if "failed" in more else _warnings(link, chosen, verb, refused=unavailable, by=actor_of(request)),
        "warned": verb.event in WARNED,
        "total": len(chosen),
        "more_names": max(0, len(chosen) - NAMES_SHOWN),
        "at_risk": _at_risk(chosen, at_risk) if verb.loses_lag else "",
        "typed": _is_typed(verb, link),
        "reversibility": reversibility(verb.event, bidirectional=link.mode == "BIDIRECTIONAL"),
        "confirm": request.POST.get("confirm", ""),
        "repeated": _repeated(values, chosen),
    }
    return reply(request, "mirrors/operate_many.html", context | more, status=status)


def _repeated(values: QueryDict, chosen: Sequence[MirrorSummary]) -> list[tuple[str, str]]:
    """Return the hidden fields with which the confirmation submits the same selection."""
    if not values.get("all"):
        return [("mirror", summary.mirror.name) for summary in chosen]
    return [("all", "1"), ("q", values.get("q", "")), ("state", values.get("state", "")), ("seen", _digest(chosen))]


def _at_risk(chosen: Sequence[MirrorSummary], missing: Mapping[int, int | None]) -> str:
    """Return the sum of the records at risk, or a lower bound if some are unknown. Stopped mirrors lose no more records."""
    counts = [missing[summary.mirror.pk] for summary in chosen if summary.mirror.state != MirrorState.STOPPED]
    known = [count for count in counts if count is not None]
    unknown = len(counts) - len(known)
    if not known:
        return "unknown" if unknown else "0"
    total = numbers.count(sum(known))
    return f"at least {total}; unknown for {numbers.plural(unknown, 'topic')}" if unknown else total


def _stake(summary: MirrorSummary, groups: Mapping[int, Sequence[GroupAtRisk]], *, missing: int | None, now: datetime) -> Stake:
    return Stake(
        row=mirror_row(summary, now=now),
        missing="unknown" if missing is None else numbers.count(missing),
        groups=len({row.group for row in groups.get(summary.mirror.pk, ())}),
    )


def _unavailable(link: ClusterLink, chosen: Sequence[MirrorSummary], verb: Verb, *, now: datetime) -> list[tuple[str, str]]:
    """Return (name, reason) of the listed topics for which the operation would be refused now."""
    prefetch_related_objects([link], "configs")  # read once for the gate checks of all topics
    rows = []
    for summary in chosen[:NAMES_SHOWN]:
        summary.mirror.link = link
        problem = refused(summary.mirror, verb.event, now=now)
        if problem:
            rows.append((summary.mirror.name, problem["message"]))
    return rows


def _warnings(
    link: ClusterLink, chosen: Sequence[MirrorSummary], verb: Verb, *, refused: Sequence[tuple[str, str]], by: Actor
) -> list[tuple[str, Sequence[str]]]:
    """Return (name, warnings) of the listed topics, except of those for which the operation would be refused now."""
    impossible = {name for name, _reason in refused}
    mirrors = [summary.mirror for summary in chosen[:NAMES_SHOWN] if summary.mirror.name not in impossible]
    risks = risks_of(link, mirrors) if verb.event in REVERSALS else {}
    found = cautions_of_many(mirrors, verb.event, by=by, risks=risks)
    return [(mirror.name, found[mirror.pk]) for mirror in mirrors if found[mirror.pk]]


def _is_typed(verb: Verb, link: ClusterLink) -> bool:
    return needs_typed_name(verb.event, bidirectional=link.mode == "BIDIRECTIONAL")
