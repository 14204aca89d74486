"""Which tasks are due for mirrors and links, when recurring tasks run, and when a waiting promotion checks again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from django.db.models import F

from console.models import ClusterLink, LinkTask, MirrorPartition, MirrorTopic, RestoreRun
from console.models.links import show_change
from console.reconciling.plans import mirror_key
from linkengine.domain.errors import ErrorCode
from linkengine.domain.linktasks import ERRORS_KEPT, TASKS, TaskName, TaskOutcome, TaskSpec, is_configured
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import BECOMING, LinkState, MirrorState, StopReason
from linkengine.domain.times import pause_s

# --- recurring tasks --------------------------------------------------------------------------------------------------


MORE_AFTER = timedelta(milliseconds=500)  # pause before the next run if a run stopped at its limit
# Pause after a run as a multiple of its duration, and the limit of this pause: the configs of 1,000 topics at both clusters
# take seconds of processor time, every few seconds by default.
PAUSE, LONGEST_PAUSE = 10, timedelta(seconds=30)


def due_tasks(*, link: ClusterLink, mirrors: bool, now: datetime) -> list[TaskName]:
    """Return the tasks to run now; ``mirrors``: whether the link has mirrors that are not stopped. Takes a query."""
    if link.state != LinkState.ACTIVE or link.deletion_requested_at is not None:
        return []
    rows = {row.name: row for row in link.tasks.all()}
    configured = [spec for spec in TASKS.values() if is_configured(spec, value_of=link.config, mirrors=mirrors)]
    return [spec.name for spec in configured if _is_due(rows.get(spec.name), now=now)]


def begin_task_run(*, link: ClusterLink, name: TaskName, mirrors: bool, now: datetime) -> LinkTask | None:
    """Store the start of a run and return its row, or None if it is no longer due. The caller must hold the task's lock."""
    if name not in due_tasks(link=link, mirrors=mirrors, now=now):
        return None
    row, _ = LinkTask.objects.get_or_create(link=link, name=name)
    # Schedule the next run now, so that a run whose worker crashes is not repeated immediately.
    values = {"started_at": now, "requested_at": None, "next_run_at": now + _interval(TASKS[name], link)}
    LinkTask.objects.filter(pk=row.pk).update(**values)
    for field, value in values.items():
        setattr(row, field, value)
    return row


def finish_task_run(*, row: LinkTask, outcome: TaskOutcome, now: datetime) -> None:
    """Store the result of a run."""
    errors = [{"code": error.code, "message": error.message} for error in outcome.errors[:ERRORS_KEPT]]
    changed = errors != row.errors or outcome.summary != row.summary or row.finished_at is None
    LinkTask.objects.filter(pk=row.pk).update(
        finished_at=now,
        succeeded_at=row.succeeded_at if errors else now,
        failing_since=(row.failing_since or now) if errors else None,
        errors=errors,
        error_count=len(outcome.errors),
        summary=outcome.summary,
        runs=F("runs") + 1,
        failures=F("failures") + int(bool(errors)),  # PostgreSQL cannot add a boolean
        changes=F("changes") + outcome.changes,
    )
    next_run_at = now + (MORE_AFTER if outcome.more else _pause(row, now=now))
    if outcome.more or (not errors and next_run_at > (row.next_run_at or now)):
        LinkTask.objects.filter(pk=row.pk).update(next_run_at=next_run_at)
    if changed or outcome.more:  # a new sequence causes a pass of a settled link (``workflows.observing``)
        show_change(row.link_id)


def _pause(row: LinkTask, *, now: datetime) -> timedelta:
    took = timedelta(0) if row.started_at is None else max(timedelta(0), now - row.started_at)
    return min(PAUSE * took, LONGEST_PAUSE)


def _is_due(row: LinkTask | None, *, now: datetime) -> bool:
    return row is None or row.requested_at is not None or row.next_run_at is None or row.next_run_at <= now


def _interval(spec: TaskSpec, link: ClusterLink) -> timedelta:
    return timedelta(milliseconds=int(link.config(spec.interval_config)))


# --- when a waiting promotion checks again ----------------------------------------------------------------------------
#
# A check sends requests to both clusters for the topic, its configs and its groups. With many mirrors waiting, checks must
# become rare (exponential backoff). So that no promotion waits longer than necessary, the end of its obstacle triggers a check:
# a lag of zero that a copy worker reports, or a run of the recurring task that syncs what was missing.


