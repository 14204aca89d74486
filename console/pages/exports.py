"""Lists as CSV files: mirror topics and groups of a link, gaps of a mirror, audit events; filtered like their pages.

Values are those of the rows, not of the screen: times in UTC as ISO 8601, lags as numbers, unknown as an empty cell. A text
that a spreadsheet would take for a formula is led by an apostrophe.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.models import GroupOffset
from console.pages.doors import actor_of, page
from console.presenters.groups import GROUP_LOOKS
from console.presenters.reasons import AUDIT_LOOKS
from console.presenters.states import MIRROR_LOOKS
from console.queries import audit as audit_queries
from console.queries import groups as group_queries
from console.queries import links as link_queries
from console.queries import mirrors as mirror_queries
from console.queries.mirrorpages import mirror_page

MOST_ROWS = 100_000  # of one file; the newest or first ones
FORMULA = ("=", "+", "-", "@", "\t", "\r")
Cells = Iterable[Sequence[object]]


@page("links")
@require_GET
def mirrors(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Write the mirror topics of a link that the filter leaves."""
    by = actor_of(request)
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    query, state = _asked(request, "state", MIRROR_LOOKS)
    found = mirror_page(by=by, link=link, search=query, state=state, order="name", size=MOST_ROWS)
    columns = (
        "mirror_topic", "source_topic", "state", "state_since", "partitions", "max_lag", "lag_ms", "bytes_per_s",
        "records_per_s", "errors", "error_code",
    )  # fmt: skip
    rows = (
        (
            one.mirror.name, one.mirror.source_topic, one.mirror.state, one.mirror.state_since, one.mirror.num_partitions,
            one.max_lag, one.lag_ms, one.bytes_per_s, one.records_per_s, one.errors, one.mirror.error_code,
        )
        for one in found.rows
    )  # fmt: skip
    return _file(f"mirrors-{link.name}", columns, rows)


@page("links")
@require_GET
def groups(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Write the consumer groups of a link that the filter leaves; one line per partition that is followed."""
    by = actor_of(request)
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    query, status = _asked(request, "status", GROUP_LOOKS)
    found = list(group_queries.list_groups(link=link, status=status, search=query)[:MOST_ROWS])
    offsets = group_queries.offsets_of(found)
    columns = (
        "group", "group_here", "status", "message", "looked_at", "mirror_topic", "partition", "source_offset",
        "destination_offset", "goal", "last_run",
    )  # fmt: skip
    rows = (
        (one.name, one.destination_name, one.status, one.message, one.looked_at, *place)
        for one in found
        for place in [_offset(at) for at in offsets.get(one.pk, ())] or [()]
    )
    return _file(f"groups-{link.name}", columns, rows)


@page("links")
@require_GET
def gaps(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Write the gap ledger of a mirror."""
    by = actor_of(request)
    mirror = mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    names = ("partition", "start", "end", "filled", "reason", "before_ms", "after_ms", "noted_at")
    columns = ("partition", "start", "end", "offsets", "reason", "before_ms", "after_ms", "noted_at")
    return _file(f"gaps-{mirror.name}", columns, mirror.gaps.values_list(*names)[:MOST_ROWS])


@page("audit")
@require_GET
def audit(request: HttpRequest) -> HttpResponse:
    """Write the events that the filter leaves, newest first."""
    query, result = _asked(request, "result", AUDIT_LOOKS)
    action = request.GET.get("action", "").strip()
    found = audit_queries.list_events(by=actor_of(request), search=query, action=action, result=result)[:MOST_ROWS]
    columns = ("at", "actor", "action", "resource", "result", "detail", "client_address", "request_id")
    rows = (
        (one.at, one.actor, one.action, one.resource, one.result, json.dumps(one.detail), one.client_address, one.request_id)
        for one in found
    )
    return _file(f"audit-{timezone.now():%Y-%m-%d}", columns, rows)


def _offset(at: GroupOffset) -> tuple[object, ...]:
    return (at.mirror.name, at.partition, at.source_offset, at.destination_offset, at.target, at.outcome)


def _asked(request: HttpRequest, choice: str, known: Iterable[str]) -> tuple[str, str]:
    query, value = (request.GET.get(name, "").strip() for name in ("q", choice))
    return query, value if value in known else ""


def _file(name: str, columns: Sequence[str], rows: Cells) -> HttpResponse:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    disposition = f'attachment; filename="{name}.csv"'  # names of links and topics need no quoting
    headers = {"Content-Disposition": disposition}
    return HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
