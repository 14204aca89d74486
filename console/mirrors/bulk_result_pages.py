"""The Operations section: operations on several mirror topics, with the result of each topic.

It lists the operations of all users and of REST, as far as the actor may see them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop, ngettext
from django.views.decorators.http import require_GET, require_POST

from console.access import Permission, can, visible_operations
from console.actors import Actor
from console.errors import ConsoleError
from console.mirrors import bulk_actions, operation_queries
from console.mirrors.operation_presenters import BULK_VERBS, OPERATION_BADGES, TOPIC_BADGES, TopicRow, operation_row, topic_row
from console.models import BulkOperation
from console.web import numbers
from console.web.lists import Column, Filter, Listed, Listing, page_request
from console.web.numbers import moment
from console.web.polling import is_unchanged, seen_token
from console.web.request_handling import Crumb, actor_of, done, page, problem_of, reply, status_of
from linkengine.domain.states import MirrorEvent

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
