"""Tasks on mirrors: set-up, stop, reversal, restore, deletion, operations on many, checks, verification and drills."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from celery import shared_task
from django.db.models import Q, QuerySet
from django.utils import timezone

from console.celery import for_long
from console.config.logging import current_request_id
from console.mirrors import bulk_actions
from console.mirrors.reversals import known_parts
from console.models import BulkOperation, ClusterLink, Drill, GateRun, MirrorTopic, VerifyRun
from console.models.fields import seal
from console.queue import dispatch
from console.queue.dispatch import replying
from console.reconciling import coverage, plans
from console.redis import locks
from console.verification import actions as verification_actions
from console.verification.drill_actions import OVER
from console.verification.queries import request_of
from console.workflows import drills, leases, mirrors, reverse_and_restore, stopping, syncs, verifying
from console.workflows.divergence import ClusterTopic, find_divergence, log_ranges_of
from console.workflows.mirrors import lock_name
from linkengine import jobs
from linkengine.domain.clusterviews import ReversalRisks
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import CommonPart
from linkengine.domain.states import MirrorState

BULK_RESEND_MS = 2_000
BULK_SLICE_S = 10.0  # then the task is sent again, so that it can be acknowledged
RELEASE_S = 6.0  # the lease of a crashed copy worker expires after four
_LINKS = ("destination", "source")
_OF_OPERATION = ("link__destination__environment__organization", "link__source", "user")


@shared_task(name="setup_mirror")
def setup_mirror(*, mirror_id: int, **_: Any) -> None:
    """Create, guard and seed a mirror topic. The mirror is ACTIVE afterwards."""
    with locks.lock(lock_name(mirror_id)) as acquired:
        mirror = plans.load(mirror_id) if acquired else None
        if mirror is not None:
            mirrors.set_up(mirror)


@shared_task(name="delete_mirror")
def delete_mirror(*, mirror_id: int, **_: Any) -> None:
    """Delete the topic of a mirror that is to be deleted, then its row."""
    with locks.lock(lock_name(mirror_id)) as acquired:
        mirror = plans.load(mirror_id) if acquired else None
        if mirror is not None:
            mirrors.delete(mirror)


@shared_task(name="advance_stop")
def advance_stop(*, mirror_id: int, **_: Any) -> None:
    """Advance a stopping mirror as far as possible. A failover does not wait for the promotion that it replaces."""
    mirror = plans.load(mirror_id)
    if mirror is None or not stopping.is_stopping(mirror):
        return
    if mirror.fencing_at and locks.is_locked(stopping.stop_many_lock(mirror.link_id)):
        return
    with locks.lock(f"stop:{mirror.stop_reason}:{mirror_id}") as acquired:
        if acquired:
            stopping.promote_or_fail_over(mirror)


@shared_task(name="stop_many")
def stop_many(*, link_id: int, **_: Any) -> None:
    """Fence all mirrors of the link that are failing over, and make their topics writable."""
    with locks.lock(stopping.stop_many_lock(link_id)) as acquired:
        if not acquired:
            return
        stopping.stop_many(link_id)
    dispatch.send("reconcile_link", link_id=link_id)


@shared_task(name="restore_source_configs")
@replying
def restore_source_configs(*, mirror_id: int) -> list[dict[str, Any]]:
    """Retry the configs that the destination refused when the mirror was stopped. Returns what it refuses now."""
    with locks.lock(lock_name(mirror_id)) as acquired:
        refused = stopping.restore_source_configs(plans.load(mirror_id) if acquired else None)
    return [asdict(step) for step in refused]


@shared_task(name="advance_reversal")
def advance_reversal(*, mirror_id: int, **_: Any) -> None:
    """Close the source to producers and wait until the mirror has all of its records."""
    with locks.lock(f"reverse:{mirror_id}") as acquired:
        mirror = plans.load(mirror_id) if acquired else None
        if mirror is not None:
            reverse_and_restore.close_source(mirror)


@shared_task(name="take_over_as_mirror")
def take_over_as_mirror(*, mirror_id: int, **_: Any) -> None:
    """Take the former source over as a mirror once its former mirror is fenced."""
    with locks.lock(lock_name(mirror_id)) as acquired:
        mirror = plans.load(mirror_id) if acquired else None
        if mirror is not None:
            reverse_and_restore.take_over_as_mirror(mirror)


@shared_task(name="advance_restore")
def advance_restore(*, mirror_id: int, **_: Any) -> None:
    """Advance a restore as far as possible."""
    with locks.lock(lock_name(mirror_id)) as acquired:
        mirror = plans.load(mirror_id) if acquired else None
        if mirror is not None:
            reverse_and_restore.run_restore(mirror)


@shared_task(name="measure_reparenting")
@replying
def measure_reparenting(*, mirror_id: int, link_id: int, parent_topic: str) -> dict[str, Any]:
    """Return the ids and log ranges of a paused mirror and of another copy of its source, which it could continue from.

    They are final: all leases of the mirror are released.
    """
    link = ClusterLink.objects.select_related(*_LINKS).filter(pk=link_id).first()
    mirror = plans.load(mirror_id)
    if mirror is None or link is None or mirror.state != MirrorState.PAUSED:
        raise LinkEngineError(ErrorCode.ILLEGAL_STATE, "The mirror topic is no longer paused. Refresh its state, then retry.")
    leases.publish_or_request_assignments(mirror.link_id)
    with leases.taken(mirror, wait_s=RELEASE_S) as taken:
        leases.check_released(mirror, taken)
        parent_id, parent = log_ranges_of(plans.source_address(link), parent_topic, closed=False)
        topic_id, held = log_ranges_of(mirror.link.destination.address, mirror.name, closed=True)
    return {
        "topic_id": topic_id,
        "held": [asdict(part) for part in held],
        "parent_id": parent_id,
        "parent": [asdict(part) for part in parent],
    }


@shared_task(name="check_mirror")
@replying
def check_mirror(
    *, link_id: int, source_topic: str, mirror_topic: str, replication_factor: int | None, configs: dict[str, str]
) -> dict[str, Any]:
    """Check whether a topic can be mirrored."""
    link = ClusterLink.objects.select_related(*_LINKS).get(pk=link_id)
    mirror = MirrorTopic(
        link=link, name=mirror_topic, source_topic=source_topic, replication_factor=replication_factor, config_overrides=configs
    )
    return asdict(jobs.check_mirror_topic(plans.setup_of(mirror)))


@shared_task(name="count_divergence")
@replying
def count_divergence(*, link_id: int, topics: dict[str, str]) -> dict[str, list[dict[str, int]]]:
    """Return what restores would truncate, by topic of the link's own cluster: a row per partition.

    ``topics`` maps these topics to those that would be their sources.
    """
    link = ClusterLink.objects.select_related(*_LINKS).get(pk=link_id)
    found = {}
    for name, facts in known_parts(link, topics).items():
        here, there = (
            ClusterTopic(link.destination.address, name),
            ClusterTopic(plans.source_address(link), facts["source_topic"]),
        )
        divergence = find_divergence(here, there, parts=[CommonPart.from_json(part) for part in facts["parts"]])
        found[name] = [asdict(point) for point in divergence.points]
    return found


@shared_task(name="find_reversal_risks")
@replying
def find_reversal_risks(*, link_id: int, topics: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return ``ReversalRisks`` as JSON by mirror topic; ``topics`` maps mirrors to sources."""
    link = ClusterLink.objects.select_related(*_LINKS).get(pk=link_id)
    there = jobs.unclean_elections(plans.source_address(link), list(topics.values()))
    here = jobs.unclean_elections(link.destination.address, list(topics))
    writers = jobs.transactional_writers(plans.source_address(link), list(topics.values()))
    source = link.source.name if link.source else link.source_cluster_id
    found: dict[str, dict[str, Any]] = {}
    for mirror, topic in topics.items():
        sides = ((source, there.get(topic)), (link.destination.name, here.get(mirror)))
        named = tuple(name for name, unclean in sides if unclean)
        known = named or all(unclean is not None for _, unclean in sides)
        found[mirror] = asdict(ReversalRisks(unclean_on=named if known else None, writers=writers.get(topic)))
    return found


