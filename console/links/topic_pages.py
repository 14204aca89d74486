"""The Source topics, Filters, Tasks, Groups and ACLs tabs of a link: what is mirrored or synced, what is not, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from django.db.models import Q, prefetch_related_objects
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import Permission, check_permission
from console.errors import ConsoleError
from console.languages import translated
from console.links import queries as link_queries
from console.links import task_queries
from console.links.actions import LinkConfigChange, alter_configs, run_task
from console.links.command_presenters import alteration_command
from console.links.group_presenters import ACL_BADGES, GROUP_BADGES, acl_row, group_row
from console.links.pages import HEAD, crumbs, head_poll, headline, link_context, observe, polled
from console.links.task_presenters import STANDING_BADGES, check_rows, source_topic_row, task_row
from console.links.topic_queries import RANKS, check_source_topic, check_source_topics, checked_page, filters_of
from console.models import ClusterLink
from console.web import numbers
from console.web.forms import fingerprint, stale_form_error
from console.web.lists import EVERY, PAGE_SIZE, Column, Filter, Listing, pager, start_of
from console.web.polling import is_unchanged
from console.web.request_handling import actor_of, done, page, problem_of, reply, status_of
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.mirrorability import Check, CheckCode, CheckedTopic, MirrorabilityStatus
from linkengine.domain.names import FilterType, NameFilter, PatternType, filters_to_json

# --- the tabs Source topics and Filters -------------------------------------------------------------------------------


EMPTY_ROWS = 3  # for new filters, also without JavaScript
NAMES_SHOWN = 20


SOURCE_TOPICS = Listing(
    noun=gettext_noop("source topic"),
    plural=gettext_noop("source topics"),
    columns=(
        Column(title=gettext_lazy("Source topic"), key="name", by=("name",)),
        Column(title=gettext_lazy("Status"), key="standing", by=("rank", "name")),
        Column(title=gettext_lazy("Mirror topic or reason")),
    ),
    default="name",
    search=("name",),
    search_label=gettext_lazy("Filter by topic name"),
    filters=(
        Filter(
            name="standing",
            label=gettext_lazy("Status"),
            every=gettext_lazy("All statuses"),
            options=[(badge.code, gettext_lazy(badge.label)) for badge in STANDING_BADGES.values()],
            by=lambda standing: Q(rank=RANKS[MirrorabilityStatus(standing)]),
        ),
    ),
    export={
        "source_topic": "name",
        "status": "badge.code",
        "mirror_topic": lambda row: row.mirror if row.is_mirrored else None,
        "mirror_state": lambda row: row.state.code if row.state else None,
        "reason": lambda row: "" if row.is_mirrored else row.reason or row.badge.meaning,
    },
)


@page("links")
@require_GET
@polled(fragments=HEAD)
def topics(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """List the source topics with their status."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    if polled := head_poll(request, link, by=by, now=now, tab="topics"):
        return polled
    listed = SOURCE_TOPICS.read(request)
    size, start = (EVERY, 0) if listed.format else (PAGE_SIZE, start_of(request))
    found = checked_page(link=link, by=by, select=listed.select, start=start, size=size)
    if listed.format:
        return listed.csv(f"source-topics-{link.name}", map(source_topic_row, found.rows))
    listed.pager = pager(request, start=found.start, shown=len(found.rows), total=found.total)
    seen = observe(link, by=by, now=now)
    statuses = {mirror.name: mirror.status for mirror in seen.health.mirrors.values()}
    health = headline(link, by=by, now=now, seen=seen)
    rows = [source_topic_row(checked, health=statuses.get(checked.mirror)) for checked in found.rows]
    context = {
        "list": listed,
        "rows": rows,
        "mirrorable": found.mirrorable,
        "pick_all": numbers.count(found.mirrorable),
        "mirrorable_shown": sum(row.mirrorable for row in rows),
        "filtered": listed.is_filtered,  # for parts/picked.html
        "listed": link.topics_at is not None,
        "auto_create": link.config(AUTO_CREATE) == "true",
    }
    return reply(request, "links/topics.html", link_context(link, by=by, now=now, tab="topics", health=health) | context)


