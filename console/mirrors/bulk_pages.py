"""Operations on several mirror topics of a link: the confirmation, and the Operations section with the results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop, ngettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import Permission, can, visible_operations
from console.access.approval_pages import approval_need
from console.actors import Actor
from console.errors import ConsoleError, NotFoundError
from console.links import queries as link_queries
from console.links.command_presenters import operation_command
from console.links.pages import crumbs, link_head
from console.links.pairs import RelatedRows
from console.mirrors import bulk_actions, figures, operation_actions, operation_queries, reversals
from console.mirrors import queries as mirror_queries
from console.mirrors.operation_pages import NAMES_SHOWN, checked_of, refusals_of
from console.mirrors.operation_presenters import (
    BULK_VERBS,
    OPERATION_BADGES,
    TOPIC_BADGES,
    BulkVerb,
    TopicRow,
    needs_typed_name,
    operation_row,
    reversibility,
    topic_row,
)
from console.mirrors.operation_queries import REVERSALS, WARNED, GroupAtRisk, cautions_of_many, groups_at_risk
from console.mirrors.presenters import MirrorRow, mirror_row
from console.mirrors.queries import MirrorSummary
from console.mirrors.reversals import risks_of
from console.models import BulkOperation, ClusterLink, MirrorTopic
from console.web import numbers
from console.web.lists import MOST_DIGITS, Column, Filter, Listed, Listing, page_request
from console.web.numbers import moment
from console.web.polling import is_unchanged, seen_token
from console.web.request_handling import Crumb, actor_of, done, page, problem_of, reply, status_of
from linkengine.domain.states import MirrorEvent, MirrorState

# --- confirmation of an operation -------------------------------------------------------------------------------------
#
# The topics are the selected topics, or all that match the filter of the list.
#
# The confirmation shows the effects on each topic and applies to the topics that it showed: if the list has changed since,
# nothing is done and the confirmation is shown again. A worker carries the operation out (``console.mirrors.bulk_actions``).


LONGEST_REASON = 500  # characters of the reason of a failover
CHANGED = {
    "code": "CONFLICT",
    "message": gettext_lazy("The list of mirror topics has changed since you opened this page. Nothing was changed."),
    "meaning": gettext_lazy("Review the new list below and confirm again, or go back."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """The known effects of the operation on a mirror topic."""

    row: MirrorRow
    lost: str  # records that would not be copied, or would be deleted
    groups: int  # groups whose offsets would be clamped


@page("links")
@require_http_methods(["GET", "POST"])
def operate_many(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the confirmation of a selection; start the confirmed operation and show its page.

    A selection is read from the form only: as a URL it would be too long, and would be in the logs of proxies.
    """
    by, now, values = actor_of(request), timezone.now(), request.POST
    verb = bulk_verb_of(values.get("operation", "") or request.GET.get("operation", ""))
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    retried = _retried(values, link=link, by=by)
    chosen = _chosen(values, link=link, retried=retried, by=by)
    if not chosen or not values.get("confirmed"):
        return _confirmation(request, link, verb, chosen, status=200 if chosen else 422)
    if values.get("seen") != digest_of(chosen, verb):
        return _confirmation(request, link, verb, chosen, problem=CHANGED, status=409)
    if _is_typed(verb, link) and values.get("confirm", "").strip() != link.name:
        return _confirmation(
            request, link, verb, chosen, wrong_name=gettext("The name does not match the link name."), status=422
        )
    started = bulk_actions.start(
        link=link,
        operation=verb.name,
        topics={summary.mirror.name: summary.mirror for summary in chosen},
        options=_options(values, verb, retried),
        retry_of=retried,
        by=by,
        now=now,
    )
    return done(request, started.get_absolute_url())


def _options(values: QueryDict, verb: BulkVerb, retried: BulkOperation | None) -> dict[str, object]:
    """Return the values of the request that failover reports show; a retry takes them from the first operation."""
    if verb.event is not MirrorEvent.FAILOVER:
        return {}
    reason = values.get("reason", "").strip()[:LONGEST_REASON]
    known: dict[str, object] = dict(retried.options) if retried else {}
    return known | {"reason": reason} if reason else known


def bulk_verb_of(name: str) -> BulkVerb:
    """Return the display of an operation on several topics; raise NotFoundError if it does not exist."""
    if name not in BULK_VERBS:
        raise NotFoundError(gettext("Mirror topics have no operation %(name)s.") % {"name": repr(name)})
    return BULK_VERBS[name]