@shared_task(name="compare_record")
@replying
def compare_record(*, mirror_pk: int, partition: int, offset: int | None, timestamp_ms: int | None) -> str:
    """Return a ``RecordComparison`` as JSON, encrypted: it has the contents of records, and Redis is not confidential."""
    mirror = MirrorTopic.objects.select_related("link__destination", "link__source").filter(pk=mirror_pk).first()
    if mirror is None:
        raise LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "The mirror topic was deleted from the link.")
    link = mirror.link
    source = jobs.RecordSide(
        address=partial(plans.source_address, link), topic=mirror.source_topic, topic_id=mirror.source_topic_id
    )
    copy = jobs.RecordSide(address=lambda: link.destination.address, topic=mirror.name, topic_id=mirror.mirror_topic_id)
    found = jobs.compare_record(source, copy, partition=partition, offset=offset, timestamp_ms=timestamp_ms)
    return seal(asdict(found))


@shared_task(name="advance_bulk_operation")
def advance_bulk_operation(*, operation_id: int, **_: Any) -> None:
    """Carry out the waiting topics of an operation for ``BULK_SLICE_S``, under its lock."""
    until = time.monotonic() + BULK_SLICE_S
    with locks.lock(f"bulk-operation:{operation_id}") as acquired:
        while acquired and time.monotonic() < until:
            # read again for each batch: the user may have lost a role, the link may have been paused
            rows = BulkOperation.objects.select_related(*_OF_OPERATION).filter(pk=operation_id, finished_at=None)
            operation = rows.first()
            if operation is None:
                return
            if not bulk_actions.carry_out(operation, check_clusters=syncs.check_together, now=timezone.now()):
                return
    if acquired:
        dispatch.send("advance_bulk_operation", operation_id=operation_id)