@page("links")
@require_GET
@polled(fragments=HEAD)
def topic(request: HttpRequest, cluster_id: str, link_name: str, topic_name: str) -> HttpResponse:
    """Show why a source topic is mirrored or not. The topic need not exist."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    if polled := head_poll(request, link, by=by, now=now, tab="topics"):
        return polled
    checked = check_source_topic(link=link, name=topic_name, by=by)
    seen = observe(link, by=by, now=now)
    status = next((mirror.status for mirror in seen.health.mirrors.values() if mirror.name == checked.mirror), None)
    health = headline(link, by=by, now=now, seen=seen)
    context = {
        "row": source_topic_row(checked, health=status),
        "checks": check_rows(checked),
        "crumbs": crumbs(link, last=topic_name),
        "may_add": checked.standing is not MirrorabilityStatus.MIRRORED,
    }
    head = link_context(link, by=by, now=now, tab="topics", last=topic_name, health=health)
    return reply(request, "links/topic.html", head | context)


@page("links")
@require_http_methods(["GET", "POST"])
@polled(fragments=HEAD)
def filters(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the auto-create filters; preview or save changes."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    if polled := head_poll(request, link, by=by, now=now, tab="filters"):
        return polled
    prefetch_related_objects([link], "configs")
    if request.method == "GET":
        return _form(request, link, rows=filters_of(link), enabled=link.config(AUTO_CREATE) == "true")
    check_permission(by, Permission.MANAGE_LINK, link=link)
    if request.POST.get("seen") != _seen(link):
        problem = problem_of(stale_form_error(gettext("The filters of this link")))
        was_enabled = link.config(AUTO_CREATE) == "true"
        return _form(request, link, rows=filters_of(link), enabled=was_enabled, problem=problem, status=409)
    rows, enabled = _submitted(request), request.POST.get("enabled") == "true"
    save = request.POST.get("intent") == "save"
    try:
        alter_configs(link=link, changes=_changes(rows, enabled=enabled), validate_only=not save, by=by, now=now)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        return _form(request, link, rows=rows, enabled=enabled, problem=problem_of(error), status=status_of(error))
    if save:
        message = (
            gettext("Filters saved. They are applied now.")
            if enabled
            else gettext("Auto-create is off. Its filters are deleted.")
        )
        return done(request, reverse("pages:link-topics", args=link.url_args), message)
    preview = _preview(check_source_topics(link=link, by=by, filters=rows) if enabled else [])
    return _form(request, link, rows=rows, enabled=enabled, preview=preview)


def _form(
    request: HttpRequest,
    link: ClusterLink,
    *,
    rows: Sequence[NameFilter],
    enabled: bool,
    status: int = 200,
    **more: Any,
) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    context = {
        "filters": [*rows, *[None] * EMPTY_ROWS],
        "enabled": enabled,
        "seen": _seen(link),
        "was_enabled": link.config(AUTO_CREATE) == "true",
        "patterns": list(PatternType),
        "kinds": list(FilterType),
        "document": filters_to_json(rows) if rows else "",
        "command": alteration_command(request, link, _changes(rows, enabled=enabled)),
    }
    return reply(
        request, "links/filters.html", link_context(link, by=by, now=now, tab="filters") | context | more, status=status
    )


def _seen(link: ClusterLink) -> str:
    return fingerprint(link.config(AUTO_CREATE), filters_to_json(filters_of(link)))


def _submitted(request: HttpRequest) -> tuple[NameFilter, ...]:
    columns = (request.POST.getlist(name) for name in ("name", "pattern", "kind"))
    return tuple(
        NameFilter(
            name=name.strip(),
            pattern_type=PatternType.PREFIXED if pattern == PatternType.PREFIXED else PatternType.LITERAL,
            filter_type=FilterType.EXCLUDE if kind == FilterType.EXCLUDE else FilterType.INCLUDE,
        )
        for name, pattern, kind in zip(*columns, strict=False)
        if name.strip()
    )


def _changes(rows: Sequence[NameFilter], *, enabled: bool) -> list[LinkConfigChange]:
    if not enabled:
        return [LinkConfigChange(name=AUTO_CREATE, value="false")]
    return [
        LinkConfigChange(name=AUTO_CREATE, value="true"),
        LinkConfigChange(name=AUTO_CREATE_FILTERS, value=filters_to_json(rows) if rows else ""),
    ]


def _preview(found: Sequence[CheckedTopic]) -> dict[str, Any]:
    """Return what saving would change. Filters never delete mirror topics."""
    counts = Counter(checked.standing for checked in found)
    pending = [checked.mirror for checked in found if checked.standing is MirrorabilityStatus.WAITING]
    return {
        "total": len(found),
        "mirrored": counts[MirrorabilityStatus.MIRRORED],
        "created": len(pending),
        "names": pending[:NAMES_SHOWN],
        "left_out": counts[MirrorabilityStatus.NOT_MIRRORED],
        "problems": [f"{checked.topic}: {translated(check.finding)}" for checked in found for check in _problems(checked)][
            :NAMES_SHOWN
        ],
    }


def _problems(checked: CheckedTopic) -> Sequence[Check]:
    """Return the checks that exclude a topic in spite of the filters. A reserved namespace is no error, but is shown here."""
    first = checked.failed[:1]
    return first if first and first[0].code is CheckCode.NAMESPACE else checked.problems


# --- the tab Tasks ----------------------------------------------------------------------------------------------------


@page("links")
@require_GET
def tasks(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the recurring tasks of a link. Polled like the overview."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    if is_unchanged(request, link_queries.version_of(link), now=now):  # not ``polled``: a changed page needs ten queries
        return HttpResponse(status=204)
    seen = observe(link, by=by, now=now)
    rows = [task_row(task, now=now) for task in task_queries.list_tasks(link=link, current=seen.current)]
    context = link_context(link, by=by, now=now, tab="tasks", health=headline(link, by=by, now=now, seen=seen))
    return reply(request, "links/tasks.html", context | {"tasks": rows})


@page("links")
@require_POST
def run_link_task(request: HttpRequest, cluster_id: str, link_name: str, task_name: str) -> HttpResponse:
    """Request a run of a task."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    run_task(link=link, name=task_name, by=by, now=now)
    return done(
        request, reverse("pages:link-tasks", args=link.url_args), gettext("Run of %(task)s requested.") % {"task": task_name}
    )