def _retried(values: QueryDict, *, link: ClusterLink, by: Actor) -> BulkOperation | None:
    """Return the operation whose failed topics are selected; None if it is a retry of no operation."""
    key = values.get("retry", "")
    if not key:
        return None
    found = visible_operations(by).filter(link=link, pk=int(key) if key.isdecimal() and len(key) <= MOST_DIGITS else 0).first()
    if found is None:
        raise NotFoundError(gettext("The operation that should be retried does not exist."), code="UNKNOWN_OPERATION")
    return found


def _chosen(values: QueryDict, *, link: ClusterLink, retried: BulkOperation | None, by: Actor) -> Sequence[MirrorSummary]:
    """Return the selected mirror topics, all that match the filter of the list, or those that failed in an operation.

    Raises InvalidInputError if more match than an operation takes.
    """
    if values.get("all"):
        query, state, most = values.get("q", "").strip(), values.get("state", ""), bulk_actions.MOST
        found = mirror_queries.mirror_page(by=by, link=link, search=query, state=state, order="name", size=most)
        bulk_actions.check_number(found.total)
        return found.rows
    names = bulk_actions.failed_names(retried) if retried else values.getlist("mirror")
    return mirror_queries.mirror_page(by=by, link=link, names=names, order="name", size=len(names) or 1).rows


def digest_of(chosen: Sequence[MirrorSummary], verb: BulkVerb) -> str:
    """Return a digest of the mirrors that the confirmation shows. That of a deletion or restore depends on their states too.

    A mirror that has been stopped since may have become the only copy of records that applications write.
    """
    states = verb.event in (MirrorEvent.DELETE, MirrorEvent.RESTORE)
    lines = [f"{row.mirror.pk} {operation_actions.seen_state(row.mirror) if states else ''}" for row in chosen]
    return sha256("\n".join(lines).encode()).hexdigest()[:32]


def _confirmation(
    request: HttpRequest,
    link: ClusterLink,
    verb: BulkVerb,
    chosen: Sequence[MirrorSummary],
    *,
    status: int = 200,
    **more: object,
) -> HttpResponse:
    now, by = timezone.now(), actor_of(request)
    mirrors = [summary.mirror for summary in chosen]
    groups = groups_at_risk(link, mirrors) if verb.loses_lag else {}
    at_risk = _lost(mirrors, verb)
    approval = approval_need(link, verb.event, mirrors, by=by, now=now)
    related = RelatedRows([summary.mirror for summary in checked_of(chosen, verb)])
    refusals = refusals_of(link, chosen, verb, unapproved=approval.missing if approval else (), related=related, now=now)
    possible = [summary for summary in chosen if summary.mirror.name not in refusals.names]
    context = {
        "link": link_head(link, now=now),
        "crumbs": crumbs(link, last=gettext("%(label)s mirror topics") % {"label": gettext(verb.label)}),
        "environment_name": link.destination.environment.name,
        "verb": verb,
        "stakes": [_stake(summary, groups, lost=at_risk.get(summary.mirror.pk), now=now) for summary in chosen[:NAMES_SHOWN]],
        "group_count": len({row.group for summary in possible for row in groups.get(summary.mirror.pk, ())}),
        "refusals": refusals,
        "approval": approval,
        "unavailable": refusals.rows[:NAMES_SHOWN],
        "warnings": _warnings(link, chosen, verb, impossible=refusals.names, related=related, by=by),
        "warned": verb.event in WARNED,
        "total": len(chosen),
        "more_names": max(0, len(chosen) - NAMES_SHOWN),
        "at_risk": _at_risk(possible, at_risk, verb) if at_risk else "",
        "deletes": verb.event is MirrorEvent.DELETE,
        "dropped": _dropped(link, mirrors, related) if verb.event is MirrorEvent.RESTORE else "",
        "writable": _count_writable(mirrors) if verb.event is MirrorEvent.DELETE else 0,
        "typed": _is_typed(verb, link),
        "reversibility": reversibility(verb.event, bidirectional=link.mode == "BIDIRECTIONAL") if verb.event else "",
        "confirm": request.POST.get("confirm", ""),
        "command": operation_command(request, link, verb.name, [mirror.name for mirror in mirrors]),
        "asks_reason": verb.event is MirrorEvent.FAILOVER,
        "reason": request.POST.get("reason", ""),
        "longest_reason": LONGEST_REASON,
        "repeated": [*_repeated(request.POST, chosen), ("seen", digest_of(chosen, verb))],
    }
    return reply(request, "mirrors/operate_many.html", context | more, status=status)


