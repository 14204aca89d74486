"""The heart beat: once a second, and right after each action, rows and engine are brought together, link by link."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import structlog
from celery import shared_task
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.db import IntegrityError
from django.utils import timezone

from console.actions.links import remove_link
from console.actors import Actor
from console.models import ClusterLink, MirrorTopic, VerifyRun
from console.models.links import show_change
from console.queue import dispatch
from console.queue.schedule_health import records_health
from console.reconciling import due_tasks, history, linkhealth, linktasks, phases, placing, plans, promote_backoff
from console.reconciling.isolation import Failures
from console.redis import clock_skew, heartbeats, locks, reconciler_health
from console.tasks import observing
from console.tasks.assigning import assign_link
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

ROUNDS = 3  # when asked again while at it
CLAIM_MS = 2_000  # how often one chore is sent, at most
WAITING_MS = 3_000  # a round that nobody has begun until then is sent again
KEEP_RUNS = timedelta(days=30)
_log = structlog.get_logger(__name__)


@shared_task(name="reconcile")
def reconcile(**_: Any) -> None:
    """Take every step of a round, whatever becomes of the others; being run at all shows that a worker lives."""
    heartbeats.note_worker()
    clock_skew.note_worker()
    for name in reconciler_health.STEPS:
        _try(name)


@shared_task(name="reconcile_link")
def reconcile_link(*, link_id: int, probe: bool = False, **_: Any) -> None:
    """Bring one link up to date; never twice at once. Who comes second leaves a note to the first."""
    name = f"link:{link_id}"
    locks.release_claim(_waiting(link_id))
    if probe:
        ClusterLink.objects.filter(pk=link_id).update(looked_at=None)
    for _round in range(ROUNDS):
        with locks.lock(name) as ours:
            if not ours:
                locks.request_recheck(name)
                return
            locks.pop_recheck(name)
            _reconcile_noted(link_id)
        if not locks.pop_recheck(name):
            return


@shared_task(name="forget_link")
def forget_link(*, link_key: str, partitions: dict[str, int] | None = None, **_: Any) -> None:
    """Remove what the engine keeps of a link that is gone, and of its mirrors, by name with how many partitions they had."""
    keys = [f"{name}/{number}" for name, count in (partitions or {}).items() for number in range(count)]
    jobs.clear_link(settings.REDIS_URL, link_key, keys=keys)


@shared_task(name="forget_old_rows")
@records_health("forget_old_rows")
def forget_old_rows(**_: Any) -> None:
    """Summarize samples; delete old samples, verification runs and expired sessions. The audit log is kept."""
    now = timezone.now()
    history.summarize_samples(now=now)
    history.forget_old(now=now)
    VerifyRun.objects.filter(requested_at__lt=now - KEEP_RUNS).delete()
    SessionStore.clear_expired()


def _waiting(link_id: int) -> str:
    return f"reconcile:{link_id}"


def _send_links() -> None:
    for link_id in ClusterLink.objects.values_list("pk", flat=True):
        if locks.claim(_waiting(link_id), ttl_ms=WAITING_MS):  # where all threads are busy, messages would pile up
            dispatch.send("reconcile_link", link_id=link_id)


_STEPS: Mapping[str, Callable[[], None]] = {
    "workers": maintain_workers,
    "comparisons": lambda: look_after_runs(now=timezone.now()),
    "coverage": lambda: look_after_coverage(now=timezone.now()),
    "gates": look_after_gates,
    "drills": look_after_drills,
    "namespaces": look_after_namespaces,
    "links": _send_links,
}


def _try(name: str) -> None:
    """Take a step; one that fails, for whatever reason, is told of and must not keep the others from being taken."""
    try:
        _STEPS[name]()
    except Exception as error:  # noqa: BLE001 - logged in full, counted and told by /readyz
        _log.exception("reconcile.step_failed", step=name)
        reconciler_health.note_failure(name, error)
    else:
        reconciler_health.note_success(name)


def _reconcile_noted(link_id: int) -> None:
    name = reconciler_health.of_link(link_id)
    try:
        if _reconcile(link_id):
            reconciler_health.note_success(name)
    except IntegrityError as error:  # a mirror was deleted while it was looked at; the next round does without it
        _log.warning("reconcile.overtaken", link_id=link_id, error=str(error))
        reconciler_health.note_failure(name, error)  # every round: then it is no mirror that went away
    except Exception as error:
        reconciler_health.note_failure(name, error)
        raise


def _reconcile(link_id: int) -> bool:
    """Tell whether all of the link was looked after, but for single mirrors."""
    link = plans.load_link(link_id)
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
        _look_after(link, mirrors, failures)
    except CoordinationUnavailableError as error:
        _log.warning("reconcile.no_redis", link=link.name, error=str(error))
        return False
    _tell(link, mirrors, failures)
    return not failures.steps


def _look_after(link: ClusterLink, mirrors: Sequence[MirrorTopic], failures: Failures) -> None:
    """Take the steps of a round; what fails for a mirror, or as a step, keeps the others from nothing that does not need it."""
    rows = observing.ensure_rows(mirrors, failures)
    with failures.of_step("reports"):
        changed = observing.observe(link, mirrors, rows=rows, failures=failures)
        _judge(link, mirrors, rows=rows, failures=failures, changed=changed)
    with failures.of_step("copy"):
        assign_link(link, mirrors, rows=rows)
    with failures.of_step("tasks"):
        _run_tasks(link, mirrors)
    with failures.of_step("chores"):
        _send_chores(link, mirrors, rows=rows, failures=failures)
    with failures.of_step("samples"):
        _keep_samples(link, mirrors, failures)


def _tell(link: ClusterLink, mirrors: Sequence[MirrorTopic], failures: Failures) -> None:
    """Say what failed: steps are failures of the link, mirrors have their own place."""
    if failures.steps:
        reconciler_health.note_failure(reconciler_health.of_link(link.pk), next(iter(failures.steps.values())))
    failed = {one.name: failures.mirrors[one.pk] for one in mirrors if one.pk in failures.mirrors}
    reconciler_health.note_mirrors(link.pk, failed)


def _keep_samples(link: ClusterLink, mirrors: Sequence[MirrorTopic], failures: Failures) -> None:
    sound = failures.not_failed(mirrors)
    if locks.claim(f"sample:{link.pk}", ttl_ms=history.EVERY_MS):
        history.keep_samples(link=link, mirrors=sound, now=timezone.now(), whole=len(sound) == len(mirrors))


def _send_chores(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows, failures: Failures) -> None:
    known = [one for one in mirrors if _knows_chores(one, rows=rows, failures=failures)]
    together = due_tasks.stopped_together(known)
    if together and locks.claim(f"stop_many:{link.pk}", ttl_ms=CLAIM_MS):
        dispatch.send("stop_many", link_id=link.pk)
    for mirror in promote_backoff.caught_up(mirrors=known, rows=rows, now=timezone.now()):
        if locks.claim(f"wake:{mirror.pk}", ttl_ms=promote_backoff.WAKE_MS):
            mirror.retry_at = None
    for task, mirror_id in due_tasks.of_mirrors(mirrors=known, now=timezone.now()):
        if mirror_id not in together and locks.claim(f"{task}:{mirror_id}", ttl_ms=CLAIM_MS):
            dispatch.send(task, mirror_id=mirror_id)


def _knows_chores(mirror: MirrorTopic, *, rows: Rows, failures: Failures) -> bool:
    """Ask beforehand, and alone, what is due for a mirror: nothing that fails here stops the others' failover."""
    now = timezone.now()
    with failures.of_mirror(mirror.pk):
        deque(due_tasks.of_mirrors(mirrors=[mirror], now=now), maxlen=0)
        deque(promote_backoff.caught_up(mirrors=[mirror], rows=rows, now=now), maxlen=0)
        due_tasks.stopped_together([mirror])
        return True
    return False