# --- the tabs Groups and ACLs -----------------------------------------------------------------------------------------


GROUPS = Listing(
    noun=gettext_noop("group"),
    plural=gettext_noop("groups"),
    columns=(
        Column(title=gettext_lazy("Group"), key="name", by=("name",)),
        Column(title=gettext_lazy("Status"), key="status", by=("status",)),
        Column(title=gettext_lazy("Total lag"), css="number"),
        Column(title=gettext_lazy("Reason and next step")),
        Column(
            title=gettext_lazy("Last checked"), key="checked", by=("looked_at",), css="only-wide", descends=True, optional=True
        ),
    ),
    default="name",
    search=("name",),
    search_label=gettext_lazy("Group name"),
    filters=(
        Filter(
            name="status",
            label=gettext_lazy("Status"),
            every=gettext_lazy("All statuses"),
            options=[(badge.code, gettext_lazy(badge.label)) for badge in GROUP_BADGES.values()],
            by="status",
        ),
    ),
    export={  # a row per synced partition
        column: itemgetter(name)
        for column, name in {
            "group": "name",
            "group_here": "destination_name",
            "status": "status",
            "message": "message",
            "looked_at": "looked_at",
            "mirror_topic": "offsets__mirror__name",
            "partition": "offsets__partition",
            "source_offset": "offsets__source_offset",
            "destination_offset": "offsets__destination_offset",
            "goal": "offsets__target",
            "last_run": "offsets__outcome",
        }.items()
    },
)
ACLS = Listing(
    noun=gettext_noop("ACL"),
    plural=gettext_noop("ACLs"),
    columns=(
        Column(
            title=gettext_lazy("Resource"),
            key="resource",
            by=("resource_type", "resource_name", "principal", "operation", "permission"),
        ),
        Column(title=gettext_lazy("Principal"), key="principal", by=("principal",)),
        Column(title=gettext_lazy("Access"), key="access", by=("permission", "operation")),
        Column(title=gettext_lazy("Status"), key="status", by=("status",)),
        Column(title=gettext_lazy("Reason and next step")),
        Column(title=gettext_lazy("Since"), key="since", by=("since",), css="only-wide", descends=True),
    ),
    default="resource",
    search=("resource_name", "principal"),
    search_label=gettext_lazy("Resource or principal"),
    filters=(
        Filter(
            name="status",
            label=gettext_lazy("Status"),
            every=gettext_lazy("All statuses"),
            options=[
                ("conflicts", gettext_lazy("Conflicts")),
                *((badge.code, gettext_lazy(badge.label)) for badge in ACL_BADGES.values()),
            ],
            by=lambda status: Q(is_conflict=True) if status == "conflicts" else Q(status=status),
        ),
        Filter(
            name="permission",
            label=gettext_lazy("Permission"),
            every=gettext_lazy("Allow and deny"),
            options=[("ALLOW", gettext_lazy("Allow")), ("DENY", gettext_lazy("Deny"))],
            by="permission",
        ),
    ),
    export={
        name: name
        for name in (
            "resource_type",
            "resource_name",
            "pattern_type",
            "principal",
            "host",
            "operation",
            "permission",
            "status",
            "is_conflict",
            "message",
            "since",
        )
    },
)