def _repeated(values: QueryDict, chosen: Sequence[MirrorSummary]) -> list[tuple[str, str]]:
    """Return the hidden fields with which the confirmation submits the same selection."""
    if values.get("all"):
        return [("all", "1"), ("q", values.get("q", "")), ("state", values.get("state", ""))]
    if values.get("retry"):
        return [("retry", values.get("retry", ""))]
    return [("mirror", summary.mirror.name) for summary in chosen]


def _dropped(link: ClusterLink, mirrors: Sequence[MirrorTopic], related: RelatedRows) -> str:
    """Return how many diverged offsets a restore of the topics would delete, or a lower bound if some are unknown."""
    counted = reversals.count_divergence(link, mirrors[:NAMES_SHOWN], related=related)
    unknown = len(mirrors) - len(counted)
    if not counted:
        return gettext("unknown")
    total = numbers.count(sum(point.diverged for points in counted.values() for point in points))
    return _at_least(total, unknown=unknown) if unknown else total


def _at_least(total: str, *, unknown: int) -> str:
    text = ngettext(
        "at least %(total)s; unknown for %(count)s topic", "at least %(total)s; unknown for %(count)s topics", unknown
    )
    return text % {"total": total, "count": numbers.count(unknown)}


def _count_writable(mirrors: Sequence[MirrorTopic]) -> int:
    """Return the number of stopped topics, to which applications may have written records that no other topic has."""
    return sum(mirror.state == MirrorState.STOPPED for mirror in mirrors)


def _lost(mirrors: Sequence[MirrorTopic], verb: BulkVerb) -> Mapping[int, int | None]:
    """Return the records that a failover or deletion would lose, by primary key; empty for other operations."""
    if verb.event is MirrorEvent.DELETE:
        return {mirror.pk: figures.records_held(mirror) for mirror in mirrors}
    return figures.records_at_risk_of(mirrors) if verb.loses_lag else {}


def _at_risk(chosen: Sequence[MirrorSummary], lost: Mapping[int, int | None], verb: BulkVerb) -> str:
    """Return the sum of the records at risk, or a lower bound if some are unknown. Stopped mirrors lose no more by a stop."""
    counts = [
        lost[summary.mirror.pk] for summary in chosen if not verb.loses_lag or summary.mirror.state != MirrorState.STOPPED
    ]
    known = [count for count in counts if count is not None]
    unknown = len(counts) - len(known)
    if not known:
        return gettext("unknown") if unknown else "0"
    total = numbers.count(sum(known))
    return _at_least(total, unknown=unknown) if unknown else total


def _stake(summary: MirrorSummary, groups: Mapping[int, Sequence[GroupAtRisk]], *, lost: int | None, now: datetime) -> Stake:
    return Stake(
        row=mirror_row(summary, now=now),
        lost=gettext("unknown") if lost is None else numbers.count(lost),
        groups=len({row.group for row in groups.get(summary.mirror.pk, ())}),
    )


def _warnings(
    link: ClusterLink,
    chosen: Sequence[MirrorSummary],
    verb: BulkVerb,
    *,
    impossible: Collection[str],
    related: RelatedRows,
    by: Actor,
) -> list[tuple[str, Sequence[str]]]:
    """Return (name, warnings) of the listed topics, except of those for which the operation would be refused now."""
    if verb.event is None:
        return []
    mirrors = [summary.mirror for summary in chosen[:NAMES_SHOWN] if summary.mirror.name not in impossible]
    risks = risks_of(link, mirrors) if verb.event in REVERSALS else {}
    found = cautions_of_many(mirrors, verb.event, by=by, risks=risks, related=related)
    return [(mirror.name, found[mirror.pk]) for mirror in mirrors if found[mirror.pk]]


def _is_typed(verb: BulkVerb, link: ClusterLink) -> bool:
    return verb.event is not None and needs_typed_name(verb.event, bidirectional=link.mode == "BIDIRECTIONAL")


# --- the Operations section -------------------------------------------------------------------------------------------
#
# It lists the operations of all users and of REST, as far as the actor may see them, and shows the result of each topic.


