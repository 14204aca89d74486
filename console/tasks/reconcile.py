"""The heart beat: once a second, and right after each action, rows and engine are brought together, link by link."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import structlog
from celery import shared_task
from django.conf import settings
from django.db import IntegrityError
from django.utils import timezone

from console import dispatch, rounds, store
from console.actions.links import remove_link
from console.actors import Actor
from console.models import ClusterLink, MirrorPartition, MirrorTopic, VerifyRun
from console.models.links import show_change
from console.reconciling import (
    chores,
    coverage,
    gaps,
    history,
    linkhealth,
    linktasks,
    phases,
    plans,
    sampling,
    slicing,
    tombstones,
    waits,
)
from console.tasks import endings
from console.tasks.covering import look_after_coverage
from console.tasks.drills import look_after_drills
from console.tasks.endings import Ended
from console.tasks.gates import look_after_gates
from console.tasks.linktasks import SYNCS
from console.tasks.namespaces import look_after_namespaces
from console.tasks.orders import write_orders
from console.tasks.verifying import look_after_runs
from linkengine import jobs
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.plans import PartitionProgress
from linkengine.domain.ranges import Gap
from linkengine.domain.states import WRITABLE, GapReason

ROUNDS = 3  # when asked again while at it
CLAIM_MS = 2_000  # how often one chore is sent, at most
WAITING_MS = 3_000  # a round that nobody has begun until then is sent again
KEEP_RUNS = timedelta(days=30)
_log = structlog.get_logger(__name__)
Rows = dict[str, MirrorPartition]


@shared_task(name="reconcile")
def reconcile(**_: Any) -> None:
    """Take every step of a round, whatever becomes of the others; being run at all shows that a worker lives."""
    store.note_worker()
    for name in rounds.STEPS:
        _try(name)


@shared_task(name="reconcile_link")
def reconcile_link(*, link_id: int, probe: bool = False, **_: Any) -> None:
    """Bring one link up to date; never twice at once. Who comes second leaves a note to the first."""
    name = f"link:{link_id}"
    store.unclaim(_waiting(link_id))
    if probe:
        ClusterLink.objects.filter(pk=link_id).update(looked_at=None)
    for _round in range(ROUNDS):
        with store.hold(name) as ours:
            if not ours:
                store.ask_again(name)
                return
            store.was_asked_again(name)
            _reconcile_noted(link_id)
        if not store.was_asked_again(name):
            return


@shared_task(name="forget_link")
def forget_link(*, link_key: str, partitions: dict[str, int] | None = None, **_: Any) -> None:
    """Remove what the engine keeps of a link that is gone, and of its mirrors, by name with how many partitions they had."""
    keys = [f"{name}/{number}" for name, count in (partitions or {}).items() for number in range(count)]
    jobs.clear_link(settings.REDIS_URL, link_key, keys=keys)


@shared_task(name="forget_old_rows")
def forget_old_rows(**_: Any) -> None:
    """Delete rows nobody needs any more: slices, verify runs, samples. The audit is kept."""
    now = timezone.now()
    slicing.forget_old(now=now)
    history.forget_old(now=now)
    VerifyRun.objects.filter(requested_at__lt=now - KEEP_RUNS).delete()


def _waiting(link_id: int) -> str:
    return f"reconcile:{link_id}"


def _send_links() -> None:
    for link_id in ClusterLink.objects.values_list("pk", flat=True):
        if store.claim(_waiting(link_id), ttl_ms=WAITING_MS):  # where all threads are busy, messages would pile up
            dispatch.send("reconcile_link", link_id=link_id)


_STEPS: Mapping[str, Callable[[], None]] = {
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
        rounds.note_failure(name, error)
    else:
        rounds.note_success(name)


def _reconcile_noted(link_id: int) -> None:
    name = rounds.of_link(link_id)
    try:
        if _reconcile(link_id):
            rounds.note_success(name)
    except IntegrityError as error:  # a mirror was deleted while it was looked at; the next round does without it
        _log.warning("reconcile.overtaken", link_id=link_id, error=str(error))
        rounds.note_failure(name, error)  # every round: then it is no mirror that went away
    except Exception as error:
        rounds.note_failure(name, error)
        raise


def _reconcile(link_id: int) -> bool:
    """Tell whether all of the link was looked after."""
    link = plans.load_link(link_id)
    if link is None:
        return False
    mirrors = list(link.mirrors.prefetch_related("partitions", "transition_errors"))
    for mirror in mirrors:
        mirror.link = link
    if chores.is_over(link=link, mirrors=mirrors):
        remover = Actor(name=link.deletion_requested_by or "engine", user=None, trusted=True)
        remove_link(link=link, by=remover, now=timezone.now())
        return True
    rows = {f"{plans.mirror_key(one)}/{row.partition}": row for one in mirrors for row in sampling.ensure_rows(one)}
    try:
        reports = jobs.read_progress(settings.REDIS_URL, plans.link_key(link))
        ended = endings.read(link, mirrors)
        _observe(link, mirrors, rows=rows, reports=slicing.of_these_lives(mirrors, reports), ended=ended)
        endings.forget(ended)
        followed = write_orders(link, mirrors)
    except CoordinationUnavailableError as error:
        _log.warning("reconcile.no_redis", link=link.name, error=str(error))
        return False
    if followed:  # else a job of this revision would end at once
        _copy(link, mirrors, rows=rows)
        _run_tasks(link, mirrors)  # nor does a database that went back know yet what has become of its mirrors
    _send_chores(link, mirrors, rows=rows)
    if store.claim(f"sample:{link.pk}", ttl_ms=history.EVERY_MS):
        history.keep_samples(link=link, mirrors=mirrors, now=timezone.now())
    return True


def _send_chores(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows) -> None:
    together = chores.stopped_together(mirrors)
    if together and store.claim(f"stop_many:{link.pk}", ttl_ms=CLAIM_MS):
        dispatch.send("stop_many", link_id=link.pk)
    for mirror in waits.caught_up(mirrors=mirrors, rows=rows, now=timezone.now()):
        if store.claim(f"wake:{mirror.pk}", ttl_ms=waits.WAKE_MS):
            mirror.retry_at = None
    for task, mirror_id in chores.chores_of(mirrors=mirrors, now=timezone.now()):
        if mirror_id not in together and store.claim(f"{task}:{mirror_id}", ttl_ms=CLAIM_MS):
            dispatch.send(task, mirror_id=mirror_id)


def _run_tasks(link: ClusterLink, mirrors: Sequence[MirrorTopic]) -> None:
    unstopped = any(one.state not in WRITABLE for one in mirrors)
    for name in linktasks.due_tasks(link=link, mirrors=unstopped, now=timezone.now()):
        if name in SYNCS and store.claim(f"task:{link.pk}:{name}", ttl_ms=CLAIM_MS):
            dispatch.send("run_link_task", link_id=link.pk, task=name)


def _observe(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows, reports: Sequence[PartitionProgress], ended: Ended
) -> None:
    now = timezone.now()
    changed = _keep_losses(link, mirrors)  # first: a loss lies behind the last timestamp known before it
    changed |= _store(mirrors, rows=rows, reports=reports, ended=ended)
    verdicts, heard = [], []
    for mirror in mirrors:
        key = plans.mirror_key(mirror)
        own = {n: rows[f"{key}/{n}"] for n in range(mirror.num_partitions) if f"{key}/{n}" in rows}
        verdict = phases.verdict_on(own.values(), now=now)
        changed |= phases.apply_verdict(mirror=mirror, verdict=verdict, now=now)
        wanted = slicing.is_wanted(mirror, link)
        verdicts.append(verdict if wanted else None)
        heard += [(verdict, own.values())] if wanted else []
    changed |= linkhealth.note_verdicts(link=link, verdicts=verdicts, now=now)
    changed |= slicing.note_copying(link=link, heard=heard, now=now)
    if linkhealth.needs_probe(link=link, verdicts=verdicts, now=now) and store.claim(f"probe:{link.pk}", ttl_ms=CLAIM_MS):
        dispatch.send("probe_link", link_id=link.pk)
    if changed:
        show_change(link.pk)


def _store(mirrors: Sequence[MirrorTopic], *, rows: Rows, reports: Sequence[PartitionProgress], ended: Ended) -> bool:
    now, last_words = timezone.now(), [one for some in ended.values() for one in some]
    changed = False
    for told in (*ended.values(), reports):
        changed |= _keep_gaps(mirrors, rows=rows, reports=told)
    changed |= tombstones.note_lateness(mirrors=mirrors, rows=rows, reports=reports, now=now)  # before the rows forget it
    changed |= coverage.forget_lost(mirrors=mirrors, rows=rows, reports=reports, endings=last_words, now=now)
    return changed | sampling.store_progress(rows=rows, reports=reports, endings=last_words, now=now)


def _keep_gaps(mirrors: Sequence[MirrorTopic], *, rows: Rows, reports: Sequence[PartitionProgress]) -> bool:
    filled = {one.key: one.gaps for one in reports if one.gaps and one.key in rows}
    changed = False
    for mirror in mirrors if filled else ():
        key = plans.mirror_key(mirror)
        own = {n: filled[f"{key}/{n}"] for n in range(mirror.num_partitions) if f"{key}/{n}" in filled}
        changed |= gaps.store_gaps(mirror=mirror, gaps=own, now=timezone.now())
    return changed


def _keep_losses(link: ClusterLink, mirrors: Sequence[MirrorTopic]) -> bool:
    """Take into the ledger what copiers found lost, also those that did not live to report it; then let go of it."""
    found = jobs.read_losses(settings.REDIS_URL, plans.link_key(link))
    ours = {key: (one, number) for one in mirrors for number, key in enumerate(plans.partition_keys(one))} if found else {}
    stored = [loss for loss in found if loss[0] in ours]
    changed = False
    for key, lost in stored:
        mirror, partition = ours[key]
        changed |= gaps.store_gaps(mirror=mirror, gaps={partition: [Gap(lost, GapReason.LOST)]}, now=timezone.now())
    jobs.forget_losses(settings.REDIS_URL, plans.link_key(link), stored)
    return changed


def _copy(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows) -> None:
    keys: dict[bool, list[str]] = defaultdict(list)
    for mirror in mirrors:
        keys[slicing.is_wanted(mirror, link)] += plans.partition_keys(mirror)
    now = timezone.now()
    orphans = [one for one in slicing.starting(link=link, now=now) if not store.is_held(slicing.hold_of(one))]
    for one in slicing.next_slices(link=link, wanted=keys[True], rows=rows, now=now, orphans=orphans):
        if store.claim(slicing.hold_of(one.slice_id), ttl_ms=CLAIM_MS):  # it is decided anew each second until it is taken
            dispatch.send("run_slice", slice_id=one.slice_id)
