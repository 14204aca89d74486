"""The Operations section: operations on several mirror topics, with the result of each topic, whoever requested them."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from console.actions import bulkoperations
from console.errors import ConsoleError
from console.models import BulkOperation
from console.pages.links import is_unchanged, seen_token
from console.pages.lists import page_from
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.pages.shell import Crumb
from console.presenters import numbers
from console.presenters.bulkoperations import TOPIC_LOOKS, operation_row, topic_row
from console.queries import bulkoperations as operation_queries
from linkengine.domain.states import MirrorEvent

_REPORTED = (MirrorEvent.FAILOVER, MirrorEvent.PROMOTE)  # each topic gets a failover report when it has stopped


@page("operations")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List the operations, newest first."""
    by, now = actor_of(request), timezone.now()
    shown, pager = page_from(request, operation_queries.visible_operations(by))
    counts = operation_queries.count_topics(shown)
    context = {
        "operations": [operation_row(operation, counts[operation.pk], now=now) for operation in shown],
        "pager": pager,
    }
    return reply(request, "operations/list.html", context)


@page("operations")
@require_GET
def detail(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Show an operation with the result of each topic. Polled every second; returns 204 if nothing has changed."""
    operation = operation_queries.get_operation(operation_id=operation_id, by=actor_of(request))
    if is_unchanged(request, *_marks(operation), now=timezone.now()):
        return HttpResponse(status=204)
    return _show(request, operation)


@page("operations")
@require_POST
def cancel(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Cancel the topics that have not begun."""
    by = actor_of(request)
    operation = operation_queries.get_operation(operation_id=operation_id, by=by)
    try:
        canceled = bulkoperations.cancel(operation=operation, by=by, now=timezone.now())
    except ConsoleError as error:
        return _refused(request, operation, error)
    return done(request, operation.get_absolute_url(), f"{numbers.plural(canceled, 'topic')} canceled.")


@page("operations")
@require_POST
def retry(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Create the mirror topics that failed. Other operations are retried through their confirmation (``bulk``)."""
    by = actor_of(request)
    operation = operation_queries.get_operation(operation_id=operation_id, by=by)
    try:
        started = bulkoperations.retry_creation(operation=operation, by=by, now=timezone.now())
    except ConsoleError as error:
        return _refused(request, operation, error)
    return done(request, started.get_absolute_url())


def _refused(request: HttpRequest, operation: BulkOperation, error: ConsoleError) -> HttpResponse:
    if error.kind == "denied":
        raise error
    return _show(request, operation, problem=problem_of(error), status=status_of(error))


def _marks(operation: BulkOperation) -> tuple[object, ...]:
    """Return what changes whenever the page does: the link's sequence also changes with the states of the mirrors."""
    return operation.pk, operation.link.sequence, operation.finished_at is None


def _show(request: HttpRequest, operation: BulkOperation, *, status: int = 200, **more: object) -> HttpResponse:
    by, now, link = actor_of(request), timezone.now(), operation.link
    wanted = request.GET.get("status", "")
    wanted = wanted if wanted in TOPIC_LOOKS else ""
    shown, pager = page_from(request, operation_queries.topics_of(operation, status=wanted))
    prefix = link.prefix if operation.operation == BulkOperation.CREATE else ""
    mirrors = operation_queries.mirrors_by_name(link, [f"{prefix}{topic.name}" for topic in shown], by=by)
    row = operation_row(operation, operation_queries.count_topics([operation])[operation.pk], now=now)
    context = {
        "operation": row,
        "poll_url": request.get_full_path() if request.method == "GET" else row.url,
        "seen": seen_token(*_marks(operation), now=now),
        "topics": [topic_row(topic, mirrors.get(f"{prefix}{topic.name}"), link=link, now=now) for topic in shown],
        "pager": pager,
        "wanted": wanted,
        "creates": operation.operation == BulkOperation.CREATE,
        "verb": operation.operation,
        "retry_of": operation.retry_of_id,
        "has_report": operation.operation in _REPORTED,
        "reason": operation.options.get("reason", ""),
        "checklist": operation.options.get("checklist", ()),
        "may_cancel": bool(row.waiting) and bulkoperations.may_cancel(operation, by=by),
        "environment_name": link.destination.environment.name,
        "crumbs": [Crumb(label="Operations", url=reverse("pages:operations")), Crumb(label=f"Operation {operation.pk}")],
    }
    return reply(request, "operations/detail.html", context | more, status=status)