_REPORTED = (MirrorEvent.FAILOVER, MirrorEvent.PROMOTE)  # each topic gets a failover report when it has stopped
OPERATIONS = Listing(
    noun=gettext_noop("operation"),
    plural=gettext_noop("operations"),
    columns=(
        Column(title=gettext_lazy("Operation"), key="operation", by=("operation",)),
        Column(title=gettext_lazy("Cluster link"), key="link", by=("link_name",)),
        Column(title=gettext_lazy("Status")),
        Column(title=gettext_lazy("Processed"), key="done", by=("done",), css="number", descends=True),
        Column(title=gettext_lazy("Failed"), key="failed", by=("failed",), css="number", descends=True),
        Column(title=gettext_lazy("Requested"), key="requested", by=("requested_at",), descends=True),
    ),
    default="-requested",
    search=("link_name", "requested_by"),
    search_label=gettext_lazy("Link or user"),
    filters=(
        Filter(
            name="operation",
            label=gettext_lazy("Operation"),
            every=gettext_lazy("All operations"),
            options=[
                (BulkOperation.CREATE, gettext_lazy("Add")),
                *((verb.name, gettext_lazy(verb.label)) for verb in BULK_VERBS.values()),
            ],
            by="operation",
        ),
        Filter(
            name="status",
            label=gettext_lazy("Status"),
            every=gettext_lazy("All statuses"),
            options=[(badge.code, gettext_lazy(badge.label)) for badge in OPERATION_BADGES],
            by=operation_queries.has_status,
        ),
    ),
    time="requested_at",
    export={
        "operation_id": "pk",
        "operation": "operation",
        "cluster_id": "destination_cluster_id",
        "link": "link_name",
        "requested_by": "requested_by",
        "requested_at": "requested_at",
        "finished_at": "finished_at",
        "canceled_by": "canceled_by",
        "topics": "topic_count",
        "done": "done",
        "failed": "failed",
        "request_id": "request_id",
    },
)
RESULTS = Listing(
    noun=gettext_noop("topic"),
    plural=gettext_noop("topics"),
    columns=(
        Column(title=gettext_lazy("Mirror topic"), key="name", by=("name",)),
        Column(title=gettext_lazy("Result"), key="result", by=("rank", "outcome", "name")),
        Column(title=gettext_lazy("State now")),
        Column(title=gettext_lazy("Reason")),
        Column(title=gettext_lazy("Time"), key="time", by=("done_at",), descends=True, optional=True),
    ),
    default="",  # failed topics first, then by name: rows keep their places while the page is polled
    search=("name",),
    search_label=gettext_lazy("Filter by topic name"),
    filters=(
        Filter(
            name="status",
            label=gettext_lazy("Result"),
            every=gettext_lazy("All results"),
            options=[(badge.code, gettext_lazy(badge.label)) for badge in TOPIC_BADGES.values()],
            by="outcome",
        ),
    ),
    export={
        "topic": "name",
        "result": "badge.code",
        "state": lambda row: row.state.code if row.state else "",
        "error_code": "code",
        "message": "message",
        "done_at": "done_at",
    },
)
CREATIONS = replace(RESULTS, columns=(replace(RESULTS.columns[0], title=gettext_lazy("Source topic")), *RESULTS.columns[1:]))


@page("operations")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List the operations."""
    by, now = actor_of(request), timezone.now()
    listed = OPERATIONS.read(request)
    found = listed.select(operation_queries.with_counts(visible_operations(by)))
    if listed.format:
        return listed.csv("operations", found)
    shown = listed.page(found)
    counts = operation_queries.count_topics(shown)
    rows = [operation_row(operation, counts[operation.pk], now=now) for operation in shown]
    return reply(request, "operations/list.html", {"list": listed, "operations": rows})


def results_listing(operation: str) -> Listing:
    """Return the list of the topics of an operation. ``select`` takes ``topics_of``, the page and the file take rows."""
    return CREATIONS if operation == BulkOperation.CREATE else RESULTS


@page("operations")
@require_GET
def detail(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Show an operation with the result of each topic. Polled every second; returns 204 if nothing has changed."""
    operation = operation_queries.get_operation(operation_id=operation_id, by=actor_of(request))
    if is_unchanged(request, *_versions(operation), now=timezone.now()):
        return HttpResponse(status=204)
    listed = results_listing(operation.operation).read(request)
    if listed.format:
        found = listed.select(operation_queries.topics_of(operation))
        return listed.csv(f"operation-{operation.pk}", _results(operation, found, by=actor_of(request), now=timezone.now()))
    return _show(request, operation, listed)