def continue_operations() -> None:
    """Send the task for each operation that has waiting topics: its message may be lost, or its worker may have crashed."""
    for operation_id in BulkOperation.objects.filter(finished_at=None).values_list("pk", flat=True):
        if not locks.is_locked(f"bulk-operation:{operation_id}") and locks.claim(f"bulk:{operation_id}", ttl_ms=BULK_RESEND_MS):
            dispatch.send("advance_bulk_operation", operation_id=operation_id)


# --- verification -----------------------------------------------------------------------------------------------------
#
# Runs that users request, continuous verification, migration gates and failover drills.


RESEND_AFTER = timedelta(seconds=5)
RUN_CLAIM_MS = 10_000
NEXT_CLAIM_MS = 2_000
GATE_RESEND_MS = 2_000
DRILL_RESEND_MS = 1_000
# Locks for runs that users requested, beside continuous verification: they share Spark with the copy workers.
SLOTS = ("verify-turn-1", "verify-turn-2")
SLOT = "verify-next"  # lock for a single comparison at a time: copying shares Spark's memory and the machine
ABANDONED_AFTER = timedelta(seconds=20)  # a live worker has the lock by then
_OF_GATE = ("mirror__link__destination__environment", "mirror__link__source", "verify_run")


@shared_task(name="verify_mirror")
def verify_mirror(*, run_id: int, **_: Any) -> None:
    """Run a queued verification if a turn is free. Does nothing if another worker has taken the run."""
    runs = VerifyRun.objects.select_related("mirror__link__destination", "mirror__link__source")
    run = runs.filter(pk=run_id, status=VerifyRun.Status.QUEUED).first()
    if run is None:
        return
    with acquire_slot(*SLOTS) as slot, locks.lock(f"verify:{run_id}") as acquired:
        if slot and acquired and verification_actions.mark_started(run=run, now=timezone.now()):
            run.refresh_from_db(fields=["status", "started_at"])
            # a run that had to wait is sent by the reconciler or by the run before it, whose message has another id
            with structlog.contextvars.bound_contextvars(request_id=request_of(run) or current_request_id()):
                verifying.compare(run)
    for next_id in _waiting()[: len(SLOTS)] if slot else ():
        dispatch.send("verify_mirror", run_id=next_id)