@page("links")
@require_GET
@polled()
def groups(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """List consumer groups. Polled like the overview."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    listed = GROUPS.read(request)
    found = listed.select(link.groups.all())
    if listed.format:
        return listed.csv(f"groups-{link.name}", task_queries.with_offsets(found))
    shown = listed.page(found)
    offsets = task_queries.offsets_of(shown)
    seen = observe(link, by=by, now=now)
    mirrors = {offset.mirror_id for own in offsets.values() for offset in own}
    ends = {(pk, row.partition): row for pk in mirrors for row in seen.partitions.get(pk, ())}
    counts, is_on = task_queries.count_groups(link=link)
    listed.options = {"status": [(key, f"{gettext(GROUP_BADGES[key].label)} ({count})") for key, count in counts.items()]}
    rows = []
    for group in shown:
        own = offsets.get(group.pk, [])
        rows.append(group_row(group, own, lags=task_queries.lags_of(group, own, ends, now=now), now=now))
    context = {"list": listed, "groups": rows, "is_on": is_on}
    health = headline(link, by=by, now=now, seen=seen)
    return reply(request, "links/groups.html", link_context(link, by=by, now=now, tab="groups", health=health) | context)


@page("links")
@require_GET
@polled()
def acls(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """List ACLs. ``?status=conflicts`` lists conflicting ACLs. Polled like the overview."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    prefetch_related_objects([link], "configs")
    listed = ACLS.read(request)
    found = listed.select(link.acls.all())
    if listed.format:
        return listed.csv(f"acls-{link.name}", found)
    counts, conflicts = task_queries.count_acls(link=link)
    listed.options = {
        "status": [
            *([("conflicts", f"{gettext('Conflicts')} ({conflicts})")] if conflicts else []),
            *((key, f"{gettext(ACL_BADGES[key].label)} ({count})") for key, count in counts.items()),
        ]
    }
    context = {
        "list": listed,
        "acls": [acl_row(acl, now=now) for acl in listed.page(found)],
        "is_on": link.config("acl.sync.enable") == "true",
    }
    return reply(request, "links/acls.html", link_context(link, by=by, now=now, tab="acls") | context)
