"""CSV exports, the first steps of an installation, and the help page with the meaning of states and error codes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.access import Permission, can
from console.access.audit_pages import matching
from console.access.queries import readable_events
from console.actors import Actor
from console.clusters.queries import FirstSteps, first_steps
from console.history.pages import LINK_SPAN, MIRROR_SPAN, range_of, subject_of
from console.history.queries import stored_rows
from console.links import queries as link_queries
from console.links import task_queries as group_queries
from console.links.group_presenters import GROUP_LOOKS
from console.mirrors import queries as mirror_queries
from console.mirrors.operation_presenters import VERBS
from console.mirrors.page_queries import mirror_page
from console.models import GroupOffset
from console.web.badges import GAP_LOOKS, LINK_LOOKS, MIRROR_LOOKS
from console.web.errors import CONSOLE_HELP, ERROR_HELP
from console.web.health import HEALTH_LOOKS
from console.web.request_handling import actor_of, page, reply
from linkengine.domain.states import BIDIRECTIONAL_ONLY, allowed_operations

# --- CSV exports ------------------------------------------------------------------------------------------------------
#
# They apply the filters of the pages. Values are machine-readable: times in UTC as ISO 8601, lags as numbers, unknown as an
# empty cell. A text that a spreadsheet would interpret as a formula gets a leading apostrophe.


MOST_ROWS = 100_000  # per file: the newest or first rows
FORMULA = ("=", "+", "-", "@", "\t", "\r")
Cells = Iterable[Sequence[object]]


@page("links")
@require_GET
def mirrors(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Return the mirror topics of a link that match the filter."""
    by = actor_of(request)
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    query, state = _filters(request, "state", MIRROR_LOOKS)
    found = mirror_page(by=by, link=link, search=query, state=state, order="name", size=MOST_ROWS)
    columns = (
        "mirror_topic", "source_topic", "state", "state_since", "partitions", "max_lag", "lag_ms", "bytes_per_s",
        "records_per_s", "errors", "error_code",
    )  # fmt: skip
    rows = (
        (
            row.mirror.name, row.mirror.source_topic, row.mirror.state, row.mirror.state_since, row.mirror.num_partitions,
            row.max_lag, row.lag_ms, row.bytes_per_s, row.records_per_s, row.errors, row.mirror.error_code,
        )
        for row in found.rows
    )  # fmt: skip
    return _file(f"mirrors-{link.name}", columns, rows)


