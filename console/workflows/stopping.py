"""Promote and failover: takes a mirror from PENDING_STOPPED to STOPPED.

    step  promote                                               failover
    1     wait until nothing blocks it: lag, configs, groups    (the source may be unreachable)
    2     set ``drained_at``; assign the partitions to no copy worker, so that their leases are released
    3     take the leases within 10 s, check step 1 again       take the leases; after 1 s continue without the missing ones
    4     set ``fencing_at``, the mark
    5     per partition: append the fence (a marker with higher epochs); store the mirrored ends
    6     clamp consumer groups to the ends, make the topic writable, restore the source's configs, become STOPPED

Up to step 4 a promotion can return to copying (``drained_at`` is removed). From the mark on it cannot: the fence is a batch in
the mirror that the source does not have. ``linkengine.jobs.stopping`` carries out steps 5 and 6.

A worker may crash at any step; the reconciler sends the task again, and each step can be repeated. Two workers may carry out
the same stop, since a suspended process loses its lock. The mark is therefore also a token: setting it is a compare-and-swap,
and a worker continues only while the row has its own mark (``check_marks``). ``reconciling.due_tasks`` decides how often a
promotion checks step 1.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from console.actors import ENGINE
from console.mirrors import lineage, progress, transitions
from console.models import MirrorPartition, MirrorTopic
from console.queue import dispatch
from console.reconciling import due_tasks, ends, groups, plans, transition_errors
from console.reconciling.due_tasks import MANY
from console.verification.failover_actions import write_stop_report, write_stop_reports
from console.workflows import leases
from console.workflows.export_diverged import remove_doomed
from console.workflows.leases import write_assignments
from console.workflows.mirrors import follow_source, note_failure
from console.workflows.preemption import PreemptedError, check_wanted, preempting
from console.workflows.syncs import group_blockers
from linkengine import jobs
from linkengine.domain.configs import NEEDED
from linkengine.domain.errors import ErrorCode, IllegalTransitionError, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorStopped, RefusedStep
from linkengine.domain.plans import GapFiller, PartitionPhase
from linkengine.domain.states import BECOMING, MirrorEvent, MirrorState, StopReason
from linkengine.domain.workers import Grant

DRAIN_S = 3.0  # how long a task repeats the check; later checks are further apart and in tasks of their own
PROMOTE_RELEASE_S = 10.0  # a copy worker releases within a second; that of a crashed worker expires after four
FAILOVER_RELEASE_S = 1.0
PER_COMMIT = 100  # mirrors that are stopped together, so that other writers are not blocked for long
_WAITING = {
    ErrorCode.WAITING_FOR_LAG,
    ErrorCode.WAITING_FOR_CONFIGS,
    ErrorCode.WAITING_FOR_PARTITIONS,
    ErrorCode.WAITING_FOR_GROUPS,
    ErrorCode.CONSUMER_GROUP_IN_USE_ERROR,
}
_NO_TROUBLE: Mapping[str, Any] = MappingProxyType(
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
    """Another worker has continued this stop, so this process must not change the topic any further."""


def advance(mirror: MirrorTopic) -> None:
    """Advance a stopping mirror as far as possible."""
    if mirror.stop_reason == StopReason.FAILOVER or mirror.fencing_at is not None:
        _stop_now(mirror)
    else:
        _promote(mirror)


def batch_name(link_id: int) -> str:
    """Return the name of the lock for stopping many mirrors of a link together."""
    return f"stop-many:{link_id}"


def _promote(mirror: MirrorTopic) -> None:
    deadline, checks = time.monotonic() + DRAIN_S, mirror.retry_count
    # Not after the fence: the mirror is longer than its source then, and the reason why it is not writable is shown already.
    while is_stopping(mirror) and mirror.stop_reason == StopReason.PROMOTE and mirror.fencing_at is None:
        blockers = blockers_of(mirror)
        note_blockers(mirror, blockers, now=timezone.now())
        if blockers and mirror.drained_at is not None:
            _set_drained(mirror, at=None)  # of a worker that crashed before its second check: resume copying
        if not blockers:
            _release_and_stop(mirror)
        elif not blockers.keys() <= _WAITING:
            code, message = next((c, m) for c, m in blockers.items() if c not in _WAITING)
            note_failure(mirror, LinkEngineError(code, message), fatal=False, now=timezone.now())
            return
        wait_s, checks = due_tasks.promote_pause_s(checks), checks + 1
        if time.monotonic() + wait_s >= deadline:
            due_tasks.postpone_promote(mirror=mirror, checks=checks, wait_s=wait_s, now=timezone.now())
            return
        time.sleep(wait_s)
        fresh = plans.load(mirror.pk)
        if fresh is None:
            return
        mirror = fresh


def _release_and_stop(mirror: MirrorTopic) -> None:
    """Stop copying at equal ends, check again, and fence only if both sides are still equal."""
    drained_at = timezone.now()
    _set_drained(mirror, at=drained_at)
    write_assignments(mirror.link_id)
    with leases.taken(mirror, wait_s=PROMOTE_RELEASE_S) as taken:
        blockers = _last_check(mirror, taken)
        note_blockers(mirror, blockers, now=timezone.now())
        if blockers:
            _set_drained(mirror, at=None)  # resume copying
        else:
            _fence(mirror, taken, drained_at=drained_at)


def _last_check(mirror: MirrorTopic, taken: leases.Taken) -> dict[ErrorCode, str]:
    if not taken.complete:
        return {ErrorCode.WAITING_FOR_LAG: "The copy workers have not released all partitions yet."}
    return blockers_of(mirror) or unconfirmed_end(mirror, taken.grants)


def _stop_now(mirror: MirrorTopic) -> None:
    """Fence whatever the state of the source: for a failover, or for a stop that has been marked before."""
    write_assignments(mirror.link_id)
    with preempting(mirror) as found:
        if found is None or not is_stopping(found) or not remove_doomed(found):
            return
        with leases.taken(found, wait_s=FAILOVER_RELEASE_S) as taken:
            _fence(found, taken)


def _fence(mirror: MirrorTopic, taken: leases.Taken, **unchanged: datetime) -> None:
    """Mark the stop, fence all partitions and open the topic. There is no way back to copying after the mark.

    Nothing is fenced unless the row still has the values of ``unchanged``: if this process was suspended, another worker may
    have resumed copying.
    """
    stopping = {"state": MirrorState.PENDING_STOPPED, "stop_reason": mirror.stop_reason, "fencing_at": mirror.fencing_at}
    marked = MirrorTopic.objects.filter(pk=mirror.pk, **stopping, **unchanged)
    now = timezone.now()
    if not marked.update(fencing_at=now):
        return  # another worker has marked it
    mirror.fencing_at = now
    check_ours, missing, opened = partial(check_marks, [mirror.pk], marked_at=now), "", Opening()
    stopped = None
    try:
        stop = plans.stop_of(mirror, generation=taken.generation, partitions=_note_topic(mirror))
        stop = ends.with_known_ends(stop, mirror, grants=taken.grants)
        stopped = jobs.stop_mirror(
            stop, on_fenced=partial(ends.record_ends, mirror), on_open=opened.note, check_ours=check_ours
        )
        groups.store_clamped(mirror=mirror, clamped=stopped.clamped, now=timezone.now())
    except LinkEngineError as error:
        if error.code != ErrorCode.MIRROR_TOPIC_MISSING:  # a topic that does not exist needs no fence
            note_failure(mirror, error, fatal=False, now=timezone.now())
            return
        missing = error.message
    except StopTakenOverError:
        _log.warning("stop.taken_over", mirror=mirror.name)
        return
    writable_at = opened.at or timezone.now()
    source_ends = _source_ends(mirror)
    note_stopped(mirror, now=writable_at, source_ends=source_ends, detail=missing, marked_at=now, stopped=stopped)
    dispatch.send("reconcile_link", link_id=mirror.link_id)


class Opening:
    """The time at which producers were let in. Later steps do not count in the RTO."""

    def __init__(self) -> None:
        self.at: datetime | None = None

    def note(self) -> None:
        self.at = timezone.now()


def _note_topic(mirror: MirrorTopic) -> int | None:
    """Store which topic an interrupted set-up has created, and return its partition count; None if the row has both.

    The topic is recognized by its mirror configs, which the stop removes next.
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
    """Return the source's log ends after the fence of a promotion; producers may have written to it since the last check."""
    if mirror.stop_reason != StopReason.PROMOTE:
        return None
    try:
        there = plans.source_address(mirror.link)
        return jobs.topic_ends(there, mirror.source_topic, topic_id=mirror.source_topic_id)
    except LinkEngineError as error:
        _log.warning("stop.source_not_seen", mirror=mirror.name, code=error.code)
        return None


