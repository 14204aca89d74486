"""Promote and failover: takes a mirror from PENDING_STOPPED to STOPPED.

    step  promote                                               failover
    1     wait until nothing blocks it: lag, configs, groups    assign the partitions to no copy worker
    2     set ``drained_at``; assign the partitions to no       preempt a set-up or restore; finish or revert a deletion
          copy worker                                           that it has decided
    3     take the leases within 10 s, check step 1 again       set the mark (``fencing_at``)
    4     set the mark (``fencing_at``)                         take the leases; after 1 s continue without the missing ones
    5     per partition: append the fence (a marker with higher epochs); store the mirrored ends
    6     clamp consumer groups to the ends, make the topic writable, restore the source's configs, become STOPPED

Copy workers release the leases of partitions that are no longer assigned to them. Up to the mark a promotion can return to
copying (``drained_at`` is removed). From the mark on it cannot: the fence is a batch in the mirror that the source does not
have. ``linkengine.jobs.stopping`` carries out steps 5 and 6.

From the mark on all functions take a list of mirrors of a link. A promotion is a list of one, and so is a failover, unless a
link has many at the same time (``due_tasks.stopped_together``). Of those, a mirror that would delay the others keeps its mark,
and is stopped in a list of its own.

A worker may crash at any step; the reconciler sends the task again, and each step can be repeated. Two workers may carry out
the same stop, since a suspended process loses its lock. The mark is therefore also a token: setting it is a compare-and-swap,
and a worker continues only while the row has its own mark (``_still_owned``). ``reconciling.due_tasks`` decides how often a
promotion checks step 1.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from console.actors import ENGINE
from console.mirrors import lineage, progress, transitions
from console.models import MirrorPartition, MirrorTopic
from console.queue import dispatch
from console.reconciling import due_tasks, groups, plans, transition_errors
from console.verification.report_actions import write_stop_reports
from console.workflows import leases
from console.workflows.divergence import finish_decided_deletion
from console.workflows.leases import publish_or_request_assignments
from console.workflows.mirrors import PreemptedError, check_unchanged, follow_source, note_failure, preempting
from console.workflows.syncs import group_blockers
from linkengine import jobs
from linkengine.domain.configs import NEEDED
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import ClampedOffset
from linkengine.domain.mirrorjobs import MirrorStop, MirrorStopped, RefusedStep
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason
from linkengine.domain.workers import Grant

DRAIN_S = 3.0  # how long a task repeats the check; later checks are further apart and in tasks of their own
PROMOTE_RELEASE_S = 10.0  # copy workers release their leases within a second; the lease of a crashed worker expires after four
FAILOVER_RELEASE_S = 1.0
PER_COMMIT = 100  # mirrors that are stopped together, so that other writers are not blocked for long
_WAITING = {
    ErrorCode.WAITING_FOR_LAG,
    ErrorCode.WAITING_FOR_CONFIGS,
    ErrorCode.WAITING_FOR_PARTITIONS,
    ErrorCode.WAITING_FOR_GROUPS,
    ErrorCode.CONSUMER_GROUP_IN_USE_ERROR,
}
_NO_ERROR: Mapping[str, Any] = MappingProxyType(
    {
        "error_code": "",
        "error_message": "",
        "error_since": None,
        "retry_at": None,
        "drained_at": None,
        "restoring_configs": False,
    }
)
_log = structlog.get_logger(__name__)


def promote_or_fail_over(mirror: MirrorTopic) -> None:
    """Advance the promotion or failover of a mirror as far as possible."""
    if mirror.stop_reason == StopReason.FAILOVER or mirror.fencing_at is not None:
        _fail_over(mirror)
    else:
        _promote(mirror)


def stop_many_lock(link_id: int) -> str:
    """Return the name of the lock for stopping many mirrors of a link together."""
    return f"stop-many:{link_id}"


def _promote(mirror: MirrorTopic) -> None:
    deadline, checks = time.monotonic() + DRAIN_S, mirror.retry_count
    # After the mark this loop must not run: the fence makes the mirror longer than its source, so the lag check would fail.
    while is_stopping(mirror) and mirror.stop_reason == StopReason.PROMOTE and mirror.fencing_at is None:
        blockers = blockers_of(mirror)
        note_blockers(mirror, blockers, now=timezone.now())
        if blockers and mirror.drained_at is not None:
            _set_drained(mirror, at=None)  # set by a worker that crashed before its second check: resume copying
        if not blockers:
            _release_and_stop(mirror)
        elif not blockers.keys() <= _WAITING:
            code, message = next((c, m) for c, m in blockers.items() if c not in _WAITING)
            note_failure(mirror, LinkEngineError(code, message), fatal=False, now=timezone.now())
            return
        wait_s, checks = due_tasks.promote_pause_s(mirror, checks), checks + 1
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
    publish_or_request_assignments(mirror.link_id)
    with leases.taken(mirror, wait_s=PROMOTE_RELEASE_S) as taken:
        blockers = _last_check(mirror, taken)
        note_blockers(mirror, blockers, now=timezone.now())
        if blockers:
            _set_drained(mirror, at=None)  # resume copying
        elif _mark([mirror], drained_at=drained_at):  # fails if another worker has resumed copying since
            _stop([mirror], {mirror.pk: taken})


def _last_check(mirror: MirrorTopic, taken: leases.Taken) -> dict[ErrorCode, str]:
    if not taken.complete:
        return {ErrorCode.WAITING_FOR_LAG: "The copy workers have not released all partitions yet."}
    return blockers_of(mirror) or unconfirmed_end(mirror, taken.grants)


def _fail_over(mirror: MirrorTopic) -> None:
    """Fence whatever the state of the source: for a failover, or for a stop that has been marked before."""
    publish_or_request_assignments(mirror.link_id)
    with preempting(mirror) as found:
        if found is not None and is_stopping(found) and finish_decided_deletion(found):
            _take_leases_and_stop([found])


def stop_many(link_id: int) -> None:
    """Fail over the mirrors of a link that can be stopped together."""
    publish_or_request_assignments(link_id)
    failing_over = MirrorTopic.objects.filter(link=link_id, state=MirrorState.PENDING_STOPPED, stop_reason=StopReason.FAILOVER)
    mirrors = list(failing_over.filter(fencing_at=None).with_links().prefetch_related("partitions"))
    together = due_tasks.stopped_together(mirrors)
    _take_leases_and_stop([mirror for mirror in mirrors if mirror.pk in together])


def _take_leases_and_stop(mirrors: Sequence[MirrorTopic]) -> None:
    marked = _mark(mirrors)
    if marked:
        with leases.taken_from_many(marked, wait_s=FAILOVER_RELEASE_S) as taken:
            _stop(marked, taken)


def _mark(mirrors: Sequence[MirrorTopic], *, drained_at: datetime | None = None) -> list[MirrorTopic]:
    """Mark stops and return those that were marked. There is no way back to copying after the mark.

    A row is marked if it still has the values that were read, since another worker may have marked it. With ``drained_at``, it
    must also have this value, since another worker may have resumed copying.
    """
    now, marked = timezone.now(), list[MirrorTopic]()
    as_read: dict[tuple[str, datetime | None], list[MirrorTopic]] = defaultdict(list)
    for mirror in mirrors:
        as_read[mirror.stop_reason, mirror.fencing_at].append(mirror)
    stopping = MirrorTopic.objects.filter(state=MirrorState.PENDING_STOPPED, deletion_requested_at=None)
    if drained_at is not None:
        stopping = stopping.filter(drained_at=drained_at)
    for (reason, fencing_at), group in as_read.items():
        keys = [mirror.pk for mirror in group]
        number = stopping.filter(pk__in=keys, stop_reason=reason, fencing_at=fencing_at).update(fencing_at=now)
        if 0 < number < len(group):
            known = set(MirrorTopic.objects.filter(pk__in=keys, fencing_at=now).values_list("pk", flat=True))
            group = [mirror for mirror in group if mirror.pk in known]  # noqa: PLW2901 - the others have changed
        marked += group if number else []
    for mirror in marked:
        mirror.fencing_at = now
    return marked


def _stop(mirrors: Sequence[MirrorTopic], taken: Mapping[int, leases.Taken]) -> None:
    """Fence all partitions of marked mirrors of a link, open the topics and store the results."""
    by_topic, opened = {mirror.name: mirror for mirror in mirrors}, dict[str, datetime]()
    known = _plans_of(mirrors, taken)
    results = jobs.stop_mirrors(
        known,
        on_fenced=partial(_record_ends, by_topic),
        on_clamped=partial(_store_clamped, by_topic),
        on_open=lambda topics: opened.update(dict.fromkeys(topics, timezone.now())),
        still_owned=partial(_still_owned, by_topic),
    )
    now = timezone.now()
    # Before the mirrors become STOPPED: an attempt after a crash may find all groups in place, and has nothing to store then.
    _store_clamped(by_topic, {topic: result.clamped for topic, result in results.items() if isinstance(result, MirrorStopped)})
    # by (time at which producers were admitted, detail of the transition): mirrors with equal values are stored together
    by_opening: dict[tuple[datetime, str], dict[MirrorTopic, MirrorStopped | None]] = defaultdict(dict)
    for topic, result in results.items():
        if isinstance(result, MirrorStopped):
            by_opening[opened[topic], ""][by_topic[topic]] = result
        elif result.code == ErrorCode.MIRROR_TOPIC_MISSING:  # a topic that does not exist needs no fence
            by_opening[now, result.message][by_topic[topic]] = None
        elif _with_own_mark([by_topic[topic]]):  # else another worker may have stopped it, and the error would stay
            note_failure(by_topic[topic], result, fatal=False, now=now)
    for (writable_at, detail), stopped in by_opening.items():
        rows = list(stopped.items())
        for first in range(0, len(rows), PER_COMMIT):
            part = dict(rows[first : first + PER_COMMIT])
            note_stopped(part, now=writable_at, source_ends=_source_ends(part), detail=detail)
    if by_opening:
        dispatch.send("reconcile_link", link_id=mirrors[0].link_id)


def _record_ends(by_topic: Mapping[str, MirrorTopic], found: Mapping[str, MirrorStopped]) -> None:
    """Store the ends of mirrors whose rows still have the mark of this process.

    The rows stay locked until the ends are stored. If this process was suspended, another worker may have stopped a mirror, and
    the mirror may be copied again. Its next stop would take the ends stored here for its own fences, and write none.
    """
    with transaction.atomic():
        own = _with_own_mark([by_topic[topic] for topic in found], lock=True)
        plans.record_ends((mirror, found[mirror.name]) for mirror in own)


def _store_clamped(by_topic: Mapping[str, MirrorTopic], found: Mapping[str, Sequence[ClampedOffset]]) -> None:
    groups.store_clamped({by_topic[topic]: clamped for topic, clamped in found.items()}, now=timezone.now())


def _plans_of(mirrors: Sequence[MirrorTopic], taken: Mapping[int, leases.Taken]) -> list[MirrorStop]:
    """Return the engine's plans.

    A mirror whose topic cannot be determined now is left out, with its error stored. If the destination's address cannot be
    built, all of them are.
    """
    partitions: dict[int, int | None] = {}
    for mirror in mirrors:
        try:
            partitions[mirror.pk] = _note_topic(mirror)
        except LinkEngineError as error:
            note_failure(mirror, error, fatal=False, now=timezone.now())
    found = [mirror for mirror in mirrors if mirror.pk in partitions]
    generations = {mirror.pk: taken[mirror.pk].generation for mirror in found}
    try:
        stops = plans.stops_of(found, generations=generations, partitions=partitions)
    except LinkEngineError as error:
        for mirror in found:
            note_failure(mirror, error, fatal=False, now=timezone.now())
        return []
    grants = [grant for lease in taken.values() for grant in lease.grants]
    return plans.with_known_ends(list(zip(found, stops, strict=True)), grants=grants)


def _note_topic(mirror: MirrorTopic) -> int | None:
    """Store which topic an interrupted set-up has created, and return its partition count.

    None if the row shows that the set-up was complete, or if there is no such topic. The topic is recognized by its mirror
    configs; this is stored because the stop removes them next.
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


