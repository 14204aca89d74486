"""The reconciler: brings rows and the engine's state into agreement, link by link, every second and after each action.

A link at rest is reconciled less often (``console.tasks.resting``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog
from celery import shared_task
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.db import IntegrityError
from django.utils import timezone

from console.actions.links import remove_link
from console.actors import Actor
from console.models import BulkOperation, ClusterLink, LinkDraft, MirrorTopic, VerifyRun
from console.models.links import show_change
from console.queries.linkdrafts import KEEP_DRAFTS
from console.queue import dispatch
from console.queue.schedule_health import records_health
from console.reconciling import due_tasks, history, linkhealth, linktasks, phases, placing, plans, promote_backoff
from console.reconciling.isolation import Failures
from console.reconciling.phases import Verdict
from console.redis import clock_skew, heartbeats, locks, reconciler_health
from console.tasks import observing, resting
from console.tasks.assigning import assign_link
from console.tasks.bulkoperations import look_after_operations
from console.tasks.covering import look_after_coverage
from console.tasks.drills import look_after_drills
from console.tasks.gates import look_after_gates
from console.tasks.linktasks import SYNCS
from console.tasks.namespaces import look_after_namespaces
from console.tasks.observing import Rows
from console.tasks.pool import maintain_workers
from console.tasks.verifying import look_after_runs
from linkengine import jobs
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.states import WRITABLE

ROUNDS = 3  # passes per task, if another pass is requested while one is running
CLAIM_MS = 2_000  # how often a due task is sent, at most
WAITING_MS = 3_000  # a pass that has not started after this time is sent again
KEEP_RUNS = timedelta(days=30)
KEEP_OPERATIONS = timedelta(days=90)
_log = structlog.get_logger(__name__)


@shared_task(name="reconcile")
def reconcile(**_: Any) -> None:
    """Run every step of a pass, even if others fail. The run itself shows that a worker is alive."""
    heartbeats.note_worker()
    clock_skew.note_worker()
    for name in reconciler_health.STEPS:
        _try(name)


@shared_task(name="reconcile_link")
def reconcile_link(*, link_id: int, probe: bool = False, **_: Any) -> None:
    """Run a reconcile pass of a link under its lock. While another task has the lock, request another pass from that task."""
    name = f"link:{link_id}"
    locks.release_claim(_waiting(link_id))
    if probe:
        ClusterLink.objects.filter(pk=link_id).update(looked_at=None)
    for _round in range(ROUNDS):
        with locks.lock(name) as acquired:
            if not acquired:
                locks.request_recheck(name)
                return
            locks.pop_recheck(name)
            _reconcile_noted(link_id)
        if not locks.pop_recheck(name):
            return


@shared_task(name="sample_link")
def sample_link(*, link_id: int, **_: Any) -> None:
    """Store samples of a link at rest; reconcile the link if that is not enough."""
    link = ClusterLink.objects.filter(pk=link_id).first()
    if link is None:
        return
    with locks.lock(f"link:{link_id}") as acquired:
        if not acquired:  # a reconcile pass is running
            return
        try:
            rests = resting.sample(link, now=timezone.now())
        except CoordinationUnavailableError as error:
            _log.warning("reconcile.no_redis", link=link.name, error=str(error))
            return
    if rests:
        reconciler_health.note_success(reconciler_health.of_link(link_id))
    else:
        resting.wake(link_id)
        reconcile_link(link_id=link_id)


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
    history.summarize_samples(now=now)
    history.forget_old(now=now)
    VerifyRun.objects.filter(requested_at__lt=now - KEEP_RUNS).delete()
    BulkOperation.objects.filter(finished_at__lt=now - KEEP_OPERATIONS).delete()
    LinkDraft.objects.filter(updated_at__lt=now - KEEP_DRAFTS).delete()
    SessionStore.clear_expired()


def _waiting(link_id: int) -> str:
    return f"reconcile:{link_id}"


def _send_links() -> None:
    active, at_rest = resting.sorted_out(ClusterLink.objects.only("link_uuid", "sequence", "revision"))
    for link_id in active:
        if locks.claim(_waiting(link_id), ttl_ms=WAITING_MS):  # if all threads are busy, messages would accumulate
            dispatch.send("reconcile_link", link_id=link_id)
    for link_id in at_rest:
        if locks.claim(f"sample-rest:{link_id}", ttl_ms=resting.SAMPLE_MS):
            dispatch.send("sample_link", link_id=link_id)


_STEPS: Mapping[str, Callable[[], None]] = {
    "workers": maintain_workers,
    "comparisons": lambda: look_after_runs(now=timezone.now()),
    "coverage": lambda: look_after_coverage(now=timezone.now()),
    "gates": look_after_gates,
    "drills": look_after_drills,
    "namespaces": look_after_namespaces,
    "operations": look_after_operations,
    "links": _send_links,
}


def _try(name: str) -> None:
    """Run a step. A failure of any kind is logged and counted and must not prevent the other steps."""
    try:
        _STEPS[name]()
    except Exception as error:  # noqa: BLE001 - logged with traceback, counted and reported by /readyz
        _log.exception("reconcile.step_failed", step=name)
        reconciler_health.note_failure(name, error)
    else:
        reconciler_health.note_success(name)


def _reconcile_noted(link_id: int) -> None:
    name = reconciler_health.of_link(link_id)
    try:
        if _reconcile(link_id):
            reconciler_health.note_success(name)
    except IntegrityError as error:  # a mirror was deleted during the pass; the next pass does not include it
        _log.warning("reconcile.overtaken", link_id=link_id, error=str(error))
        reconciler_health.note_failure(name, error)  # if it is repeated in every pass, a deleted mirror is not the cause
    except Exception as error:
        reconciler_health.note_failure(name, error)
        raise


def _reconcile(link_id: int) -> bool:
    """Run a pass of a link. Return whether all steps succeeded, apart from failures of single mirrors."""
    link, began = plans.load_link(link_id), time.thread_time()
    if link is None:
        return False
    mirrors = list(link.mirrors.prefetch_related("partitions", "transition_errors"))
    for mirror in mirrors:
        mirror.link = link
    if due_tasks.is_over(link=link, mirrors=mirrors):
        remover = Actor(name=link.deletion_requested_by or "engine", user=None, trusted=True)
        remove_link(link=link, by=remover, now=timezone.now())
        return True
    failures = Failures(link=link.name)
    try:
        (seen,) = resting.look([link])
        settled = _run_steps(link, mirrors, failures) and not failures.steps and not failures.mirrors
        now, took_s = timezone.now(), time.thread_time() - began
        if settled:
            resting.rest(link, seen, took_s=took_s, until=_next_task(link, mirrors, now=now), now=now)
        else:
            resting.pace(link, took_s=took_s)
    except CoordinationUnavailableError as error:
        _log.warning("reconcile.no_redis", link=link.name, error=str(error))
        return False
    _note_failures(link, mirrors, failures)
    return not failures.steps


def _run_steps(link: ClusterLink, mirrors: Sequence[MirrorTopic], failures: Failures) -> bool:
    """Run the steps of a pass. Return whether nothing is left to do.

    The failure of a mirror or a step does not affect the others, unless they depend on it.
    """
    verdicts: list[Verdict | None] = []
    rows = observing.ensure_rows(mirrors, failures)
    with failures.of_step("reports"):
        changed = observing.observe(link, mirrors, rows=rows, failures=failures)
        verdicts = _judge(link, mirrors, rows=rows, failures=failures, changed=changed)
    with failures.of_step("copy"):
        assign_link(link, mirrors, rows=rows)
    with failures.of_step("tasks"):
        _run_tasks(link, mirrors)
    with failures.of_step("chores"):
        _send_due_tasks(link, mirrors, rows=rows, failures=failures)
    with failures.of_step("samples"):
        _keep_samples(link, mirrors, failures)
    return resting.is_at_rest(link, mirrors, verdicts)


def _note_failures(link: ClusterLink, mirrors: Sequence[MirrorTopic], failures: Failures) -> None:
    """Record what failed: a failed step as a failure of the link, failed mirrors by name."""
    if failures.steps:
        reconciler_health.note_failure(reconciler_health.of_link(link.pk), next(iter(failures.steps.values())))
    failed = {mirror.name: failures.mirrors[mirror.pk] for mirror in mirrors if mirror.pk in failures.mirrors}
    reconciler_health.note_mirrors(link.pk, failed)


def _keep_samples(link: ClusterLink, mirrors: Sequence[MirrorTopic], failures: Failures) -> None:
    sound = failures.not_failed(mirrors)
    if locks.claim(f"sample:{link.pk}", ttl_ms=history.every_ms(len(mirrors))):
        history.keep_samples(link=link, mirrors=sound, now=timezone.now(), whole=len(sound) == len(mirrors))


def _send_due_tasks(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows, failures: Failures) -> None:
    known = [mirror for mirror in mirrors if _has_computable_tasks(mirror, rows=rows, failures=failures)]
    together = due_tasks.stopped_together(known)
    if together and locks.claim(f"stop_many:{link.pk}", ttl_ms=CLAIM_MS):
        dispatch.send("stop_many", link_id=link.pk)
    for mirror in promote_backoff.caught_up(mirrors=known, rows=rows, now=timezone.now()):
        if locks.claim(f"wake:{mirror.pk}", ttl_ms=promote_backoff.WAKE_MS):
            mirror.retry_at = None
    for task, mirror_id in due_tasks.of_mirrors(mirrors=known, now=timezone.now()):
        if mirror_id not in together and locks.claim(f"{task}:{mirror_id}", ttl_ms=CLAIM_MS):
            dispatch.send(task, mirror_id=mirror_id)


def _has_computable_tasks(mirror: MirrorTopic, *, rows: Rows, failures: Failures) -> bool:
    """Return whether the due tasks of a mirror can be computed, so that a failure here cannot delay the failover of others."""
    now = timezone.now()
    with failures.of_mirror(mirror.pk):
        deque(due_tasks.of_mirrors(mirrors=[mirror], now=now), maxlen=0)
        deque(promote_backoff.caught_up(mirrors=[mirror], rows=rows, now=now), maxlen=0)
        due_tasks.stopped_together([mirror])
        return True
    return False


def _next_task(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, now: datetime) -> datetime | None:
    return linktasks.next_run(link=link, mirrors=_any_unstopped(mirrors), now=now)


def _any_unstopped(mirrors: Sequence[MirrorTopic]) -> bool:
    return any(mirror.state not in WRITABLE for mirror in mirrors)


def _run_tasks(link: ClusterLink, mirrors: Sequence[MirrorTopic]) -> None:
    for name in linktasks.due_tasks(link=link, mirrors=_any_unstopped(mirrors), now=timezone.now()):
        if name in SYNCS and locks.claim(f"task:{link.pk}:{name}", ttl_ms=CLAIM_MS):
            dispatch.send("run_link_task", link_id=link.pk, task=name)


def _judge(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows, failures: Failures, changed: bool
) -> list[Verdict | None]:
    """Derive the events of mirrors and the state of the link from the rows of the partitions.

    Returns the verdicts on the mirrors that are to be copied.
    """
    now, retry_timeout = timezone.now(), plans.retry_timeout(link)
    verdicts: list[Verdict | None] = []
    copied: list[Verdict | None] = []
    for mirror in failures.not_failed(mirrors):
        key = plans.mirror_key(mirror)
        own = [rows[f"{key}/{n}"] for n in range(mirror.num_partitions) if f"{key}/{n}" in rows]
        with failures.of_mirror(mirror.pk):
            verdict = phases.verdict_on(own, now=now)
            changed |= phases.apply_verdict(mirror=mirror, verdict=verdict, now=now, retry_timeout=retry_timeout)
            wanted = placing.is_wanted(mirror, link)
            verdicts.append(verdict if wanted else None)
            copied += [verdict] if wanted else []
    changed |= linkhealth.note_verdicts(link=link, verdicts=verdicts, now=now)
    if linkhealth.needs_probe(link=link, verdicts=verdicts, now=now) and locks.claim(f"probe:{link.pk}", ttl_ms=CLAIM_MS):
        dispatch.send("probe_link", link_id=link.pk)
    if changed:
        show_change(link.pk)
        link.sequence += 1
    return copied
