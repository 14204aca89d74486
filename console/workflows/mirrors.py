"""Sets up and deletes mirror topics and syncs their configs; preempts such tasks for a failover or a deletion.

A set-up takes a mirror from PENDING_SETUP to ACTIVE, in one task (``jobs.mirror_topics``) that can be repeated at any time:

    error                                                     then
    one of ``_FATAL_IN_SETUP``                                FAILED
    of these, one of ``_FATAL_AFTER_RETRIES``                 FAILED after ``_MIN_RETRIES`` retries
    any other                                                 retried by the reconciler, with growing pauses
    the mirror was stopped or is to be deleted (preempted)    the topic follows the row (see below)

A deletion is requested with ``deletion_requested_at``, in any state. If the cluster refuses it, the request is withdrawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from console import audit
from console.actors import ENGINE
from console.mirrors import lineage, transitions
from console.models import Cluster, MirrorTopic, SourceTopic
from console.models.links import show_change
from console.models.mirrors import DELETION_REFUSED
from console.queue import dispatch
from console.reconciling import due_tasks, gaps, plans, sampling, transition_errors
from console.redis import locks
from console.workflows import leases
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, IllegalTransitionError, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorCreated, MirrorSynced
from linkengine.domain.plans import PartitionAssignment
from linkengine.domain.states import BECOMING, CLOSED_FIRST, MirrorEvent, MirrorState, can
from linkengine.domain.times import pause_s

BACKOFF_S = 0.5
RELEASE_WAIT_S = 2.0
_FATAL_IN_SETUP = {
    ErrorCode.TOPIC_EXISTS_ERROR,
    ErrorCode.INVALID_TOPIC,
    ErrorCode.POLICY_VIOLATION_ERROR,
    ErrorCode.SOURCE_TOPIC_ID_CHANGED,
    ErrorCode.SOURCE_PARTITIONS_DECREASED,  # an earlier attempt created more partitions, which cannot be removed
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR,
}
# A broker may have older metadata or a shorter log than others, and a single response may be damaged, so these errors are fatal
# only after several attempts.
_FATAL_AFTER_RETRIES = {
    ErrorCode.TOPIC_EXISTS_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR,
    ErrorCode.SOURCE_TOPIC_ID_CHANGED,
}
# Without a response the request may still be carried out. After any other error the topic was not deleted.
_OUTCOME_UNKNOWN = frozenset(
    {
        ErrorCode.TIMEOUT_ERROR,
        ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
        ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR,
        ErrorCode.DESTINATION_UNAVAILABLE,
    }
)
# Another attempt is refused as well, until the cluster's settings or the principal's rights are changed.
REFUSED_DELETION = frozenset(
    {
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.AUTHORIZATION_ERROR,
        ErrorCode.POLICY_VIOLATION_ERROR,
        ErrorCode.INVALID_REQUEST_ERROR,
        ErrorCode.UNSUPPORTED_VERSION_ERROR,
    }
)
# A set-up starts a reconcile pass, so that copying begins at once, but for a link not more often than this. If many mirrors are
# set up in sequence, the others start with the next regular pass.
CREATED_MS = 1_000
_MIN_RETRIES = 4  # 7.5 s including the pauses
_log = structlog.get_logger(__name__)


def set_up(mirror: MirrorTopic) -> None:
    """Create the topic of a mirror, deny writes to it and seed its heads. The mirror is ACTIVE afterwards."""
    if mirror.state != MirrorState.PENDING_SETUP or mirror.deletion_requested_at is not None:
        return
    with unless_preempted(mirror, on_error=partial(_note_setup_failure, mirror)):
        _note_created(mirror, create_topic(mirror), now=timezone.now())
        if locks.claim(f"created:{mirror.link_id}", ttl_ms=CREATED_MS):
            dispatch.send("reconcile_link", link_id=mirror.link_id)


def create_topic(mirror: MirrorTopic) -> MirrorCreated:
    """Create the topic. Raises PreemptedError if the row shows that the mirror is to be stopped or deleted."""

    def assignments(partitions: int, topic_id: str) -> tuple[PartitionAssignment, ...]:
        return plans.assignments_of(mirror, partitions=partitions, topic_id=topic_id)

    return jobs.set_up_mirror_topic(
        plans.setup_of(mirror), assignments_factory=assignments, check_owner=partial(check_unchanged, mirror)
    )


def _note_setup_failure(mirror: MirrorTopic, error: LinkEngineError) -> None:
    note_failure(mirror, error, fatal=_is_fatal(mirror, error), now=timezone.now())


def _is_fatal(mirror: MirrorTopic, error: LinkEngineError) -> bool:
    return error.code in _FATAL_IN_SETUP and (error.code not in _FATAL_AFTER_RETRIES or mirror.retry_count >= _MIN_RETRIES)


def delete(mirror: MirrorTopic) -> None:
    """Delete the topic of a mirror that is to be deleted, then its row."""
    if mirror.deletion_requested_at is None:
        return
    with leases.taken(mirror, wait_s=RELEASE_WAIT_S):
        try:
            jobs.delete_mirror_topic(
                destination=mirror.link.destination.address,
                mirror_topic=mirror.name,
                mirror_topic_id=mirror.mirror_topic_id,
                guard=plans.is_guarded(mirror.link),
                contested=plans.is_contested(mirror),
            )
        except LinkEngineError as error:
            if not _is_gone(mirror, error):
                _note_undeleted(mirror, error, now=timezone.now())
                return
    name, keys = plans.mirror_key(mirror), plans.partition_keys(mirror)
    jobs.clear_mirror(settings.REDIS_URL, plans.link_key(mirror.link), mirror_id=name, keys=keys)
    _remove(mirror)


def _is_gone(mirror: MirrorTopic, error: LinkEngineError) -> bool:
    """Return whether the topic is gone, and only its ACLs could not be deleted. The refusal is audited then."""
    if error.code != ErrorCode.AUTHORIZATION_ERROR:
        return False
    here, contested = mirror.link.destination.address, plans.is_contested(mirror)
    try:
        if jobs.find_mirror(here, mirror.name, topic_id=mirror.mirror_topic_id, contested=contested) is not None:
            return False
    except LinkEngineError:
        return False
    _audit_refusal(mirror, "RemoveMirrorTopicRules", error, now=timezone.now())
    return True


def _note_undeleted(mirror: MirrorTopic, error: LinkEngineError, *, now: datetime) -> None:
    """Store why the topic still exists.

    If the cluster has refused the deletion, the request is withdrawn and the mirror continues as before: a row with a pending
    deletion refuses all operations, also a failover. If the cluster did not respond, the deletion is retried, and a failover
    stays refused, since the topic may still be deleted while producers write to it.
    """
    if error.code in _OUTCOME_UNKNOWN:
        note_failure(mirror, error, fatal=False, now=now)
        return
    message = f"The destination did not delete topic '{mirror.name}', so the mirror continues. {error.message}"
    with transaction.atomic():
        MirrorTopic.objects.filter(pk=mirror.pk).update(deletion_requested_at=None, retry_at=None, retry_count=0)
        transition_errors.note(mirror=mirror, code=DELETION_REFUSED, message=message, now=now)
        if error.code == ErrorCode.TOPIC_DELETION_DISABLED:
            Cluster.objects.filter(pk=mirror.link.destination_id).update(deletes_topics=False)
        _audit_refusal(mirror, "DeleteMirrorTopic", error, now=now)
        show_change(mirror.link_id)
    dispatch.send("reconcile_link", link_id=mirror.link_id)


def _audit_refusal(mirror: MirrorTopic, action: str, error: LinkEngineError, *, now: datetime) -> None:
    detail = {"code": error.code, "reason": error.message}
    audit.record(by=ENGINE, action=action, resource=audit.path_of(mirror), now=now, result=audit.Result.FAILURE, detail=detail)


def follow_source(mirror: MirrorTopic) -> MirrorSynced:
    """Sync partitions and configs of a mirror once, store the outcome and return it."""
    (plan,), queried_at = plans.syncs_of([mirror]), timezone.now()
    synced = jobs.sync_mirror(plan, still_mirrors=transition_errors.still_mirrors(mirror.link))
    note_synced(mirror, synced, now=timezone.now(), queried_at=queried_at)
    return synced


def note_synced(mirror: MirrorTopic, synced: MirrorSynced, *, now: datetime, queried_at: datetime | None = None) -> None:
    """Store the outcome of a sync of partitions and configs.

    ``queried_at``: when the sync started. If it is set, the configs that were read also decide whether tombstones that were
    copied late were copied too late (``gaps.judge_tombstones``).
    """
    grown = synced.partitions > mirror.num_partitions
    facts = {
        "num_partitions": max(synced.partitions, mirror.num_partitions),
        "source_configs": synced.source_configs,
        "was_compacted": mirror.was_compacted or plans.is_compacting(mirror, synced.source_configs),
        **gaps.cleaning_fields(mirror, synced.source_configs, now=now),
    }
    if any(getattr(mirror, name) != value for name, value in facts.items()):
        MirrorTopic.objects.filter(pk=mirror.pk).update(**facts)
        for name, value in facts.items():
            setattr(mirror, name, value)
    if queried_at is not None and synced.read:
        gaps.judge_tombstones(mirror, queried_at=queried_at, now=now)
    if synced.growth_error is not None:
        sampling.note_missing_partitions(mirror, total=synced.source_partitions, why=synced.growth_error)
    if synced.reverted:
        transition_errors.note_reverts(mirror=mirror, edits=synced.reverted, now=now)
    if grown:
        _log.info("partitions.grown", mirror=mirror.name, partitions=mirror.num_partitions)
        _open_lineage(mirror, now=now)
        dispatch.send("reconcile_link", link_id=mirror.link_id)


def _open_lineage(mirror: MirrorTopic, *, now: datetime) -> None:
    """Store the lineage of new partitions, unless the mirror was stopped in between: a stop closes the lineage."""
    with transaction.atomic():
        known = MirrorTopic.objects.select_for_update(of=("self",)).select_related("link__destination")
        found = known.unstopped().filter(pk=mirror.pk).first()
        if found is not None:
            lineage.open_lineage(mirror=found, starts={}, now=now)


def note_failure(mirror: MirrorTopic, error: LinkEngineError, *, fatal: bool, now: datetime) -> None:
    """Store why a step failed and when it is retried. A fatal error sets the mirror to FAILED if its state allows that."""
    transition_errors.note(mirror=mirror, code=error.code, message=error.message, now=now)
    if fatal and can(MirrorState(mirror.state), MirrorEvent.FATAL):
        facts = {"error_code": error.code, "error_message": error.message, "error_since": now}
        transitions.apply_event(mirror=mirror, event=MirrorEvent.FATAL, by=ENGINE, now=now, detail=error.message, **facts)
        return
    wait_s = pause_s(mirror.retry_count, first_s=BACKOFF_S, longest_s=due_tasks.longest_s(mirror))
    MirrorTopic.objects.filter(pk=mirror.pk).update(
        retry_count=F("retry_count") + 1, retry_at=now + timedelta(seconds=wait_s), error_since=mirror.error_since or now
    )
    show_change(mirror.link_id)


def note_delay(mirror: MirrorTopic, error: LinkEngineError) -> None:
    """Store the failure of a step that is retried without a limit."""
    note_failure(mirror, error, fatal=False, now=timezone.now())


def _note_created(mirror: MirrorTopic, created: MirrorCreated, *, now: datetime) -> None:
    """Make the mirror ACTIVE, so that it is copied. Raises PreemptedError if it was stopped or is to be deleted."""
    facts = {
        "source_topic_id": created.source_topic_id,
        "mirror_topic_id": created.mirror_topic_id,
        "num_partitions": created.partitions,
        "read_only": created.read_only,
        "source_configs": created.source_configs,
        "was_compacted": plans.is_compacting(mirror, created.source_configs),
        "error_since": None,
        "retry_count": 0,
        "retry_at": None,
    }
    if not MirrorTopic.objects.filter(pk=mirror.pk).update(**facts):  # stored even if a failover came first
        raise PreemptedError
    for name, value in facts.items():
        setattr(mirror, name, value)
    mirror.ensure_partitions()
    check_unchanged(mirror)
    gaps.note_head(mirror=mirror, seeded=created.seeded, now=now)
    lineage.open_lineage(mirror=mirror, starts=dict(created.seeded), now=now)
    transition_errors.clear(mirrors=[mirror], now=now)
    try:
        transitions.apply_event(mirror=mirror, event=MirrorEvent.SETUP_DONE, by=ENGINE, now=now)
    except IllegalTransitionError:  # failed over just now
        raise PreemptedError from None


def _remove(mirror: MirrorTopic) -> None:
    with transaction.atomic():
        lineage.close_lineage(mirror=mirror, now=timezone.now())
        SourceTopic.objects.filter(cluster=mirror.link.destination_id, name=mirror.name).delete()
        show_change(mirror.link_id)
        mirror.delete()


# --- preemption by a failover or a deletion ---------------------------------------------------------------------------
#
# A failover or a deletion preempts a set-up, a restore or a takeover of the same topic. A stop waits until the preempted task
# has ended (``preempting``), by its lock. A lock does not guarantee that: Redis may lose it, and a process may be suspended for
# longer than the lock lasts. So the task checks its row before each step (``check_unchanged``), and reverts a step that it
# carried out too late (``reconcile_topic``).


# The lock of a crashed worker expires after LOCK_TTL_S; a live worker releases it within about a second.
PREEMPTION_TIMEOUT_S = locks.LOCK_TTL_S + 3.0
LOCK_POLL_S = 0.1
CHECK_EVERY_S = 0.5  # while records are exported
REOPEN_ATTEMPTS = 20
REOPEN_PAUSE_S = 1.0


class PreemptedError(Exception):
    """The mirror is to be stopped or deleted, or has been, so the task must not change its topic any further."""


def lock_name(mirror_id: int) -> str:
    """Return the name of the lock for making a topic a mirror or deleting it."""
    return f"mirror:{mirror_id}"


def is_unchanged(mirror: MirrorTopic) -> bool:
    """Return whether the row still has the state that was read, and is not to be deleted."""
    return MirrorTopic.objects.filter(pk=mirror.pk, state=mirror.state, deletion_requested_at=None).exists()


def check_unchanged(mirror: MirrorTopic) -> None:
    """Raise PreemptedError if the row has changed its state since it was read, or is to be deleted."""
    if not is_unchanged(mirror):
        raise PreemptedError


class ThrottledCheck:
    """``check_unchanged`` for work that repeats many times a second: queries at most every ``CHECK_EVERY_S``."""

    def __init__(self, mirror: MirrorTopic) -> None:
        self._mirror = mirror
        self._next_at = 0.0

    def __call__(self) -> None:
        if time.monotonic() >= self._next_at:
            check_unchanged(self._mirror)
            self._next_at = time.monotonic() + CHECK_EVERY_S


@contextmanager
def unless_preempted(mirror: MirrorTopic, *, on_error: Callable[[LinkEngineError], None]) -> Iterator[None]:
    """Run a task's work on a mirror. Calls ``on_error`` for an error, or ``reconcile_topic`` if the row has changed since."""
    try:
        yield
    except PreemptedError:
        reconcile_topic(mirror)
    except LinkEngineError as error:
        if is_unchanged(mirror):
            on_error(error)
        else:
            reconcile_topic(mirror)