def _source_ends(mirrors: Iterable[MirrorTopic]) -> dict[int, dict[int, int]]:
    """Return the log ends of the sources of promotions after the fence, by primary key.

    Producers may have written to a source since the last check.
    """
    found: dict[int, dict[int, int]] = {}
    for mirror in mirrors:
        if mirror.stop_reason != StopReason.PROMOTE:
            continue
        try:
            there = plans.source_address(mirror.link)
            found[mirror.pk] = jobs.topic_ends(there, mirror.source_topic, topic_id=mirror.source_topic_id)
        except LinkEngineError as error:
            _log.warning("stop.source_not_seen", mirror=mirror.name, code=error.code)
    return found


def _still_owned(by_topic: Mapping[str, MirrorTopic], topics: Collection[str]) -> set[str]:
    """Return the topics whose stop still has the mark of this process. Another worker continues the others."""
    mirrors = [by_topic[topic] for topic in topics]
    own = {mirror.name for mirror in _with_own_mark(mirrors)}
    if len(own) < len(topics):
        _log.warning("stop.taken_over", mirrors=sorted(set(topics) - own)[:10], number=len(topics) - len(own))
    return own


def _with_own_mark(mirrors: Sequence[MirrorTopic], *, lock: bool = False) -> list[MirrorTopic]:
    """Return the mirrors that still have the mark of this process; ``lock``: until the end of the caller's transaction."""
    rows = MirrorTopic.objects.filter(pk__in=[mirror.pk for mirror in mirrors], state=MirrorState.PENDING_STOPPED)
    rows = rows.select_for_update().order_by("pk") if lock else rows
    marks = dict(rows.values_list("pk", "fencing_at"))
    return [mirror for mirror in mirrors if mirror.pk in marks and marks[mirror.pk] == mirror.fencing_at]


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
    """Store what a promotion or reversal waits for, unless its state has changed: nothing would clear the reasons then."""
    if not MirrorTopic.objects.filter(pk=mirror.pk, state=mirror.state, stop_reason=mirror.stop_reason).exists():
        return
    errors = {str(code): message for code, message in blockers.items()}
    if transition_errors.replace(mirror=mirror, errors=errors, now=now):
        dispatch.send("reconcile_link", link_id=mirror.link_id)


