"""The tasks, consumer groups and ACLs of a link with their states, and the metrics of groups and ACLs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, F, FilteredRelation, OuterRef, Q, QuerySet, Subquery, prefetch_related_objects
from django.utils import timezone

from console.links.rules import SYNC_OFFSETS, is_on, state_of_task, why_not_run
from console.mirrors import progress
from console.mirrors.figures import newest_report
from console.mirrors.progress import CurrentMirror
from console.models import (
    ClampedOffset,
    ClusterLink,
    GroupOffset,
    LinkTask,
    MirrorPartition,
    MirrorTopic,
    StateTransitionError,
    SyncedAcl,
    SyncedGroup,
    VerifyRun,
)
from console.models.mirrors import RECORDS_DIFFER, UNSEEN, is_fresh, shows_source_end
from console.verification.queries import is_continuous, is_watched
from linkengine.domain.acls import AclStatus
from linkengine.domain.errors import ErrorCode
from linkengine.domain.groups import GroupStatus
from linkengine.domain.linktasks import ERRORS_KEPT, TASKS, TaskError, TaskName, TaskState, is_configured, task_state
from linkengine.domain.messages import gettext_lazy, ngettext_lazy
from linkengine.domain.states import BECOMING, COPYING, WRITABLE, LinkState, MirrorState

# --- recurring and continuous tasks -----------------------------------------------------------------------------------
#
# The continuous tasks are copying and verification. They have no ``LinkTask`` rows; their state is derived from the rows of
# mirrors and verification runs. A task that was never configured is NOT_CONFIGURED.


COPY, VERIFY = "MirrorTopicCopy", "MirrorTopicVerify"
_BAD = (VerifyRun.Status.DIFFERENT, VerifyRun.Status.ERROR)
# Includes failed mirrors: their link is not idle, since copying cannot continue.
_TO_BE_COPIED = COPYING | BECOMING | {MirrorState.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """A task as pages and REST show it; a time is None if the event never happened."""

    name: str
    state: TaskState
    errors: tuple[TaskError, ...] = ()
    error_count: int = 0
    summary: str = ""
    interval_ms: int | None = None  # None: not scheduled
    started_at: datetime | None = None
    finished_at: datetime | None = None
    succeeded_at: datetime | None = None
    failing_since: datetime | None = None
    next_run_at: datetime | None = None
    requested_at: datetime | None = None
    requested_by: str = ""
    runs: int = 0
    failures: int = 0
    changes: int = 0
    can_run: bool = False  # the task has "run now"
    why_not: str = ""  # why "run now" is not possible at present


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Facts for several task views. Of the transition errors of drill copies only RECORDS_DIFFER counts."""

    now: datetime
    unstopped: bool  # some mirrors are not stopped
    to_be_copied: bool  # some are to be copied
    begun: datetime | None  # when the newest ``progress.EXPECTED`` mirror entered its state
    reported: datetime | None  # newest report on these
    troubles: Sequence[StateTransitionError]


def list_tasks(*, link: ClusterLink, current: Sequence[CurrentMirror] | None = None) -> list[TaskView]:
    """Return all tasks of a link, copying first; five queries, six if no recurring task has a row yet.

    ``current``: the progress of the mirrors of a link from ``get_link``, if it was read; stopped ones and drills do not matter.
    """
    prefetch_related_objects([link], "configs")
    facts = _facts(link, current, now=timezone.now())
    verified = Exists(VerifyRun.objects.filter(mirror__link=OuterRef("link")))
    found = list(link.tasks.annotate(verified=verified))
    rows = {row.name: row for row in found}
    recurring = [_recurring(link, name, rows.get(name), mirrors=facts.unstopped) for name in TASKS]
    ever = found[0].verified if found else None
    troubled = _troubled(link)
    return [_copy(link, facts, troubled), _verify(link, facts, troubled, ever=ever), *recurring]


HAS_UNSTOPPED_MIRRORS = Exists(MirrorTopic.objects.unstopped().filter(link=OuterRef("pk")))


