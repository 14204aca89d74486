"""Reconciles a link: brings its rows and the engine's state into agreement. Probes its source and runs its recurring tasks.

A recurring task is a function of the table ``SYNCS`` that takes the link and returns a ``TaskOutcome``. It does a bounded part
of its work, raises LinkEngineError if nothing could be done at all, and is safe to repeat. A new task needs an entry here and
one in ``linkengine.domain.linktasks.TASKS``; scheduling, mutual exclusion, rows, REST, pages and metrics are generic.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import structlog
from django.utils import timezone

from console.actors import Actor
from console.history import actions as history_actions
from console.links import pairs
from console.links.actions import remove_link
from console.models import ClusterLink, LinkTask, MirrorTopic, SourceTopic
from console.models.links import show_change
from console.queue import dispatch
from console.reconciling import due_tasks, phases, plans
from console.reconciling.phases import WorstReport
from console.reconciling.transition_errors import Failures
from console.redis import heartbeats as redis_health
from console.redis import locks
from console.workflows import observing, stopping, syncs
from console.workflows.leases import assign_link, is_to_be_copied
from console.workflows.observing import Rows
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TaskError, TaskName, TaskOutcome
from linkengine.domain.states import WRITABLE, LinkMode
from linkengine.domain.workers import CoordinationUnavailableError

CLAIM_MS = 2_000  # how often a due task is sent, at most
Sync = Callable[[ClusterLink], TaskOutcome]
SYNCS: Mapping[TaskName, Sync] = MappingProxyType(
    {
        TaskName.ACLS: syncs.follow_acls,
        TaskName.AUTO_CREATE: syncs.create_mirrors,
        TaskName.CONSUMER_OFFSETS: syncs.follow_groups,
        TaskName.TOPIC_CONFIGS: syncs.follow_topics,
    }
)
_log = structlog.get_logger(__name__)


def reconcile(link_id: int) -> bool:
    """Run a pass of a link. Return whether all steps succeeded, apart from failures of single mirrors."""
    link, began = plans.load_link(link_id), time.thread_time()
    if link is None:
        return False
    mirrors = list(link.mirrors.prefetch_related("partitions", "transition_errors"))
    for mirror in mirrors:
        mirror.link = link
    if due_tasks.can_be_removed(link=link, mirrors=mirrors):
        remover = Actor(name=link.deletion_requested_by or "engine", user=None, trusted=True)
        remove_link(link=link, by=remover, now=timezone.now())
        return True
    failures = Failures(link=link.name)
    try:
        (version,) = observing.read_link_versions([link])
        settled = _run_steps(link, mirrors, failures) and not failures.steps and not failures.mirrors
        took_s = time.thread_time() - began
        if settled:
            observing.skip_passes(link, version, took_s=took_s)
        else:
            observing.pause_after_pass(link, took_s=took_s)
    except CoordinationUnavailableError as error:
        _log.warning("reconcile.no_redis", link=link.name, error=str(error))
        return False
    _note_failures(link, mirrors, failures)
    return not failures.steps


def _run_steps(link: ClusterLink, mirrors: Sequence[MirrorTopic], failures: Failures) -> bool:
    """Run the steps of a pass. Return whether nothing is left to do.

    The failure of a mirror or a step does not affect the others, unless they depend on it.
    """
    reports: list[WorstReport | None] = []
    rows = observing.ensure_rows(mirrors, failures)
    with failures.of_step("reports"):
        changed = observing.observe(link, mirrors, rows=rows, failures=failures)
        reports = _derive_states(link, mirrors, rows=rows, failures=failures, changed=changed)
    with failures.of_step("copy"):
        assign_link(link, mirrors, rows=rows)
    with failures.of_step("tasks"):
        _send_tasks(link, mirrors=any(mirror.state not in WRITABLE for mirror in mirrors))
    with failures.of_step("due_tasks"):
        _send_due_tasks(link, mirrors, rows=rows, failures=failures)
    with failures.of_step("samples"):
        _keep_samples(link, mirrors, failures)
    return observing.is_settled(link, mirrors, reports)


def _note_failures(link: ClusterLink, mirrors: Sequence[MirrorTopic], failures: Failures) -> None:
    """Record what failed: a failed step as a failure of the link, failed mirrors by name."""
    if failures.steps:
        redis_health.note_step_failure(redis_health.step_of_link(link.pk), next(iter(failures.steps.values())))
    failed = {mirror.name: failures.mirrors[mirror.pk] for mirror in mirrors if mirror.pk in failures.mirrors}
    redis_health.note_mirrors(link.pk, failed)


def _keep_samples(link: ClusterLink, mirrors: Sequence[MirrorTopic], failures: Failures) -> None:
    not_failed = failures.not_failed(mirrors)
    if locks.claim(f"sample:{link.pk}", ttl_ms=history_actions.every_ms(len(mirrors))):
        history_actions.keep_samples(link=link, mirrors=not_failed, now=timezone.now(), whole=len(not_failed) == len(mirrors))


def _send_due_tasks(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows, failures: Failures) -> None:
    known = [mirror for mirror in mirrors if _has_computable_tasks(mirror, rows=rows, failures=failures)]
    together = due_tasks.stopped_together(known)
    if together and locks.claim(f"stop_many:{link.pk}", ttl_ms=CLAIM_MS):
        dispatch.send("stop_many", link_id=link.pk)
    for mirror in due_tasks.caught_up(mirrors=known, rows=rows, now=timezone.now()):
        if locks.claim(f"wake:{mirror.pk}", ttl_ms=due_tasks.WAKE_MS):
            mirror.retry_at = None
    if any(mirror.fencing_at is not None for mirror in known) and locks.is_locked(stopping.stop_many_lock(link.pk)):
        together |= {mirror.pk for mirror in known if mirror.fencing_at is not None}  # most of them are being stopped together
    for task, mirror_id in due_tasks.due_mirror_tasks(mirrors=known, now=timezone.now()):
        if mirror_id not in together and locks.claim(f"{task}:{mirror_id}", ttl_ms=CLAIM_MS):
            dispatch.send(task, mirror_id=mirror_id)


def _has_computable_tasks(mirror: MirrorTopic, *, rows: Rows, failures: Failures) -> bool:
    """Return False if computing the due tasks of this mirror raises, so that it cannot delay those of other mirrors."""
    now = timezone.now()
    with failures.of_mirror(mirror.pk):
        deque(due_tasks.due_mirror_tasks(mirrors=[mirror], now=now), maxlen=0)
        deque(due_tasks.caught_up(mirrors=[mirror], rows=rows, now=now), maxlen=0)
        due_tasks.stopped_together([mirror])
        return True
    return False


def send_due_tasks(link_ids: Collection[int]) -> None:
    """Send the due recurring tasks of settled links (all have active mirrors). One query if none is due."""
    due = LinkTask.objects.filter(link__in=link_ids, next_run_at__lte=timezone.now())
    for link in ClusterLink.objects.filter(pk__in=due.values("link")).prefetch_related("configs", "tasks"):
        _send_tasks(link, mirrors=True)


def _send_tasks(link: ClusterLink, *, mirrors: bool) -> None:
    """Send the recurring tasks that are due; ``mirrors``: the link has mirrors that are not stopped."""
    for name in due_tasks.due_tasks(link=link, mirrors=mirrors, now=timezone.now()):
        if name in SYNCS and locks.claim(f"task:{link.pk}:{name}", ttl_ms=CLAIM_MS):
            dispatch.send("run_link_task", link_id=link.pk, task=name)


def _derive_states(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows, failures: Failures, changed: bool
) -> list[WorstReport | None]:
    """Derive the states of mirrors and of the link from the rows of the partitions.

    Returns the worst reports of the mirrors that are to be copied.
    """
    now, retry_timeout = timezone.now(), plans.retry_timeout(link)
    reports: list[WorstReport | None] = []
    copied: list[WorstReport | None] = []
    for mirror in failures.not_failed(mirrors):
        key = plans.mirror_key(mirror)
        own = [rows[f"{key}/{n}"] for n in range(mirror.num_partitions) if f"{key}/{n}" in rows]
        with failures.of_mirror(mirror.pk):
            report = phases.worst_report(own, now=now)
            changed |= phases.apply_report(mirror=mirror, report=report, now=now, retry_timeout=retry_timeout)
            wanted = is_to_be_copied(mirror, link)
            reports.append(report if wanted else None)
            copied += [report] if wanted else []
    changed |= phases.note_reports(link=link, reports=reports, now=now)
    if phases.needs_probe(link=link, reports=reports, now=now) and locks.claim(f"probe:{link.pk}", ttl_ms=CLAIM_MS):
        dispatch.send("probe_link", link_id=link.pk)
    if changed:
        show_change(link.pk)
        link.sequence += 1
    return copied


# --- recurring tasks --------------------------------------------------------------------------------------------------


def run_task(link: ClusterLink, name: TaskName) -> None:
    """Run a recurring task of a link if it is due, and store its outcome."""
    mirrors = link.mirrors.unstopped().exists()
    row = due_tasks.begin_task_run(link=link, name=name, mirrors=mirrors, now=timezone.now())
    if row is not None:
        outcome = _outcome(name, link)
        due_tasks.finish_task_run(row=row, outcome=outcome, now=timezone.now())
        if due_tasks.wake_after(link=link, task=name, outcome=outcome):
            dispatch.send("reconcile_link", link_id=link.pk)


def _outcome(name: TaskName, link: ClusterLink) -> TaskOutcome:
    try:
        return SYNCS[name](link)
    except LinkEngineError as error:
        _log.info("link_task.failed", task=name, link=link.name, code=error.code)
        return TaskOutcome(errors=(TaskError(code=error.code, message=error.message),))
    except Exception:  # noqa: BLE001 - logged with traceback, shown on the link, retried
        _log.exception("link_task.failed", task=name, link=link.name)
        message = f"{name} failed unexpectedly; the worker's log has the details. It is retried automatically."
        return TaskOutcome(errors=(TaskError(code=ErrorCode.INTERNAL_ERROR, message=message),))


# --- the source: probes and topics ------------------------------------------------------------------------------------


_NO_LIST = {ErrorCode.AUTHORIZATION_ERROR, ErrorCode.AUTHENTICATION_ERROR, ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR}


def probe_link(link: ClusterLink) -> None:
    """Probe the source of a link with the link's own properties."""
    now = timezone.now()
    ClusterLink.objects.filter(pk=link.pk).update(probe_tried_at=now)
    try:
        _check_source(link)
        _choose_gap_filler(link)
    except LinkEngineError as error:
        phases.note_failure(link=link, error=error, now=now)
    else:
        phases.note_success(link=link, now=now)