FIRST_S = 0.1
LONGEST_S = 300.0  # with a thousand mirrors that wait; a few wait ``LONGEST_OF_FEW_S`` at most
LONGEST_OF_FEW_S = 30.0
PER_WAITING_S = LONGEST_S / 1_000  # so that the steps of a link stay at about three a second, however many mirrors wait
URGENT_S = 5.0  # for topics that no producer can write to until the next step
# Between early checks of a mirror because of lag zero: it may have other obstacles, for example an open transaction.
WAKE_MS = 5_000
FEW_FAILURES = 4
_GROUPS = (ErrorCode.WAITING_FOR_GROUPS, ErrorCode.CONSUMER_GROUP_IN_USE_ERROR)
_ENDED_BY: Mapping[TaskName, tuple[ErrorCode, ...]] = MappingProxyType(
    {
        TaskName.CONSUMER_OFFSETS: _GROUPS,
        TaskName.TOPIC_CONFIGS: (ErrorCode.WAITING_FOR_CONFIGS, ErrorCode.WAITING_FOR_PARTITIONS),
    }
)
Rows = Mapping[str, MirrorPartition]


def promote_pause_s(mirror: MirrorTopic, checks: int) -> float:
    """Return the seconds until the next check after ``checks`` checks: they double, with a jitter of a quarter."""
    longest = longest_s(mirror)
    return min(longest, pause_s(checks, first_s=FIRST_S, longest_s=longest))


def is_urgent(mirror: MirrorTopic) -> bool:
    """Return whether producers are kept out until the mirror's next step: a failover, a marked stop, or a reversal."""
    if mirror.state != MirrorState.PENDING_STOPPED:
        return mirror.state in (MirrorState.PENDING_SYNCHRONIZE, MirrorState.PENDING_MIRROR)
    return mirror.stop_reason == StopReason.FAILOVER or mirror.fencing_at is not None or bool(mirror.reversal)


def longest_s(mirror: MirrorTopic) -> float:
    """Return the longest pause after a failed step or check: longer if many mirrors of the link wait. At most one query."""
    if is_urgent(mirror):
        return URGENT_S
    waiting = MirrorTopic.objects.filter(link=mirror.link_id, retry_at__isnull=False).count()
    return min(LONGEST_S, max(LONGEST_OF_FEW_S, PER_WAITING_S * waiting))


def is_limited(mirror: MirrorTopic) -> bool:
    """Return whether a step has failed so often that its pause would be longer if it were not urgent.

    In an outage a thousand steps may fail repeatedly, and each occupies a thread while it runs. So at most ``AT_A_TIME`` of
    them are sent at once.
    """
    return is_urgent(mirror) and mirror.retry_count > FEW_FAILURES


def postpone_promote(*, mirror: MirrorTopic, checks: int, wait_s: float, now: datetime) -> None:
    """Set when the reconciler checks a promotion again. Does not delay a failover that was ordered since, nor a marked stop.

    A marked stop has its retry time already.
    """
    waiting = MirrorTopic.objects.filter(pk=mirror.pk, state=MirrorState.PENDING_STOPPED, stop_reason=StopReason.PROMOTE)
    waiting.filter(fencing_at=None).update(retry_count=checks, retry_at=now + timedelta(seconds=wait_s))


def is_postponed(mirror: MirrorTopic, *, now: datetime) -> bool:
    """Return whether the mirror's next step is not due yet."""
    return mirror.retry_at is not None and mirror.retry_at > now


def caught_up(*, mirrors: Iterable[MirrorTopic], rows: Rows, now: datetime) -> Iterator[MirrorTopic]:
    """Yield the postponed promotions that wait for a lag which is zero now."""
    for mirror in mirrors:
        if mirror.state != MirrorState.PENDING_STOPPED or mirror.stop_reason != StopReason.PROMOTE:
            continue
        lagged = any(error.code == ErrorCode.WAITING_FOR_LAG for error in mirror.transition_errors.all())
        if is_postponed(mirror, now=now) and lagged and _is_in_sync(mirror, rows):
            yield mirror