def failing_of(link: ClusterLink) -> list[LinkTask]:
    """Return the recurring tasks of a link whose last run had errors; no query for a link without any from ``get_link``."""
    if not hasattr(link, "failing_tasks"):
        return failing_rows(links=[link]).get(link.pk, [])
    if link.failing_tasks:
        prefetch_related_objects([link], "configs")
    return [row for row in link.failing_tasks if _has_work(link, row, mirrors=link.unstopped)]  # type: ignore[attr-defined]


def _has_work(link: ClusterLink, row: LinkTask, *, mirrors: bool) -> bool:
    return is_configured(TASKS[TaskName(row.name)], value_of=link.config, mirrors=mirrors)


def failing_rows(*, links: Sequence[ClusterLink]) -> dict[int, list[LinkTask]]:
    """Return the recurring tasks whose last run had errors, by primary key of the link; one query, two if there are any.

    A task without work has none: the errors of the last run of the config sync end when the last mirror is stopped.
    """
    by_key = {link.pk: link for link in links}
    unstopped = Exists(MirrorTopic.objects.unstopped().filter(link=OuterRef("link")))
    rows = list(LinkTask.objects.filter(link__in=by_key, error_count__gt=0).annotate(unstopped=unstopped))
    prefetch_related_objects([by_key[key] for key in {row.link_id for row in rows}], "configs")
    found: dict[int, list[LinkTask]] = defaultdict(list)
    for row in rows:
        if _has_work(by_key[row.link_id], row, mirrors=row.unstopped):
            found[row.link_id].append(row)
    return found


def get_task(*, link: ClusterLink, name: str) -> TaskView | None:
    """Return the task with this name, None if there is none."""
    return next((task for task in list_tasks(link=link) if task.name == name), None)


def _recurring(link: ClusterLink, name: TaskName, row: LinkTask | None, *, mirrors: bool) -> TaskView:
    state = state_of_task(link, name, row=row, mirrors=mirrors)
    off = state is TaskState.NOT_CONFIGURED
    why_not = why_not_run(link, name, state=state)
    interval_ms = int(link.config(TASKS[name].interval_config))
    if row is None:
        return TaskView(name=name, state=state, interval_ms=interval_ms, can_run=True, why_not=why_not)
    return TaskView(
        name=name,
        state=state,
        errors=() if off else tuple(TaskError(code=error["code"], message=error["message"]) for error in row.errors),
        error_count=0 if off else row.error_count,
        summary="" if off else row.summary,
        interval_ms=interval_ms,
        started_at=row.started_at,
        finished_at=row.finished_at,
        succeeded_at=row.succeeded_at,
        failing_since=None if off else row.failing_since,
        next_run_at=None if why_not else row.next_run_at,
        requested_at=row.requested_at,
        requested_by=row.requested_by,
        runs=row.runs,
        failures=row.failures,
        changes=row.changes,
        can_run=True,
        why_not=why_not,
    )


def _facts(link: ClusterLink, current: Sequence[CurrentMirror] | None, *, now: datetime) -> _Facts:
    mirrors = progress.current(MirrorTopic.objects.filter(link=link), now=now) if current is None else current
    copied = [mirror for mirror in mirrors if mirror.expected]
    counted = Q(code=RECORDS_DIFFER) | Q(mirror__drill=None)
    return _Facts(
        now=now,
        unstopped=any(mirror.state not in WRITABLE for mirror in mirrors) or getattr(link, "unstopped", False),
        to_be_copied=any(mirror.state in _TO_BE_COPIED and mirror.drill_id is None for mirror in mirrors),
        begun=max((mirror.state_since for mirror in copied), default=None),
        reported=newest_report(row for mirror in copied for row in mirror.partitions),
        troubles=list(StateTransitionError.objects.filter(counted, mirror__link=link)),
    )