@contextmanager
def preempting(mirror: MirrorTopic) -> Iterator[MirrorTopic | None]:
    """Wait until no task is making a stopping mirror's topic a mirror, and keep others from starting.

    Yields the reloaded row, or None if that takes too long; the reconciler tries again.
    """
    if mirror.prior_state not in BECOMING:
        yield mirror
        return
    with wait_for_lock(lock_name(mirror.pk), wait_s=PREEMPTION_TIMEOUT_S) as acquired:
        yield plans.load(mirror.pk) if acquired else None


@contextmanager
def wait_for_lock(name: str, *, wait_s: float) -> Iterator[bool]:
    """Wait for a lock that another process may hold briefly; yields whether it was acquired."""
    deadline = time.monotonic() + wait_s
    while True:
        with locks.lock(name) as acquired:
            if acquired or time.monotonic() >= deadline:
                yield acquired
                return
        time.sleep(LOCK_POLL_S)


def reconcile_topic(mirror: MirrorTopic) -> None:
    """Bring the topic of a preempted task into line with its current row; ``mirror`` is the row as the task had read it."""
    fresh = plans.load(mirror.pk)
    _log.info("mirror.preempted", mirror=mirror.name, was=mirror.state, state=fresh.state if fresh else "")
    if fresh is not None and fresh.state == MirrorState.PENDING_STOPPED:
        dispatch.send("advance_stop", mirror_id=mirror.pk)
    elif fresh is not None and fresh.state != MirrorState.STOPPED:
        return
    else:
        _reopen_topic(mirror, fresh)