@page("links")
@require_GET
def groups(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Return the consumer groups of a link that match the filter, one row per synced partition."""
    by = actor_of(request)
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    query, status = _filters(request, "status", GROUP_LOOKS)
    found = list(link.groups.matching(status=status, search=query)[:MOST_ROWS])
    offsets = group_queries.offsets_of(found)
    columns = (
        "group", "group_here", "status", "message", "looked_at", "mirror_topic", "partition", "source_offset",
        "destination_offset", "goal", "last_run",
    )  # fmt: skip
    rows = (
        (group.name, group.destination_name, group.status, group.message, group.looked_at, *cells)
        for group in found
        for cells in [_offset_cells(offset) for offset in offsets.get(group.pk, ())] or [()]
    )
    return _file(f"groups-{link.name}", columns, rows)


@page("links")
@require_GET
def gaps(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Return the gap ledger of a mirror."""
    by = actor_of(request)
    mirror = mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    names = ("partition", "start", "end", "filled", "reason", "before_ms", "after_ms", "noted_at")
    columns = ("partition", "start", "end", "offsets", "reason", "before_ms", "after_ms", "noted_at")
    return _file(f"gaps-{mirror.name}", columns, mirror.gaps.values_list(*names)[:MOST_ROWS])


@page("links")
@require_GET
def samples(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str = "") -> HttpResponse:
    """Return all stored samples of a link or mirror in the range of the charts, oldest first.

    A row with ``seconds`` greater than 0 is a summary of that time: lags are the largest known values, ``unknown`` and
    ``unknown_ms`` are 0 only if all values are known.
    """
    now = timezone.now()
    subject = subject_of(request, cluster_id, link_name, mirror_name)
    chosen = range_of(request, now=now, default=MIRROR_SPAN if mirror_name else LINK_SPAN)
    columns = (
        "at", "seconds", "samples", "lag", "lag_ms", "bytes_per_s", "records_per_s", "unknown", "unknown_ms",
    )  # fmt: skip
    rows = (
        [getattr(row, name) for name in columns] for row in stored_rows(subject, start=chosen.start, end=chosen.end, now=now)
    )
    return _file(f"samples-{subject.name}", columns, rows)


@page("audit")
@require_GET
def audit(request: HttpRequest) -> HttpResponse:
    """Return the audit events that match the filter, newest first."""
    found = matching(request, readable_events(by=actor_of(request)))[:MOST_ROWS]
    columns = ("at", "actor", "action", "resource", "result", "detail", "client_address", "request_id")
    rows = (
        (
            event.at,
            event.actor,
            event.action,
            event.resource,
            event.result,
            json.dumps(event.detail),
            event.client_address,
            event.request_id,
        )
        for event in found
    )
    return _file(f"audit-{timezone.now():%Y-%m-%d}", columns, rows)


def _offset_cells(offset: GroupOffset) -> tuple[object, ...]:
    return (
        offset.mirror.name,
        offset.partition,
        offset.source_offset,
        offset.destination_offset,
        offset.target,
        offset.outcome,
    )


def _filters(request: HttpRequest, choice: str, known: Iterable[str]) -> tuple[str, str]:
    query, value = (request.GET.get(name, "").strip() for name in ("q", choice))
    return query, value if value in known else ""


def _file(name: str, columns: Sequence[str], rows: Cells) -> HttpResponse:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    disposition = f'attachment; filename="{name}.csv"'  # link and topic names need no quoting
    headers = {"Content-Disposition": disposition}
    return HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


# --- help -------------------------------------------------------------------------------------------------------------


@page("")
@require_GET
def states(request: HttpRequest) -> HttpResponse:
    """List the values of health, the states, the reasons of filled offsets and the error codes."""
    mirrors = [
        {"look": look, "verbs": [VERBS[event].label for event in allowed_operations(state) if event not in BIDIRECTIONAL_ONLY]}
        for state, look in MIRROR_LOOKS.items()
    ]
    context = {
        "health": list(HEALTH_LOOKS.values()),
        "mirrors": mirrors,
        "links": list(LINK_LOOKS.values()),
        "gaps": list(GAP_LOOKS.values()),
        "errors": [row for code, row in {**ERROR_HELP, **CONSOLE_HELP}.items() if code != "NO_ERROR"],
    }
    return reply(request, "guide/states.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step on the way from an empty installation to a verified mirror. Without ``url`` the user may not do it."""

    title: str
    explains: str
    done: bool
    url: str = ""
    action: str = ""
    needs: str = ""  # what the user lacks to do it


@page("")
@require_GET
def steps(request: HttpRequest) -> HttpResponse:
    """Show the first steps of an installation: which are done, and where the next is done."""
    by = actor_of(request)
    found = first_steps(by=by)
    listed = [_environment_step(request, found), *_cluster_steps(found, by=by), *_mirror_steps(found, by=by)]
    current = next((number for number, step in enumerate(listed) if not step.done), None)
    return reply(request, "guide/first_steps.html", {"steps": listed, "current": current})


def _environment_step(request: HttpRequest, found: FirstSteps) -> Step:
    may = request.user.is_staff and request.user.has_perm("console.add_environment")
    return Step(
        title="Create an organization and an environment",
        explains="An environment groups clusters, for example production. Both are created in the administration.",
        done=found.environment is not None,
        url=reverse("admin:console_environment_add") if may else "",
        action="Create environment",
        needs="An administrator of this installation does this.",
    )


def _cluster_steps(found: FirstSteps, *, by: Actor) -> list[Step]:
    environment = found.environment
    may_register = environment is not None and can(by, Permission.MANAGE_CLUSTER, environment=environment)
    may_link = found.cluster is not None and can(by, Permission.MANAGE_LINK, cluster=found.cluster)
    return [
        Step(
            title="Register two clusters",
            explains="The cluster to mirror from and the cluster to mirror to. Registering checks address and credentials.",
            done=found.clusters > 1,
            url=reverse("pages:register", args=(environment.slug,)) if environment is not None and may_register else "",
            action="Register cluster",
            needs="This needs the role EnvironmentAdmin in the environment.",
        ),
        Step(
            title="Create a cluster link",
            explains="A link connects the two clusters. It is created on the cluster to mirror to.",
            done=found.link is not None,
            url=reverse("pages:new-link") if may_link else "",
            action="Create cluster link",
            needs="This needs the role CloudClusterAdmin on the cluster to mirror to.",
        ),
    ]


def _mirror_steps(found: FirstSteps, *, by: Actor) -> list[Step]:
    link, mirror = found.link, found.mirror
    may_add = link is not None and can(by, Permission.MANAGE_MIRROR, link=link)
    mirror_url = mirror.get_absolute_url() if mirror is not None else ""
    place = (link.destination.cluster_id, link.name) if link is not None else ()
    return [
        Step(
            title="Add a mirror topic",
            explains="The topic is created on the destination and becomes read-only there.",
            done=mirror is not None,
            url=reverse("pages:new-mirror", args=place) if may_add else "",
            action="Add mirror topic",
            needs="This needs the role DeveloperManage on the link or the topic.",
        ),
        Step(
            title="Wait until it is active",
            explains="Setting up takes seconds. If it takes longer, the page of the mirror topic shows the reason.",
            done=found.set_up,
            url=mirror_url,
            action="Open mirror topic",
        ),
        Step(
            title="Verify it",
            explains="A verification run compares all records of the mirror topic with those of the source.",
            done=found.verified,
            url=mirror_url,
            action="Open mirror topic",
        ),
    ]
