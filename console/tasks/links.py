"""The reconciler and the other tasks on links, and the task of a copy worker.

The reconciler runs every second, and for a link after each action. A settled link is reconciled less
often (``console.workflows.observing``).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Any

import structlog
from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.db import IntegrityError
from django.utils import timezone

from console.celery import for_long
from console.history import actions as history_actions
from console.links.drafts import KEEP_DRAFTS
from console.models import BulkOperation, ClampedOffset, ClusterLink, LinkDraft, VerifyRun
from console.models.fields import unseal
from console.queue import dispatch
from console.queue.dispatch import replying
from console.queue.scheduler import records_health
from console.reconciling import plans
from console.redis import heartbeats as redis_health
from console.redis import locks
from console.tasks import clusters, mirrors
from console.workflows import links, observing, pool
from linkengine import jobs
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.linktasks import TaskName
from linkengine.domain.workers import CoordinationUnavailableError

ROUNDS = 3  # passes per task, if another pass is requested while one is running
WAITING_MS = 3_000  # a pass that has not started after this time is sent again
KEEP_RUNS = timedelta(days=30)
KEEP_OPERATIONS = timedelta(days=90)
_log = structlog.get_logger(__name__)


@shared_task(name="reconcile")
def reconcile(**_: Any) -> None:
    """Run every step of a pass, even if others fail. The run itself shows that a worker is alive."""
    redis_health.note_worker()
    redis_health.note_clock("worker")
    for name in redis_health.STEPS:
        _try(name)


@shared_task(name="reconcile_link")
def reconcile_link(*, link_id: int, probe: bool = False, **_: Any) -> None:
    """Run a reconcile pass of a link under its lock. While another task has the lock, request another pass from that task."""
    locks.release_claim(_waiting(link_id))
    if probe:
        ClusterLink.objects.filter(pk=link_id).update(probe_tried_at=None)
    locks.run_or_request(f"link:{link_id}", partial(_reconcile_noted, link_id), rounds=ROUNDS)


@shared_task(name="sample_link")
def sample_link(*, link_id: int, **_: Any) -> None:
    """Store samples of a settled link; reconcile the link if that is not enough."""
    link = ClusterLink.objects.filter(pk=link_id).first()
    if link is None:
        return
    with locks.lock(f"link:{link_id}") as acquired:
        if not acquired:  # a reconcile pass is running
            return
        try:
            sampled = observing.sample(link, now=timezone.now())
        except CoordinationUnavailableError as error:
            _log.warning("reconcile.no_redis", link=link.name, error=str(error))
            return
    if sampled:
        redis_health.note_step_success(redis_health.step_of_link(link_id))
    else:
        observing.request_pass(link_id)
        reconcile_link(link_id=link_id)


@shared_task(name="run_link_task")
def run_link_task(*, link_id: int, task: str, **_: Any) -> None:
    """Run a recurring task of a link if it is due; never twice at once."""
    name = TaskName(task)
    with locks.lock(f"linktask:{link_id}:{name}") as acquired:
        link = plans.load_link(link_id) if acquired and name in links.SYNCS else None
        if link is not None:
            links.run_task(link, name)


@shared_task(name="check_link")
@replying
def check_link(*, sealed: str, source_cluster_id: str, fills_gaps: bool = True, with_distances: bool = False) -> dict[str, Any]:
    """Check a link, which need not be stored yet."""
    properties = unseal(sealed)
    probe = jobs.check_link(
        source=address_from_properties(properties["source"]),
        destination=address_from_properties(properties["destination"]),
        expected_source_cluster_id=source_cluster_id or None,
        fills_gaps=fills_gaps,
        with_distances=with_distances,
    )
    return asdict(probe)


@shared_task(name="probe_link")
def probe_link(*, link_id: int, **_: Any) -> None:
    """Probe the source of a link with the link's own properties."""
    link = ClusterLink.objects.select_related("destination", "source").filter(pk=link_id).first()
    if link is not None:
        links.probe_link(link)