def _troubled(link: ClusterLink) -> Sequence[MirrorTopic]:
    """Return the mirrors that have failed, or whose last verification run or attempt failed, by name. One query."""
    newest = VerifyRun.objects.filter(mirror=OuterRef("pk")).order_by("-id")
    run_status, run_error, run_differences = (
        Subquery(newest.values(column)[:1]) for column in ("status", "error_message", "differences")
    )
    mirrors = link.mirrors.annotate(run_status=run_status, run_error=run_error, run_differences=run_differences)
    failed = ~Q(error_code="") | Q(run_status__in=_BAD) | (Q(verify_watch__isnull=False) & ~Q(verify_watch__error_message=""))
    return list(mirrors.filter(failed).select_related("verify_watch").order_by("name"))


def _copy(link: ClusterLink, facts: _Facts, troubled: Sequence[MirrorTopic]) -> TaskView:
    errors = [*_silence(link, facts), *_copy_errors(link, facts, troubled)] if facts.to_be_copied else []
    state = task_state(configured=facts.to_be_copied, link_state=LinkState(link.state), has_run=True, errors=len(errors))
    return TaskView(name=COPY, state=state, errors=tuple(errors[:ERRORS_KEPT]), error_count=len(errors))


def _copy_errors(link: ClusterLink, facts: _Facts, troubled: Sequence[MirrorTopic]) -> list[TaskError]:
    """Return the errors of copying, first that of the whole link: of many errors only the first are listed."""
    found = [TaskError(code=ErrorCode.INTERNAL_ERROR, message=link.engine_error)] if link.engine_error else []
    found += [
        TaskError(code=mirror.error_code, message=f"{mirror.name}: {mirror.error_message}")
        for mirror in troubled
        if mirror.error_code and mirror.drill_id is None and mirror.state != MirrorState.STOPPED
    ]
    return found + [TaskError(code=row.code, message=row.message) for row in facts.troubles if row.code != RECORDS_DIFFER]


def _silence(link: ClusterLink, facts: _Facts) -> list[TaskError]:
    """Return an error if no copy worker reports on the link.

    It is derived here because the process that would store it may have crashed. A link that is not ACTIVE shows its own error.
    """
    known = [at for at in (link.state_since, facts.begun, facts.reported) if at is not None]
    is_recent = any(is_fresh(at, now=facts.now, within=UNSEEN) for at in known)
    if link.state != LinkState.ACTIVE or facts.begun is None or is_recent:
        return []
    message = gettext_lazy(
        "No copy worker has reported on this link since %(time)s UTC. Check that the worker, Redis and Spark run. Nothing is "
        "lost; copying resumes where it stopped.",
        time=f"{max(known):%Y-%m-%d %H:%M:%S}",
    )
    return [TaskError(code=ErrorCode.INTERNAL_ERROR, message=message)]


def _verify(link: ClusterLink, facts: _Facts, troubled: Sequence[MirrorTopic], *, ever: bool | None) -> TaskView:
    continuous = facts.unstopped and is_continuous(link=link)
    errors = tuple(_verify_errors(facts, troubled, continuous=continuous))
    if not continuous and not errors and ever is None:
        ever = VerifyRun.objects.filter(mirror__link=link).exists()
    configured = continuous or errors or ever
    state = TaskState.IN_ERROR if errors else TaskState.ACTIVE if configured else TaskState.NOT_CONFIGURED
    return TaskView(name=VERIFY, state=state, errors=errors[:ERRORS_KEPT], error_count=len(errors))


def _verify_errors(facts: _Facts, troubled: Sequence[MirrorTopic], *, continuous: bool) -> Iterable[TaskError]:
    """Return one error per mirror; records that differ take precedence over a failed attempt to compare."""
    watched = [mirror for mirror in troubled if continuous and is_watched(mirror)]
    messages = {mirror.pk: mirror.verify_watch.error_message for mirror in watched if hasattr(mirror, "verify_watch")}
    found = {mirror.pk: _no_comparison(mirror, messages[mirror.pk]) for mirror in watched if messages.get(mirror.pk)}
    found |= {mirror.pk: _verify_error(mirror) for mirror in troubled if mirror.run_status in _BAD}  # type: ignore[attr-defined]
    alarms = [row for row in facts.troubles if row.code == RECORDS_DIFFER]
    found |= {row.mirror_id: TaskError(code=row.code, message=row.message) for row in alarms}
    return found.values()


