"""The Records page of a mirror topic: the record at an offset on both sides."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.access import Permission, check_permission
from console.actions.records import compare_record
from console.errors import ConsoleError, InvalidInputError
from console.models import MirrorTopic
from console.pages.linkpages import crumbs
from console.pages.mirrorpages import mirror_head
from console.pages.request_handling import actor_of, page, problem_of, reply, status_of
from console.pages.shell import Crumb
from console.presenters.links import source_name
from console.presenters.records import comparison_view
from console.queries import mirrors as mirror_queries

_MOST_DIGITS = 19  # of an offset, which is an int64


@page("links")
@require_GET
def records(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Show the form; with a partition and an offset or a time, also the comparison."""
    by, now = actor_of(request), timezone.now()
    mirror = mirror_queries.get_mirror_only(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    check_permission(by, Permission.READ_RECORDS, mirror=mirror)
    if not (request.GET.get("offset") or request.GET.get("time")):
        return _show(request, mirror)
    try:
        found = compare_record(
            mirror=mirror,
            partition=_number(request, "partition"),
            offset=_number(request, "offset") if request.GET.get("offset") else None,
            timestamp_ms=None if request.GET.get("offset") else _time_ms(request.GET.get("time", "")),
            by=by,
            now=now,
        )
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        status = 503 if error.kind == "unavailable" else status_of(error)
        return _show(request, mirror, problem=problem_of(error), status=status)
    view = comparison_view(found, source=source_name(mirror.link), destination=mirror.link.destination.name)
    return _show(request, mirror, comparison=view, partition=str(found.partition), offset=str(found.offset), time="")


def _show(request: HttpRequest, mirror: MirrorTopic, *, status: int = 200, **more: object) -> HttpResponse:
    head = mirror_head(mirror, now=timezone.now())
    context = {
        "mirror": head,
        "environment_name": mirror.link.destination.environment.name,
        "crumbs": [*crumbs(mirror.link, last=mirror.name)[:-1], Crumb(label=mirror.name, url=head.url), Crumb(label="Records")],
        "last_partition": max(0, mirror.num_partitions - 1),
        "partition": request.GET.get("partition", "0"),
        "offset": request.GET.get("offset", ""),
        "time": request.GET.get("time", ""),
    }
    return reply(request, "mirrors/records.html", context | more, status=status)


def _number(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise InvalidInputError(f"The {name} must be a whole number.", field=name)
    return int(text)


def _time_ms(text: str) -> int:
    """Return a time of the form in milliseconds; it is in UTC unless it has another offset."""
    try:
        found = datetime.fromisoformat(text.strip())
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        message = "The time must be an ISO 8601 date and time, such as 2026-11-25T20:00:00. It is in UTC."
        raise InvalidInputError(message, field="time") from None