def wake_after(*, link: ClusterLink, task: TaskName, outcome: TaskOutcome) -> bool:
    """Make the promotions due that may have waited for this run. Returns whether there are any.

    Consumer offsets also become equal by commits of other clients, so each run over groups counts.
    """
    if task not in _ENDED_BY or not (outcome.changes or task is TaskName.CONSUMER_OFFSETS):
        return False
    waiting = MirrorTopic.objects.filter(link=link, state=MirrorState.PENDING_STOPPED, stop_reason=StopReason.PROMOTE)
    keys = waiting.filter(transition_errors__code__in=_ENDED_BY[task]).values_list("pk", flat=True)
    return bool(MirrorTopic.objects.filter(pk__in=list(keys)).update(retry_at=None))


def _is_in_sync(mirror: MirrorTopic, rows: Rows) -> bool:
    key = mirror_key(mirror)
    own = [rows.get(f"{key}/{number}") for number in range(mirror.num_partitions)]
    return all(
        row is not None and row.source_end is not None and row.mirror_end is not None and row.mirror_end >= row.source_end
        for row in own
    )


# --- due tasks of mirrors and links -----------------------------------------------------------------------------------
#
# Computed each second, so a lost message is sent again.


_ADVANCED_BY = {
    MirrorState.PENDING_SETUP: "setup_mirror",
    MirrorState.PENDING_STOPPED: "advance_stop",
    MirrorState.PENDING_SYNCHRONIZE: "advance_reversal",
    MirrorState.PENDING_MIRROR: "take_over_as_mirror",
    MirrorState.PENDING_SETUP_FOR_RESTORE: "advance_restore",
    MirrorState.PENDING_RESTORE_MIRROR: "advance_restore",
}

# Not urgent, and sometimes hundreds at once: a failover must find a free thread and a short queue nevertheless. A failed task
# is postponed to its next attempt, so that the others are sent.
_LIMITED = frozenset({"setup_mirror", "delete_mirror"})
AT_A_TIME = 16  # of each kind per link; a worker has 64 threads

MANY = 20  # from this many failovers of a link they are stopped together; fewer are as fast singly
DueTask = tuple[str, int]  # name of the task, primary key of the mirror


def due_mirror_tasks(*, mirrors: Iterable[MirrorTopic], now: datetime) -> Iterator[DueTask]:
    """Yield the tasks that are due; at most ``AT_A_TIME`` of each kind that is limited."""
    found = Counter[str]()
    for mirror in mirrors:
        if mirror.deletion_requested_at is not None:
            task = "delete_mirror"
        elif mirror.state in _ADVANCED_BY:
            task = _ADVANCED_BY[MirrorState(mirror.state)]
        else:
            continue
        if is_postponed(mirror, now=now):
            continue
        if task in _LIMITED or is_limited(mirror):
            found[task] += 1
            if found[task] > AT_A_TIME:
                continue
        yield task, mirror.pk


def stopped_together(mirrors: Iterable[MirrorTopic]) -> frozenset[int]:
    """Return the mirrors (primary keys) that a single task fails over together: many whose fencing has not started.

    Mirrors for which the others would have to wait are left out. One query if there are many.
    """
    fresh = [
        mirror.pk
        for mirror in mirrors
        if mirror.state == MirrorState.PENDING_STOPPED
        and mirror.stop_reason == StopReason.FAILOVER
        and mirror.fencing_at is None
        and mirror.deletion_requested_at is None
        and mirror.num_partitions
        and mirror.holds_copy
        and mirror.link.gap_filler == GapFiller.MARKERS  # other fences are transactions of each mirror
        and mirror.prior_state not in BECOMING  # the task that makes it a mirror has to be preempted first
    ]
    if len(fresh) < MANY:
        return frozenset()
    restores = RestoreRun.objects.filter(mirror__in=fresh, finished_at=None).exclude(deletion_decided_at=None)
    deciding = set(restores.values_list("mirror", flat=True))  # their topics may still be deleted, which is decided first
    together = frozenset(fresh) - deciding
    return together if len(together) >= MANY else frozenset()


def can_be_removed(*, link: ClusterLink, mirrors: Iterable[MirrorTopic]) -> bool:
    """Return whether a link that is to be deleted can be deleted now."""
    if link.deletion_requested_at is None:
        return False
    return all(mirror.state == MirrorState.STOPPED and mirror.deletion_requested_at is None for mirror in mirrors)