def _check_side(link: ClusterLink) -> None:
    if pairs.needs_other_side(link) and pairs.other_side(link) is None:
        raise LinkEngineError(ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR, pairs.missing_side(link))


def _check_source(link: ClusterLink) -> None:
    _check_side(link)
    probe = jobs.probe_cluster(plans.source_address(link))
    if probe.cluster_id != link.source_cluster_id:
        message = (
            f"bootstrap.servers leads to cluster {probe.cluster_id}, but the link's source is {link.source_cluster_id}. "
            "Correct bootstrap.servers, or delete the link and create it for the other cluster."
        )
        raise LinkEngineError(ErrorCode.CLUSTER_ID_MISMATCH, message)


def _choose_gap_filler(link: ClusterLink) -> None:
    """Choose the gap filler at the first successful probe, if the creation of the link did not (``validate_link=false``).

    It does not change once a mirror is set up, since ACLs and producers were created for it.
    """
    if link.probed_at is not None or link.mode == LinkMode.SOURCE:
        return
    found = jobs.find_gap_filler(link.destination.address)
    ClusterLink.objects.filter(pk=link.pk).exclude(mirrors__num_partitions__gt=0).update(gap_filler=found)


def refresh_topics(link: ClusterLink) -> None:
    """List the topics of a link's source."""
    now = timezone.now()
    try:
        _check_side(link)  # without it the source side does not allow its topics to be listed
        topics = jobs.list_topics(plans.source_address(link))
    except LinkEngineError as error:
        if error.code in _NO_LIST:  # after other errors the last list is still useful
            ClusterLink.objects.filter(pk=link.pk).update(topics_at=None)
        return
    SourceTopic.objects.store_listing(topics, now=now, link=link)
    ClusterLink.objects.filter(pk=link.pk).update(topics_at=now if topics else None)
    syncs.request_growth(link, now=now)
