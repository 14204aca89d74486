"""Promote and failover: from PENDING_STOPPED to STOPPED.

A promotion waits until both sides are equal (how often it looks: ``waits``), orders the copier to let go, looks once more and
fences. A failover orders, waits for a moment and fences, whatever the source does. Both may be cut short anywhere: the
reconciler sends them again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any

import structlog
from celery import shared_task
from django.db import transaction
from django.utils import timezone

from console import dispatch, lineage, store
from console.actions import transitions
from console.actions.stopreports import write_stop_report, write_stop_reports
from console.actors import ENGINE
from console.models import MirrorTopic, RestoreRun
from console.reconciling import ends, groups, plans, refusals, troubles, waits
from console.tasks import leases, vouching
from console.tasks.answers import answering
from console.tasks.assigning import assign_link
from console.tasks.groups import group_blockers
from console.tasks.mirrors import REFUSED_DELETION, follow_source, note_failure
from console.tasks.overtaking import OvertakenError, check_wanted, giving_way, hold_name
from console.tasks.settingaside import set_aside
from linkengine import jobs
from linkengine.domain.configs import NEEDED
from linkengine.domain.errors import ErrorCode, IllegalTransitionError, LinkEngineError
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.mirrorjobs import MirrorStopped
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason

DRAIN_S = 3.0  # of looking again within one task; later looks are further apart, and tasks of their own
PROMOTE_RELEASE_S = 10.0  # a copier lets go within a second; a dead one's lease runs out after four
FAILOVER_RELEASE_S = 1.0
_WAITING = {
    ErrorCode.WAITING_FOR_LAG,
    ErrorCode.WAITING_FOR_CONFIGS,
    ErrorCode.WAITING_FOR_PARTITIONS,
    ErrorCode.WAITING_FOR_GROUPS,
    ErrorCode.CONSUMER_GROUP_IN_USE_ERROR,
}
_UNTROUBLED: Mapping[str, Any] = MappingProxyType(
    {
        "error_code": "",
        "error_message": "",
        "error_since": None,
        "retry_at": None,
        "drained_at": None,
        "giving_back": False,
    }
)
_log = structlog.get_logger(__name__)


class StopTakenOverError(Exception):
    """Another worker has gone on with this stop; whatever the topic is now, it is not ours to open."""


@shared_task(name="advance_stop")
def advance_stop(*, mirror_id: int, **_: Any) -> None:
    """Take a stopping mirror as far as it gets. A failover never waits for the promotion it overrules."""
    mirror = plans.load(mirror_id)
    if mirror is None or not _is_stopping(mirror) or (mirror.fencing_at and store.is_held(batch_name(mirror.link_id))):
        return
    with store.hold(f"stop:{mirror.stop_reason}:{mirror_id}") as ours:
        if not ours:
            return
        if mirror.stop_reason == StopReason.FAILOVER or mirror.fencing_at is not None:
            _stop_now(mirror)
        else:
            _promote(mirror)


def batch_name(link_id: int) -> str:
    """Name the hold of whoever stops many mirrors of a link together."""
    return f"stop-many:{link_id}"


def _promote(mirror: MirrorTopic) -> None:
    deadline, looks = time.monotonic() + DRAIN_S, mirror.retry_count
    # behind its own fence the mirror is longer than its source, and what keeps it from being opened is told already
    while _is_stopping(mirror) and mirror.stop_reason == StopReason.PROMOTE and mirror.fencing_at is None:
        blockers = blockers_of(mirror)
        note_blockers(mirror, blockers, now=timezone.now())
        if blockers and mirror.drained_at is not None:
            _set_drained(mirror, at=None)  # by a worker that died before it could look once more: copy on
        if not blockers:
            _let_go_and_stop(mirror)
        elif not blockers.keys() <= _WAITING:
            code, message = next((c, m) for c, m in blockers.items() if c not in _WAITING)
            note_failure(mirror, LinkEngineError(code, message), fatal=False, now=timezone.now())
            return
        wait_s, looks = waits.pause_s(looks), looks + 1
        if time.monotonic() + wait_s >= deadline:
            waits.postpone(mirror=mirror, looks=looks, wait_s=wait_s, now=timezone.now())
            return
        time.sleep(wait_s)
        fresh = plans.load(mirror.pk)
        if fresh is None:
            return
        mirror = fresh


def _let_go_and_stop(mirror: MirrorTopic) -> None:
    """Both sides were equal a moment ago: stop the copier, look again, and fence only if they still are."""
    drained_at = timezone.now()
    _set_drained(mirror, at=drained_at)
    give_orders(mirror.link_id)
    with leases.taken(mirror, wait_s=PROMOTE_RELEASE_S) as taken:
        blockers = _last_look(mirror, taken)
        note_blockers(mirror, blockers, now=timezone.now())
        if blockers:
            _set_drained(mirror, at=None)  # copy on
        else:
            _fence(mirror, taken, drained_at=drained_at)


def _last_look(mirror: MirrorTopic, taken: leases.Taken) -> dict[ErrorCode, str]:
    if not taken.complete:
        return {ErrorCode.WAITING_FOR_LAG: "The copier has not let go yet."}
    return blockers_of(mirror) or vouching.doubts(mirror, taken.grants)


def _stop_now(mirror: MirrorTopic) -> None:
    """Fence, whatever the source does: a failover, or a stop that had begun to fence before."""
    give_orders(mirror.link_id)
    with giving_way(mirror) as found:
        if found is None or not _is_stopping(found) or not _remove_doomed(found):
            return
        with leases.taken(found, wait_s=FAILOVER_RELEASE_S) as taken:
            _fence(found, taken)


def _remove_doomed(mirror: MirrorTopic) -> bool:
    """Finish the deletion a restore had begun before it was cut short: nobody may write to a topic that is about to go."""
    run = mirror.restores.filter(finished_at=None).exclude(doomed_at=None).first()
    if run is None:
        return True
    here = mirror.link.destination.address
    try:
        set_aside(mirror, run)
        if not _delete_doomed(mirror, run):
            return True
        if jobs.find_topic(here, mirror.name) is None:
            jobs.open_topic(here, mirror.name)
    except LinkEngineError as error:
        note_failure(mirror, error, fatal=False, now=timezone.now())
        return False
    mirror.restores.filter(pk=run.pk).update(finished_at=timezone.now())
    return True


def _delete_doomed(mirror: MirrorTopic, run: RestoreRun) -> bool:
    """Delete the topic that a restore has doomed; False where the cluster refuses: then it is kept, with all its records."""
    here = mirror.link.destination.address
    try:
        jobs.delete_diverged(destination=here, topic=mirror.name, topic_id=run.diverged_topic_id)
    except LinkEngineError as error:
        if error.code not in REFUSED_DELETION:
            raise
        _log.warning("stop.doomed_topic_kept", mirror=mirror.name, code=error.code)
    else:
        return True
    with transaction.atomic():
        mirror.restores.filter(pk=run.pk).update(finished_at=timezone.now(), doomed_at=None)
        MirrorTopic.objects.filter(pk=mirror.pk).update(mirror_topic_id=run.diverged_topic_id)
    mirror.mirror_topic_id = run.diverged_topic_id
    return False


def _fence(mirror: MirrorTopic, taken: leases.Taken, **unchanged: datetime) -> None:
    """From the mark on there is no way back to copying: the fence is a batch of our own in the mirror.

    Nothing is fenced where the row is not ``unchanged``: this process slept, and another one let the copier go on.
    """
    stopping = {"state": MirrorState.PENDING_STOPPED, "stop_reason": mirror.stop_reason, "fencing_at": mirror.fencing_at}
    marked = MirrorTopic.objects.filter(pk=mirror.pk, **stopping, **unchanged)
    now = timezone.now()
    if not marked.update(fencing_at=now):
        return  # somebody else is at it
    mirror.fencing_at = now
    check_ours, gone, opened = partial(check_marks, [mirror.pk], marked_at=now), "", Opening()
    stopped = None
    try:
        stop = plans.stop_of(mirror, generation=taken.generation, partitions=_note_topic(mirror))
        stop = ends.with_known_ends(stop, mirror, grants=taken.grants)
        stopped = jobs.stop_mirror(
            stop, on_fenced=partial(ends.record_ends, mirror), on_open=opened.note, check_ours=check_ours
        )
        groups.store_clamped(mirror=mirror, clamped=stopped.clamped, now=timezone.now())
    except LinkEngineError as error:
        if error.code != ErrorCode.MIRROR_TOPIC_MISSING:  # where nothing is left, nothing needs a fence
            note_failure(mirror, error, fatal=False, now=timezone.now())
            return
        gone = error.message
    except StopTakenOverError:
        _log.warning("stop.taken_over", mirror=mirror.name)
        return
    writable_at = opened.at or timezone.now()
    ends_there = _source_ends(mirror)
    note_stopped(mirror, now=writable_at, source_ends=ends_there, detail=gone, marked_at=now, stopped=stopped)
    dispatch.send("reconcile_link", link_id=mirror.link_id)


class Opening:
    """The time at which producers were let in; what comes after it does not count in the RTO."""

    def __init__(self) -> None:
        self.at: datetime | None = None

    def note(self) -> None:
        self.at = timezone.now()


def _note_topic(mirror: MirrorTopic) -> int | None:
    """Where a set-up was cut short: note which topic it has made, and answer its partitions; None where the row knows.

    It is known by a mirror's configs, which it loses next.
    """
    if mirror.mirror_topic_id and mirror.num_partitions and mirror.holds_copy:
        return None
    here, contested = mirror.link.destination.address, plans.is_contested(mirror)
    found = jobs.find_mirror(here, mirror.name, topic_id=mirror.mirror_topic_id, contested=contested)
    if found is None:
        return None
    mirror.mirror_topic_id = found.topic_id
    MirrorTopic.objects.filter(pk=mirror.pk, mirror_topic_id="").update(mirror_topic_id=found.topic_id)
    return found.partitions


def _source_ends(mirror: MirrorTopic) -> dict[int, int] | None:
    """Look once more after the fence of a promotion: it may have begun long ago, and somebody may write on at the source."""
    if mirror.stop_reason != StopReason.PROMOTE:
        return None
    try:
        there = plans.source_address(mirror.link)
        return jobs.topic_ends(there, mirror.source_topic, topic_id=mirror.source_topic_id)
    except LinkEngineError as error:
        _log.warning("stop.source_not_seen", mirror=mirror.name, code=error.code)
        return None


def check_marks(mirror_ids: Sequence[int], *, marked_at: datetime) -> None:
    """Raise where a stop is not ours any more: this process slept, and another one went on with it."""
    ours = MirrorTopic.objects.filter(pk__in=mirror_ids, state=MirrorState.PENDING_STOPPED, fencing_at=marked_at)
    if ours.count() < len(mirror_ids):
        raise StopTakenOverError


def give_orders(link_id: int) -> None:
    """Tell copy workers of a link as its rows are now, without waiting for the reconciler."""
    link = plans.load_link(link_id)
    if link is None:
        return
    mirrors = list(link.mirrors.all())
    try:
        assign_link(link, mirrors)
    except CoordinationUnavailableError as error:  # the fence does not need them
        _log.warning("orders.not_written", link=link.name, error=str(error))


def blockers_of(mirror: MirrorTopic) -> dict[ErrorCode, str]:
    given_up = vouching.verdict(mirror)
    if given_up:
        return given_up
    try:
        refused = follow_source(mirror).refused
    except LinkEngineError as error:
        return {error.code: error.message}
    needed = next((step for step in refused if step.name in NEEDED), None)
    if needed is not None:
        return {ErrorCode(needed.code): needed.message}
    found = jobs.promotion_blockers(
        source=plans.source_address(mirror.link),
        destination=mirror.link.destination.address,
        source_topic=mirror.source_topic,
        mirror_topic=mirror.name,
        sync_include=mirror.link.sync_include,
        refused=[step.name for step in refused],
    )
    return dict(found) or _unequal_groups(mirror)


def _unequal_groups(mirror: MirrorTopic) -> dict[ErrorCode, str]:
    """Look at consumer groups last: their offsets can be equal only once the records are."""
    try:
        return group_blockers(mirror)
    except LinkEngineError as error:
        return {error.code: error.message}


def note_blockers(mirror: MirrorTopic, blockers: dict[ErrorCode, str], *, now: datetime) -> None:
    """Show what a mirror waits for. Nothing of one that a failover has taken over meanwhile: nobody would clear it."""
    if not MirrorTopic.objects.filter(pk=mirror.pk, state=mirror.state, stop_reason=mirror.stop_reason).exists():
        return
    errors = {str(code): message for code, message in blockers.items()}
    if troubles.replace(mirror=mirror, errors=errors, now=now):
        dispatch.send("reconcile_link", link_id=mirror.link_id)


def note_stopped(
    mirror: MirrorTopic,
    *,
    now: datetime,
    source_ends: dict[int, int] | None = None,
    detail: str = "",
    marked_at: datetime | None = None,
    stopped: MirrorStopped | None = None,
) -> None:
    """Write down that the topic is stopped; nothing where the stop that was marked then is not under way any more.

    ``now`` is when producers were let in, ``stopped`` what the engine returned, None where the topic is gone.
    """
    facts = {"by": ENGINE, "now": now, "detail": detail, **_UNTROUBLED}
    try:
        with transaction.atomic():
            if marked_at is not None:
                check_marks([mirror.pk], marked_at=marked_at)
            troubles.clear(mirror=mirror)
            moved = transitions.apply_event(mirror=mirror, event=MirrorEvent.FENCED, **facts)
            asked_at, refused = timezone.now(), stopped.refused if stopped else ()
            write_stop_report(mirror=moved, now=now, source_ends=source_ends, asked_at=asked_at, refused=refused)
            if stopped is None or stopped.gives_back:
                refusals.note(mirror=moved, refused=refused, now=now)
            lineage.close_lineage(mirror=moved, now=now)
    except (IllegalTransitionError, StopTakenOverError):  # another run of this task was quicker
        _log.info("stop.done_already", mirror=mirror.name)


def note_many_stopped(stops: Sequence[tuple[MirrorTopic, MirrorStopped]], *, now: datetime) -> None:
    """Write for many mirrors, all still stopping when they were read, what ``note_stopped`` does for one; few statements."""
    mirrors, stopped = [mirror for mirror, _ in stops], {mirror.pk: found for mirror, found in stops}
    with transaction.atomic():
        moved = transitions.apply_to_many(mirrors=mirrors, event=MirrorEvent.FENCED, by=ENGINE, now=now, **_UNTROUBLED)
        troubles.clear_many(mirrors=moved)
        write_stop_reports(mirrors=moved, now=now, refused={key: found.refused for key, found in stopped.items()})
        refusals.note_many({mirror: stopped[mirror.pk].refused for mirror in moved}, now=now)
        lineage.close_many(moved, now=now)
    for mirror in set(mirrors) - set(moved):  # it finds out why
        note_stopped(mirror, now=now, stopped=stopped[mirror.pk])


@shared_task(name="give_configs_back")
@answering
def give_configs_back(*, mirror_id: int) -> list[dict[str, Any]]:
    """Retry what the destination refused when the mirror was stopped; return what it refuses now."""
    with store.hold(hold_name(mirror_id)) as ours:
        mirror = plans.load(mirror_id) if ours else None
        if mirror is None or mirror.state != MirrorState.STOPPED or mirror.deletion_requested_at is not None:
            raise LinkEngineError(ErrorCode.ILLEGAL_STATE, "The mirror topic is changing just now. Look at its state first.")
        stop, check_ours = plans.stop_of(mirror, generation=0), partial(check_wanted, mirror)
        try:
            refused = jobs.give_configs_back(stop, check_ours=check_ours)
        except OvertakenError:
            message = f"Mirror topic '{mirror.name}' is not STOPPED any more, so its configs are the mirror's."
            raise LinkEngineError(ErrorCode.ILLEGAL_STATE, message) from None
        refusals.settle(mirror=mirror, refused=refused, now=timezone.now())
    return [asdict(step) for step in refused]


def _set_drained(mirror: MirrorTopic, *, at: datetime | None) -> None:
    MirrorTopic.objects.filter(pk=mirror.pk, state=MirrorState.PENDING_STOPPED).update(drained_at=at)


def _is_stopping(mirror: MirrorTopic) -> bool:
    return mirror.state == MirrorState.PENDING_STOPPED and mirror.deletion_requested_at is None