def _verify_error(mirror: MirrorTopic) -> TaskError:
    if mirror.run_status == VerifyRun.Status.ERROR:  # type: ignore[attr-defined]
        return _no_comparison(mirror, mirror.run_error)  # type: ignore[attr-defined]
    count = mirror.run_differences  # type: ignore[attr-defined]
    message = ngettext_lazy(
        "%(topic)s: %(count)s record differs.", "%(topic)s: %(count)s records differ.", count, topic=mirror.name
    )
    return TaskError(code=RECORDS_DIFFER, message=message)


def _no_comparison(mirror: MirrorTopic, reason: str) -> TaskError:
    return TaskError(code=ErrorCode.INTERNAL_ERROR, message=f"{mirror.name}: {reason}")


# --- consumer groups, and offsets that stops clamped ------------------------------------------------------------------


Sample = tuple[dict[str, str], float]
# statuses that need attention first
_ORDER = (
    GroupStatus.FAILED,
    GroupStatus.IN_USE,
    GroupStatus.PARTLY_SYNCED,
    GroupStatus.SYNCED,
    GroupStatus.WAITING,
    GroupStatus.NOT_LISTED,
    GroupStatus.NO_MIRROR_TOPIC,
    GroupStatus.UNSUPPORTED_TYPE,
    GroupStatus.EXCLUDED,
)
_READ = (GroupStatus.SYNCED, GroupStatus.PARTLY_SYNCED, GroupStatus.IN_USE)  # the last run has read the offsets of the group


def offsets_of(groups: Sequence[SyncedGroup]) -> dict[int, list[GroupOffset]]:
    """Return the offsets of these groups by primary key of the group. One query."""
    offsets: dict[int, list[GroupOffset]] = {}
    columns = [column.name for column in GroupOffset._meta.concrete_fields]  # noqa: SLF001 - Django documents it
    rows = GroupOffset.objects.filter(group__in=groups).select_related("mirror").only(*columns, "mirror__name")
    for row in rows.order_by("mirror__name", "partition"):
        offsets.setdefault(row.group_id, []).append(row)
    return offsets


def lags_of(
    group: SyncedGroup, offsets: Iterable[GroupOffset], ends: Mapping[tuple[int, int], MirrorPartition], *, now: datetime
) -> list[int | None]:
    """Return, per offset, how far the group's committed offset on the source is behind the source's end; None if unknown.

    ``ends`` are the current rows by (mirror, partition). The offset is as of ``looked_at``, so the group may have committed
    since, and the lag is an upper bound. It is unknown if the last run did not read the offsets of the group, if the source's
    end was not seen for 15 s, and if the offset is beyond the end: it is then that of an earlier topic or of lost records.
    """
    if group.looked_at is None or group.status not in _READ:
        return [None for _ in offsets]
    return [_lag_of(offset, ends.get((offset.mirror_id, offset.partition)), now=now) for offset in offsets]


def _lag_of(offset: GroupOffset, row: MirrorPartition | None, *, now: datetime) -> int | None:
    if row is None or row.source_end is None or not shows_source_end(row.last_source_seen_at, now=now):
        return None
    lag = row.source_end - offset.source_offset
    return lag if lag >= 0 else None


def with_offsets(groups: QuerySet[SyncedGroup]) -> QuerySet[Any, Any]:
    """Return a row of values per offset of these groups, and one for each group without offsets. One query."""
    own = ("name", "destination_name", "status", "message", "looked_at")
    names = ("mirror__name", "partition", "source_offset", "destination_offset", "target", "outcome")
    order: list[Any] = [*groups.query.order_by, "offsets__mirror__name", "offsets__partition"]
    rows: QuerySet[Any, Any] = groups.order_by(*order).values(*own, *(f"offsets__{name}" for name in names))
    return rows