def check_marks(mirror_ids: Sequence[int], *, marked_at: datetime) -> None:
    """Raise StopTakenOverError if a stop has another mark: this process was suspended and another worker continued."""
    marked = MirrorTopic.objects.filter(pk__in=mirror_ids, state=MirrorState.PENDING_STOPPED, fencing_at=marked_at)
    if marked.count() < len(mirror_ids):
        raise StopTakenOverError


def blockers_of(mirror: MirrorTopic) -> dict[ErrorCode, str]:
    """Return what keeps a promotion waiting, by error code."""
    failure = copy_failure(mirror)
    if failure:
        return failure
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
    """Check consumer groups last: their offsets can be equal only once the records are."""
    try:
        return group_blockers(mirror)
    except LinkEngineError as error:
        return {error.code: error.message}


def note_blockers(mirror: MirrorTopic, blockers: dict[ErrorCode, str], *, now: datetime) -> None:
    """Show what a mirror waits for, unless a failover has replaced the promotion: the reasons would never be cleared."""
    if not MirrorTopic.objects.filter(pk=mirror.pk, state=mirror.state, stop_reason=mirror.stop_reason).exists():
        return
    errors = {str(code): message for code, message in blockers.items()}
    if transition_errors.replace(mirror=mirror, errors=errors, now=now):
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
    """Set a mirror to STOPPED and write its failover report.

    Does nothing if another worker has continued the stop (``marked_at``).

    ``now`` is when producers were let in; ``stopped`` is the engine's result, None if the topic does not exist.
    """
    facts = {"by": ENGINE, "now": now, "detail": detail, **_NO_TROUBLE}
    try:
        with transaction.atomic():
            if marked_at is not None:
                check_marks([mirror.pk], marked_at=marked_at)
            transition_errors.clear(mirror=mirror)
            moved = transitions.apply_event(mirror=mirror, event=MirrorEvent.FENCED, **facts)
            _clear_partitions([moved])
            asked_at, refused = timezone.now(), stopped.refused if stopped else ()
            write_stop_report(mirror=moved, now=now, source_ends=source_ends, asked_at=asked_at, refused=refused)
            if stopped is None or stopped.gives_back:
                transition_errors.note_refusals(mirror=moved, refused=refused, now=now)
            lineage.close_lineage(mirror=moved, now=now)
    except (IllegalTransitionError, StopTakenOverError):  # another run of this task was faster
        _log.info("stop.done_already", mirror=mirror.name)