@page("operations")
@require_POST
def cancel(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Cancel the topics that have not begun."""
    by = actor_of(request)
    operation = operation_queries.get_operation(operation_id=operation_id, by=by)
    try:
        canceled = bulk_actions.cancel(operation=operation, by=by, now=timezone.now())
    except ConsoleError as error:
        return _refused(request, operation, error)
    message = ngettext("%(count)s topic canceled.", "%(count)s topics canceled.", canceled)
    return done(request, operation.get_absolute_url(), message % {"count": numbers.count(canceled)})


@page("operations")
@require_POST
def retry(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Create the mirror topics that failed. Other operations are retried through their confirmation (``operate_many``)."""
    by = actor_of(request)
    operation = operation_queries.get_operation(operation_id=operation_id, by=by)
    try:
        started = bulk_actions.retry_creation(operation=operation, by=by, now=timezone.now())
    except ConsoleError as error:
        return _refused(request, operation, error)
    return done(request, started.get_absolute_url())


def _refused(request: HttpRequest, operation: BulkOperation, error: ConsoleError) -> HttpResponse:
    if error.kind == "denied":
        raise error
    listed = results_listing(operation.operation).read(page_request(request, operation.get_absolute_url()))
    return _show(request, operation, listed, problem=problem_of(error), status=status_of(error))


def _versions(operation: BulkOperation) -> tuple[object, ...]:
    """Return what changes whenever the page does: the link's sequence also changes with the states of the mirrors."""
    return operation.pk, operation.link.sequence if operation.link else "deleted", operation.finished_at is None


def _deletion(operation: BulkOperation, *, by: Actor, now: datetime) -> dict[str, Any] | None:
    """Return when the operation's link was deleted, and by whom if the user may view the audit log; None if it was not."""
    if operation.link_id is not None:
        return None
    event, cluster = operation_queries.deletion_of_link(operation), operation.destination
    sees_actor = by.may_do_all or (cluster is not None and can(by, Permission.VIEW_AUDIT, cluster=cluster))
    return {"at": event and moment(event.at, now=now), "by": event.actor if event and sees_actor else ""}


def _results(operation: BulkOperation, topics: Iterable[Any], *, by: Actor, now: datetime) -> list[TopicRow]:
    """Return the rows of topics. Three queries."""
    shown, link = list(topics), operation.link
    prefix = link.prefix if link and operation.operation == BulkOperation.CREATE else ""
    mirrors = operation_queries.mirrors_by_name(link, [f"{prefix}{topic.name}" for topic in shown], by=by)
    return [topic_row(topic, mirrors.get(f"{prefix}{topic.name}"), now=now) for topic in shown]


def _show(request: HttpRequest, operation: BulkOperation, listed: Listed, *, status: int = 200, **more: object) -> HttpResponse:
    by, now, link = actor_of(request), timezone.now(), operation.link
    row = operation_row(operation, operation_queries.count_topics([operation])[operation.pk], now=now)
    listed.options = {"status": row.outcomes}
    topics = _results(operation, listed.page(listed.select(operation_queries.topics_of(operation))), by=by, now=now)
    context = {
        "operation": row,
        "deletion": _deletion(operation, by=by, now=now),
        "poll_url": request.get_full_path() if request.method == "GET" else row.url,
        "list": listed,
        "seen": seen_token(*_versions(operation), now=now),
        "topics": topics,
        "creates": operation.operation == BulkOperation.CREATE,
        "verb": operation.operation,
        "retry_of": operation.retry_of_id,
        "has_report": operation.operation in _REPORTED,
        "reason": operation.options.get("reason", ""),
        "checklist": operation.options.get("checklist", ()),
        "may_cancel": bool(row.waiting and link) and bulk_actions.may_cancel(operation, by=by),
        "environment_name": operation.destination.environment.name if operation.destination else "",
        "crumbs": [
            Crumb(label=gettext("Operations"), url=reverse("pages:operations")),
            Crumb(label=gettext("Operation %(number)s") % {"number": operation.pk}),
        ],
    }
    return reply(request, "operations/operation.html", context | more, status=status)