def note_stopped(
    stopped: Mapping[MirrorTopic, MirrorStopped | None],
    *,
    now: datetime,
    source_ends: Mapping[int, Mapping[int, int]] = MappingProxyType({}),
    detail: str = "",
) -> None:
    """Set mirrors to STOPPED and write their failover reports, in few statements.

    Mirrors that are stopped already, or whose stop another worker continues (its mark differs), are left as they are.
    ``now`` is when producers were admitted. ``stopped`` has the engine's results, None for topics that do not exist.
    ``source_ends`` are by primary key, those of promotions.
    """
    queried_at = timezone.now()
    with transaction.atomic():
        own = _with_own_mark(list(stopped), lock=True)
        facts = {"by": ENGINE, "now": now, "detail": detail, **_NO_ERROR}
        moved = transitions.apply_to_many(mirrors=own, event=MirrorEvent.FENCED, **facts)
        results = {mirror: stopped[mirror] for mirror in moved}
        refused = {mirror: result.refused if result is not None else () for mirror, result in results.items()}
        transition_errors.clear(mirrors=moved, now=now)
        _clear_partitions(moved)
        write_stop_reports(mirrors=moved, now=now, source_ends=source_ends, queried_at=queried_at, refused=refused)
        kept = [mirror for mirror, result in results.items() if result is not None and not result.restores_configs]
        transition_errors.note_refusals({mirror: refused[mirror] for mirror in moved if mirror not in kept}, now=now)
        lineage.close_many(moved, now=now)
    if len(moved) < len(stopped):
        _log.info("stop.done_already", mirrors=len(stopped) - len(moved))