def count_groups(*, link: ClusterLink) -> tuple[dict[GroupStatus, int], bool]:
    """Return the number of groups of a link by status, and whether consumer offset sync is on. One query.

    Statuses that need attention come first; those without groups are omitted.
    """
    enabled = FilteredRelation("configs", condition=Q(configs__name=SYNC_OFFSETS))
    links = ClusterLink.objects.filter(pk=link.pk).annotate(enabled=enabled).order_by()
    rows = list(links.values_list("enabled__value", "groups__status").annotate(count=Count("groups")))
    counts = {status: count for _, status, count in rows}
    return {status: counts[status] for status in _ORDER if status in counts}, any(is_on(SYNC_OFFSETS, row[0]) for row in rows)


def list_clamped(*, mirror: MirrorTopic, limit: int) -> list[ClampedOffset]:
    """Return the offsets that were clamped to the end of the mirror, those of the newest stop first."""
    return list(ClampedOffset.objects.filter(mirror=mirror).order_by("-stopping_since", "group", "partition")[:limit])


def count_clamped(*, mirror: MirrorTopic) -> int:
    """Count all clamped offsets of the mirror."""
    return ClampedOffset.objects.filter(mirror=mirror).count()


def group_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Return (name, type, help, samples) of each Prometheus metric. Two queries."""
    groups = (
        SyncedGroup.objects.order_by()
        .values("status", cluster=F("link__destination__cluster_id"), link_name=F("link__name"))
        .annotate(count=Count("pk"))
    )
    clamped = (
        ClampedOffset.objects.filter(mirror__isnull=False, mirror__drill=None)
        .order_by()
        .values(cluster=F("mirror__link__destination__cluster_id"), link=F("mirror__link__name"))
        .annotate(count=Count("pk"))
    )
    by_status = [
        ({"cluster": row["cluster"], "link": row["link_name"], "status": row["status"]}, row["count"]) for row in groups
    ]
    by_link = [({"cluster": row["cluster"], "link": row["link"]}, row["count"]) for row in clamped]
    return [
        ("clusterlink_consumer_groups", "gauge", "Consumer groups of the source by sync status.", by_status),
        (
            "clusterlink_clamped_offsets",
            "gauge",
            "Consumer offsets clamped to the end of the mirror at a stop.",
            by_link,
        ),
    ]


# --- ACLs -------------------------------------------------------------------------------------------------------------


_CONFLICTS = Count("pk", filter=Q(is_conflict=True))


def count_acls(*, link: ClusterLink) -> tuple[dict[AclStatus, int], int]:
    """Return the number of ACLs by status, and the number of conflicts."""
    rows = SyncedAcl.objects.filter(link=link).order_by().values_list("status")
    found = {status: (count, bad) for status, count, bad in rows.annotate(n=Count("pk"), bad=_CONFLICTS)}
    counts = {status: found[status][0] for status in AclStatus if status in found}
    return counts, sum(bad for _, bad in found.values())


def acl_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Return (name, type, help, samples) of each Prometheus metric. One query."""
    named = SyncedAcl.objects.order_by().values("status", cluster=F("link__destination__cluster_id"), link_name=F("link__name"))
    rows = list(named.annotate(count=Count("pk"), bad=_CONFLICTS))
    counts: list[Sample] = [
        ({"cluster": row["cluster"], "link": row["link_name"], "status": row["status"]}, row["count"]) for row in rows
    ]
    conflicts: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["cluster"], row["link_name"])
        conflicts[key] = conflicts.get(key, 0) + row["bad"]
    conflict_samples: list[Sample] = [
        ({"cluster": cluster, "link": link}, count) for (cluster, link), count in conflicts.items()
    ]
    return [
        ("clusterlink_acls", "gauge", "ACLs of the source by sync status.", counts),
        (
            "clusterlink_acl_conflicts",
            "gauge",
            "ACLs that repeat or contradict a local ACL or one of another link.",
            conflict_samples,
        ),
    ]