@shared_task(name="forget_link")
def forget_link(*, link_key: str, partitions: dict[str, int] | None = None, **_: Any) -> None:
    """Remove the engine's data of a deleted link and its mirrors; ``partitions``: the number of partitions of each, by key."""
    keys = [f"{name}/{number}" for name, count in (partitions or {}).items() for number in range(count)]
    jobs.clear_link(settings.REDIS_URL, link_key, keys=keys)


@shared_task(name="forget_old_rows")
@records_health("forget_old_rows")
def forget_old_rows(**_: Any) -> None:
    """Summarize samples; delete old samples, runs, operations, drafts of links and expired sessions. The audit log is kept."""
    now = timezone.now()
    history_actions.summarize_samples(now=now)
    history_actions.forget_old(now=now)
    VerifyRun.objects.filter(requested_at__lt=now - KEEP_RUNS).delete()
    BulkOperation.objects.filter(finished_at__lt=now - KEEP_OPERATIONS).delete()
    ClampedOffset.objects.filter(mirror=None, report=None).delete()  # of stops that never ended: the mirror was deleted
    LinkDraft.objects.filter(updated_at__lt=now - KEEP_DRAFTS).delete()
    SessionStore.clear_expired()


def _waiting(link_id: int) -> str:
    return f"reconcile:{link_id}"


def _send_links() -> None:
    active, settled = observing.split_settled(ClusterLink.objects.only("link_uuid", "sequence", "revision"))
    for link_id in active:
        if locks.claim(_waiting(link_id), ttl_ms=WAITING_MS):  # if all threads are busy, messages would accumulate
            dispatch.send("reconcile_link", link_id=link_id)
    links.send_due_tasks(settled)
    for link_id in settled:
        if locks.claim(f"sample-settled:{link_id}", ttl_ms=observing.SAMPLE_MS):
            dispatch.send("sample_link", link_id=link_id)


_STEPS: Mapping[str, Callable[[], None]] = {
    "workers": pool.maintain_workers,
    "comparisons": lambda: mirrors.continue_runs(now=timezone.now()),
    "coverage": lambda: mirrors.continue_coverage(now=timezone.now()),
    "gates": mirrors.continue_gates,
    "drills": mirrors.continue_drills,
    "namespaces": clusters.refresh_namespaces,
    "operations": mirrors.continue_operations,
    "links": _send_links,
}


def _try(name: str) -> None:
    """Run a step. A failure of any kind is logged and counted and must not prevent the other steps."""
    try:
        _STEPS[name]()
    except Exception as error:  # noqa: BLE001 - logged with traceback, counted and reported by /readyz
        _log.exception("reconcile.step_failed", step=name)
        redis_health.note_step_failure(name, error)
    else:
        redis_health.note_step_success(name)


def _reconcile_noted(link_id: int) -> None:
    name = redis_health.step_of_link(link_id)
    try:
        if links.reconcile(link_id):
            redis_health.note_step_success(name)
    except IntegrityError as error:  # a mirror was deleted during the pass; the next pass does not include it
        _log.warning("reconcile.mirror_deleted", link_id=link_id, error=str(error))
        redis_health.note_step_failure(name, error)  # if it is repeated in every pass, a deleted mirror is not the cause
    except Exception as error:
        redis_health.note_step_failure(name, error)
        raise


# --- copy workers -----------------------------------------------------------------------------------------------------


@worker_ready.connect
def _warm_up(**_: Any) -> None:
    """Open the Spark session at startup, in a thread."""
    Thread(target=_open_session, name="warm-up", daemon=True).start()


def _open_session() -> None:
    """Open the Spark session, then freeze all objects that exist: full collections need not scan the loaded modules."""
    pool.open_session()
    gc.freeze()


@worker_shutting_down.connect
def _free_threads(**_: Any) -> None:
    """Stop waiting for copy workers."""
    pool.stop_waiting()


@shared_task(name="run_copy_worker", acks_late=False)
def run_copy_worker(*, number: int, **_: Any) -> None:
    """Submit a copy worker to Spark and wait until it has ended. A lock excludes other threads for the same number."""
    with for_long() as has_thread, locks.lock(pool.lock_name(number)) as acquired:
        if has_thread and acquired:
            pool.run_worker(number)