def _run_tasks(link: ClusterLink, mirrors: Sequence[MirrorTopic]) -> None:
    unstopped = any(one.state not in WRITABLE for one in mirrors)
    for name in linktasks.due_tasks(link=link, mirrors=unstopped, now=timezone.now()):
        if name in SYNCS and locks.claim(f"task:{link.pk}:{name}", ttl_ms=CLAIM_MS):
            dispatch.send("run_link_task", link_id=link.pk, task=name)


def _judge(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows, failures: Failures, changed: bool) -> None:
    """Let what is known of the partitions become events of their mirrors, and the link's state."""
    now, retry_timeout = timezone.now(), plans.retry_timeout(link)
    verdicts = []
    for mirror in failures.not_failed(mirrors):
        key = plans.mirror_key(mirror)
        own = [rows[f"{key}/{n}"] for n in range(mirror.num_partitions) if f"{key}/{n}" in rows]
        with failures.of_mirror(mirror.pk):
            verdict = phases.verdict_on(own, now=now)
            changed |= phases.apply_verdict(mirror=mirror, verdict=verdict, now=now, retry_timeout=retry_timeout)
            verdicts.append(verdict if placing.is_wanted(mirror, link) else None)
    changed |= linkhealth.note_verdicts(link=link, verdicts=verdicts, now=now)
    if linkhealth.needs_probe(link=link, verdicts=verdicts, now=now) and locks.claim(f"probe:{link.pk}", ttl_ms=CLAIM_MS):
        dispatch.send("probe_link", link_id=link.pk)
    if changed:
        show_change(link.pk)