def _reopen_topic(mirror: MirrorTopic, stopped: MirrorTopic | None) -> None:
    """Open the topic of a mirror that is stopped or gone. No other task does this, so retry, and store an error if it fails."""
    was_closed = mirror.state in CLOSED_FIRST
    for left in reversed(range(REOPEN_ATTEMPTS)):
        try:
            if stopped is not None:
                _reopen_mirror(stopped, was_closed=was_closed)
            elif (plans.is_guarded(mirror.link) or was_closed) and not plans.is_contested(mirror):
                jobs.open_topic(mirror.link.destination.address, mirror.name)
        except LinkEngineError as error:
            if not left:
                _report_not_reopened(mirror, stopped, error)
                return
            time.sleep(REOPEN_PAUSE_S)
        else:
            return


def _reopen_mirror(stopped: MirrorTopic, *, was_closed: bool) -> None:
    topic_id, refused = jobs.reopen_mirror(replace(plans.stop_of(stopped, generation=0), was_closed=was_closed))
    if refused:
        transition_errors.add_refusals(mirror=stopped, refused=refused, now=timezone.now())
    MirrorTopic.objects.filter(pk=stopped.pk, mirror_topic_id="").update(mirror_topic_id=topic_id)
    lineage.close_lineage(mirror=stopped, now=timezone.now())
    dispatch.send("reconcile_link", link_id=stopped.link_id)


def _report_not_reopened(mirror: MirrorTopic, stopped: MirrorTopic | None, error: LinkEngineError) -> None:
    _log.error("mirror.not_reopened", mirror=mirror.name, code=error.code)
    if stopped is not None:
        message = (
            f"A preempted task may have closed topic '{mirror.name}' after its mirror was stopped, and opening it again "
            f"failed: {error.message} If producers are refused, delete the ACL DENY WRITE for User:* on the topic."
        )
        transition_errors.note(mirror=stopped, code=error.code, message=message, now=timezone.now())