@contextmanager
def acquire_slot(*slots: str) -> Iterator[bool]:
    """Hold the lock of a free slot of ``slots`` and a thread for long work; yields whether both were free."""
    with for_long() as has_thread, ExitStack() as stack:
        yield has_thread and any(stack.enter_context(locks.lock(slot)) for slot in slots)


def _waiting(*conditions: Q) -> QuerySet[VerifyRun, int]:
    """Return the primary keys of the queued runs, oldest first."""
    waiting = VerifyRun.objects.filter(*conditions, status=VerifyRun.Status.QUEUED)
    return waiting.order_by("pk").values_list("pk", flat=True)


def continue_runs(*, now: datetime) -> None:
    """Send the task again for queued runs while a turn is free, and end runs whose worker has crashed."""
    free = len(SLOTS) - sum(locks.is_locked(slot) for slot in SLOTS)
    for run_id in _waiting(Q(requested_at__lt=now - RESEND_AFTER))[:free]:
        if locks.claim(f"verify:{run_id}", ttl_ms=RUN_CLAIM_MS):
            dispatch.send("verify_mirror", run_id=run_id)
    running = VerifyRun.objects.filter(started_at__lt=now - ABANDONED_AFTER, status=VerifyRun.Status.RUNNING)
    for run in running.select_related("mirror"):
        if locks.is_abandoned(f"verify:{run.pk}"):
            message = "The worker of the verification stopped unexpectedly. Start the verification again."
            verification_actions.record_failure(run=run, message=message, now=now)


@shared_task(name="verify_next")
def verify_next(*, mirror_id: int, **_: Any) -> None:
    """Compare the next range of a mirror. Does nothing while another comparison of continuous verification runs."""
    with acquire_slot(SLOT) as slot:
        mirror = verifying.load_watched(mirror_id) if slot else None
        if mirror is not None:
            verifying.compare_next(mirror)


def continue_coverage(*, now: datetime) -> None:
    """Send the comparison that is due, if none is running."""
    coverage.ensure_watches(now=now)
    watch = coverage.next_due_watch(now=now)
    if watch is not None and not locks.is_locked(SLOT) and locks.claim(SLOT, ttl_ms=NEXT_CLAIM_MS):
        dispatch.send("verify_next", mirror_id=watch.mirror_id)


@shared_task(name="advance_gate")
def advance_gate(*, run_id: int, **_: Any) -> None:
    """Finish a gate run whose verification run has ended; never twice at once."""
    with locks.lock(f"gate:{run_id}") as acquired:
        runs = GateRun.objects.select_related(*_OF_GATE).filter(pk=run_id, status=GateRun.Status.RUNNING)
        run = runs.first() if acquired else None
        if run is not None:
            verifying.finish_gate(run)


def continue_gates() -> None:
    """Send the task again for runs that have not ended."""
    for run_id in GateRun.objects.filter(status=GateRun.Status.RUNNING).values_list("pk", flat=True):
        if locks.claim(f"gate:{run_id}", ttl_ms=GATE_RESEND_MS):
            dispatch.send("advance_gate", run_id=run_id)


@shared_task(name="advance_drill")
def advance_drill(*, drill_id: int, **_: Any) -> None:
    """Run the current step of a drill under its lock."""
    with locks.lock(f"drill:{drill_id}") as acquired:
        drill = Drill.objects.select_related("link__destination").filter(pk=drill_id).first() if acquired else None
        if drill is not None and drill.status not in OVER:
            drills.run_current_step(drill)


def continue_drills() -> None:
    """Send the task for each drill that is not over."""
    for drill_id in Drill.objects.exclude(status__in=OVER).values_list("pk", flat=True):
        if locks.claim(f"drill:{drill_id}", ttl_ms=DRILL_RESEND_MS):
            dispatch.send("advance_drill", drill_id=drill_id)