def note_many_stopped(stops: Sequence[tuple[MirrorTopic, MirrorStopped]], *, now: datetime) -> None:
    """Apply ``note_stopped`` to many mirrors, all still stopping when they were read, in few statements."""
    mirrors, stopped = [mirror for mirror, _ in stops], {mirror.pk: found for mirror, found in stops}
    with transaction.atomic():
        moved = transitions.apply_to_many(mirrors=mirrors, event=MirrorEvent.FENCED, by=ENGINE, now=now, **_NO_TROUBLE)
        transition_errors.clear_many(mirrors=moved)
        _clear_partitions(moved)
        write_stop_reports(mirrors=moved, now=now, refused={key: found.refused for key, found in stopped.items()})
        transition_errors.note_refusals_of_many({mirror: stopped[mirror.pk].refused for mirror in moved}, now=now)
        lineage.close_many(moved, now=now)
    for mirror in set(mirrors) - set(moved):  # changed since they were read: handled singly
        note_stopped(mirror, now=now, stopped=stopped[mirror.pk])


def _clear_partitions(mirrors: Sequence[MirrorTopic]) -> None:
    """Clear the last errors of the partitions, which are no longer copied. One statement."""
    failed = MirrorPartition.objects.filter(mirror__in=mirrors).exclude(error_code="")
    failed.update(error_code="", error_message="")


def give_configs_back(mirror: MirrorTopic | None) -> tuple[RefusedStep, ...]:
    """Retry the configs that the destination refused when the mirror was stopped. Returns what it refuses now.

    ``mirror``: None if another task has its lock.
    """
    if mirror is None or mirror.state != MirrorState.STOPPED or mirror.deletion_requested_at is not None:
        raise LinkEngineError(ErrorCode.ILLEGAL_STATE, "The mirror topic is changing. Refresh its state and try again.")
    stop, check_ours = plans.stop_of(mirror, generation=0), partial(check_wanted, mirror)
    try:
        refused = jobs.give_configs_back(stop, check_ours=check_ours)
    except PreemptedError:
        message = f"Mirror topic '{mirror.name}' is no longer STOPPED, so its configs belong to the mirror."
        raise LinkEngineError(ErrorCode.ILLEGAL_STATE, message) from None
    transition_errors.settle_refusals(mirror=mirror, refused=refused, now=timezone.now())
    return refused


def is_stopping(mirror: MirrorTopic) -> bool:
    """Return whether the mirror is to be stopped and not to be deleted."""
    return mirror.state == MirrorState.PENDING_STOPPED and mirror.deletion_requested_at is None


def _set_drained(mirror: MirrorTopic, *, at: datetime | None) -> None:
    MirrorTopic.objects.filter(pk=mirror.pk, state=MirrorState.PENDING_STOPPED).update(drained_at=at)


# --- the checks of a promotion against the copy -----------------------------------------------------------------------


def copy_failure(mirror: MirrorTopic) -> dict[ErrorCode, str]:
    """Return the error of a partition that has failed permanently, if any has. Equal log ends do not override it."""
    newest = progress.current(MirrorTopic.objects.filter(pk=mirror.pk), now=timezone.now(), insist=True)
    failed = [row for entry in newest for row in entry.partitions if row.phase == PartitionPhase.FAILED]
    return {ErrorCode(row.error_code): row.error_message for row in failed[:1]}