def _clear_partitions(mirrors: Sequence[MirrorTopic]) -> None:
    """Clear the last errors of the partitions, which are no longer copied. One statement."""
    failed = MirrorPartition.objects.filter(mirror__in=mirrors).exclude(error_code="")
    failed.update(error_code="", error_message="")


def restore_source_configs(mirror: MirrorTopic | None) -> tuple[RefusedStep, ...]:
    """Retry the configs that the destination refused when the mirror was stopped. Returns what it refuses now.

    ``mirror``: None if another task has its lock.
    """
    if mirror is None or mirror.state != MirrorState.STOPPED or mirror.deletion_requested_at is not None:
        raise LinkEngineError(ErrorCode.ILLEGAL_STATE, "The mirror topic is changing. Refresh its state and try again.")
    stop, check_owner = plans.stop_of(mirror, generation=0), partial(check_unchanged, mirror)
    try:
        refused = jobs.restore_source_configs(stop, check_owner=check_owner)
    except PreemptedError:
        message = f"Mirror topic '{mirror.name}' is no longer STOPPED, so no config was changed."
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

    ``grants`` are the released leases; they contain the end with which each owner released its partition. If a mirror's
    end is not confirmed, the next copy worker runs a tail check before it resumes, so the promotion has to wait for it. Markers
    that a crashed owner may have in flight are no reason to wait: the fence of the promotion makes the broker refuse them.
    """
    released = {grant.key: grant.last_release for grant in grants}
    try:
        found = jobs.failed_tail_checks(
            source=plans.source_address(mirror.link),
            destination=mirror.link.destination.address,
            source_topic=mirror.source_topic,
            mirror_topic=mirror.name,
            released={partition.partition: released.get(partition.key) for partition in plans.assignments_of(mirror)},
        )
    except LinkEngineError as error:
        return {error.code: error.message}
    if not found:
        return {}
    return {
        ErrorCode.WAITING_FOR_LAG: "Both sides end at the same offset, but the mirror's last records were not compared with "
        f"the source's yet (partition {found[0]}). The tail check runs as soon as copying resumes."
    }