def unconfirmed_end(mirror: MirrorTopic, grants: Iterable[Grant]) -> dict[ErrorCode, str]:
    """Return why the mirror's last records are not confirmed to be the source's. Call it while no copy worker runs.

    ``grants`` are the released leases; they contain how each owner left its partition. If a mirror's end is not confirmed, the
    next copy worker runs a tail check before it resumes, so the promotion has to wait for it. Markers that a crashed owner may
    have in flight are no reason to wait: the fence of the promotion makes the broker refuse them.
    """
    left = {grant.key: grant.left for grant in grants}
    try:
        found = jobs.failed_tail_checks(
            source=plans.source_address(mirror.link),
            destination=mirror.link.destination.address,
            source_topic=mirror.source_topic,
            mirror_topic=mirror.name,
            left={partition.partition: left.get(partition.key) for partition in plans.assignments_of(mirror)},
        )
    except LinkEngineError as error:
        return {error.code: error.message}
    if not found:
        return {}
    return {
        ErrorCode.WAITING_FOR_LAG: "Both sides end at the same offset, but the mirror's last records were not compared with "
        f"the source's yet (partition {found[0]}). The tail check runs as soon as copying resumes."
    }


# --- the failover of many mirrors -------------------------------------------------------------------------------------


def stop_many(link_id: int) -> None:
    """Fail many mirrors of a link over at once: the same steps, each for all mirrors together.

    Takes only mirrors without a mark, and marks them first. Mirrors that are not finished keep the mark, so the task for a
    single mirror continues with them.
    """
    write_assignments(link_id)
    mirrors = _claim_many(link_id)
    if mirrors:
        _stop_many({mirror.name: mirror for mirror in mirrors})


def _claim_many(link_id: int) -> list[MirrorTopic]:
    """Mark the mirrors that can be stopped together, and return them."""
    eligible = MirrorTopic.objects.filter(
        link=link_id,
        state=MirrorState.PENDING_STOPPED,
        stop_reason=StopReason.FAILOVER,
        fencing_at=None,
        deletion_requested_at=None,
        num_partitions__gt=0,
        holds_copy=True,
        link__gap_filler=GapFiller.MARKERS,
    ).exclude(Q(partitions__stopped_end__isnull=False) | Q(prior_state__in=BECOMING))
    keys = list(eligible.values_list("pk", flat=True))
    if len(keys) < MANY:
        return []
    now = timezone.now()
    eligible.filter(pk__in=keys).update(fencing_at=now)
    return list(MirrorTopic.objects.filter(pk__in=keys, fencing_at=now).with_links().prefetch_related("partitions"))


def _stop_many(mirrors: Mapping[str, MirrorTopic]) -> None:
    with leases.taken_from_many(list(mirrors.values()), wait_s=FAILOVER_RELEASE_S) as taken:
        stops = plans.stops_of(mirrors.values(), generations={key: lease.generation for key, lease in taken.items()})
        grants = [grant for lease in taken.values() for grant in lease.grants]
        opened = Opening()
        known = ends.many_with_known_ends(list(zip(mirrors.values(), stops, strict=True)), grants=grants)
        try:
            stopped = jobs.stop_many(
                [stop for _, stop in known],
                on_fenced=lambda found: _record_many(mirrors, found.items()),
                on_open=opened.note,
                check_ours=partial(_check_many_marks, mirrors),
            )
        except StopTakenOverError:
            _log.warning("stop_many.taken_over", mirrors=len(mirrors))
            return
        except LinkEngineError as error:  # the task for a single mirror recognizes those that were fenced
            _log.warning("stop_many.failed", code=error.code, mirrors=len(mirrors))
            return
    done = list(stopped.items())
    for first in range(0, len(done), PER_COMMIT):
        with transaction.atomic():
            batch = done[first : first + PER_COMMIT]
            for name, result in batch:
                if result.clamped:
                    groups.store_clamped(mirror=mirrors[name], clamped=result.clamped, now=timezone.now())
            note_many_stopped([(mirrors[name], result) for name, result in batch], now=opened.at or timezone.now())


def _check_many_marks(mirrors: Mapping[str, MirrorTopic]) -> None:
    marks = {mirror.fencing_at for mirror in mirrors.values()}
    for marked_at in marks - {None}:
        assert marked_at is not None
        check_marks([mirror.pk for mirror in mirrors.values() if mirror.fencing_at == marked_at], marked_at=marked_at)


def _record_many(mirrors: Mapping[str, MirrorTopic], found: Iterable[tuple[str, MirrorStopped]]) -> None:
    ends.record_many_ends((mirrors[name], stopped) for name, stopped in found)
