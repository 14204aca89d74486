"""Reverses a mirror and its source topic; truncates and restores a stopped topic, which becomes a mirror again.

Each step may be repeated: if a worker crashes, the reconciler continues from the rows. A failover or a deletion may preempt a
task between two steps (``workflows.mirrors``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.actors import ENGINE
from console.links import pairs
from console.mirrors import lineage, reversals, transitions
from console.models import GroupOffset, MirrorPartition, MirrorTopic, RestoreRun
from console.models.mirrors import CONFIGS_REFUSED, RECORDS_LOST
from console.queue import dispatch
from console.reconciling import coverage, gaps, plans, transition_errors
from console.reconciling.plans import fenced_ends, mirrored_ends
from console.workflows import leases
from console.workflows.divergence import (
    ClusterTopic,
    check_common,
    delete_as_decided,
    export_diverged,
    find_divergence,
    log_ranges_of,
)
from console.workflows.mirrors import (
    PreemptedError,
    ThrottledCheck,
    check_unchanged,
    create_topic,
    lock_name,
    note_delay,
    note_failure,
    unless_preempted,
    wait_for_lock,
)
from console.workflows.stopping import blockers_of, note_blockers
from linkengine import jobs
from linkengine.domain.configs import COMPRESSION, PHYSICAL, follows_start
from linkengine.domain.errors import ErrorCode, IllegalTransitionError, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorCreated, RestorePoint, open_transactions
from linkengine.domain.plans import GapFiller, LogRange
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import BECOMING, GapReason, MirrorEvent, MirrorState

# --- reversal ---------------------------------------------------------------------------------------------------------
#
# In a task for each side:
#
#     step  mirror (``close_source``)                              source topic (``take_over_as_mirror``)
#     1     PENDING_SYNCHRONIZE: close the source to producers     PENDING_MIRROR: waits until the other side is STOPPED
#     2     wait until the lag is zero
#     3     PENDING_STOPPED: promote, which fences (``stopping``)
#     4     STOPPED, writable                                      take over: append a marker at the fence's offset
#     5                                                            ACTIVE or PAUSED: mirrors the other topic from there on
#
# Step 4 deletes nothing. Both topics hold the same records below the fence, which takes offset E in the former mirror. The
# takeover appends a marker of its own at E in the former source, so that the offsets stay equal; it fails if another producer
# wrote since.


DRAIN_S = 20.0  # how long a task waits for lag zero; the next task continues
POLL_EVERY_S = 0.4
SETTLE_S = 1.0  # Produce requests that a broker authorized before the new ACL are done by then
RELEASE_S = 2.0
LOCK_WAIT_S = 2.0  # the other side's task holds its lock briefly, every two seconds


def close_source(mirror: MirrorTopic) -> None:
    """Close the source to producers and wait until the mirror has all of its records."""
    if not _is_draining(mirror):
        return
    other = pairs.counterpart(mirror)
    if other is None or other.state != MirrorState.PENDING_MIRROR:
        _end_reversal(mirror, now=timezone.now())
        return
    if _close(mirror, other) and _drain(mirror) and reversals.note_synchronized(mirror=mirror, now=timezone.now()):
        dispatch.send("advance_stop", mirror_id=mirror.pk)


def take_over_as_mirror(mirror: MirrorTopic) -> None:
    """Make the topic a mirror of its former mirror, once that is STOPPED; until then, store what it waits for."""
    if mirror.state != MirrorState.PENDING_MIRROR:
        return
    other = pairs.counterpart(mirror)
    reason = _waits_for(mirror, other)
    if reason:
        if transition_errors.replace(mirror=mirror, errors=reason, now=timezone.now()):
            dispatch.send("reconcile_link", link_id=mirror.link_id)
        return
    assert other is not None
    with unless_preempted(mirror, on_error=partial(note_delay, mirror)):
        _take_over(mirror, other)
        dispatch.send("reconcile_link", link_id=mirror.link_id)


def _take_over(mirror: MirrorTopic, other: MirrorTopic) -> None:
    ends = dict(fenced_ends(other))
    _check_copy(mirror, other, ends)
    check_unchanged(mirror)
    created = take_over(mirror, ends=ends, begins=pairs.first_offsets(other))
    paused = mirror.reversal == MirrorEvent.REVERSE_AND_PAUSE
    event = MirrorEvent.MIRROR_READY_PAUSED if paused else MirrorEvent.MIRROR_READY
    note_mirroring(mirror, created, event=event, starts=ends, now=timezone.now())


def _check_copy(mirror: MirrorTopic, other: MirrorTopic, fences: Mapping[int, int]) -> None:
    """Raise SIDES_DIVERGED unless the other topic has exactly this topic's records up to its fence.

    The two differ if the other topic, while it was the mirror, had FAILED, had foreign records or was found to differ, and was
    failed over nevertheless; or if its cluster has lost the end of the copy since. Only this topic has those records then.
    """
    if pairs.was_valid_copy(other) and mirrored_ends(other) == fenced_ends(other):
        _check_fences(mirror, other, fences)
        return
    raise LinkEngineError(
        ErrorCode.SIDES_DIVERGED,
        f"The other side's copy of '{mirror.name}' was stopped with records that are not this topic's, or may not be, so this "
        "topic cannot become its mirror without losing records. Fail over here to make it writable again; truncate-and-restore "
        "then exports the diverged records.",
    )


def _check_fences(mirror: MirrorTopic, other: MirrorTopic, fences: Mapping[int, int]) -> None:
    there, by_markers = plans.source_address(mirror.link), other.link.gap_filler == GapFiller.MARKERS
    epochs = pairs.fence_epochs(other)
    lost = jobs.lost_fences(there, mirror.source_topic, fences=fences, epochs=epochs, by_markers=by_markers)
    if lost:
        raise LinkEngineError(
            ErrorCode.SIDES_DIVERGED,
            f"The other side's copy of '{mirror.name}' lost records of partition {lost[0]} since it was stopped, or may have. "
            "This topic still has them, so it does not become that topic's mirror. Fail over here to make it writable again; "
            "truncate-and-restore on the other side then makes that topic a mirror of this one.",
        )


def take_over(mirror: MirrorTopic, *, ends: Mapping[int, int], begins: Mapping[int, int] | None = None) -> MirrorCreated:
    """Take the topic over at the offsets of the other side's fences, and store the markers that this appends as gaps.

    ``begins``: the first offsets that the other side ever had, to refuse a topic with older records (``take_over_mirror``). A
    restore, which has exported these records, does not set it.
    """
    keep_compression(mirror)
    with leases.taken(mirror, wait_s=RELEASE_S) as taken:
        created = jobs.take_over_mirror(plans.takeover_of(mirror, ends=ends, begins=begins, generation=taken.generation))
    markers = {number: (Gap(OffsetRange(end, end + 1), GapReason.TRANSACTION_MARKER),) for number, end in ends.items()}
    gaps.store_gaps(mirror=mirror, gaps=markers, now=timezone.now())
    return created


def keep_compression(mirror: MirrorTopic) -> None:
    """Store the topic's own compression.type. Mirrors use ``producer``, and a stopped mirror gets its own value back.

    Safe to repeat: the value that copying needs is never stored as the topic's own.
    """
    topic = jobs.find_topic(mirror.link.destination.address, mirror.name)
    own = topic.configs.get(COMPRESSION) if topic else PHYSICAL[COMPRESSION]
    if own == PHYSICAL[COMPRESSION]:
        return
    others = {name: value for name, value in mirror.config_overrides.items() if name != COMPRESSION}
    mirror.config_overrides = others | ({COMPRESSION: own} if own else {})
    MirrorTopic.objects.filter(pk=mirror.pk).update(config_overrides=mirror.config_overrides)


def note_mirroring(
    mirror: MirrorTopic, made: MirrorCreated, *, event: MirrorEvent, starts: Mapping[int, int], now: datetime
) -> None:
    """Make the row a mirror that copies the other side's records from ``starts`` on.

    Raises PreemptedError if it was failed over in between.
    """
    facts: dict[str, Any] = {
        **reversals.initial_values(),
        "source_topic_id": made.source_topic_id,
        "mirror_topic_id": made.mirror_topic_id,
        "num_partitions": made.partitions,
        "read_only": made.read_only,
        "source_configs": made.source_configs,
        **_cleaning(mirror, made, now=now),
        "holds_copy": True,
        "reversal": "",
    }
    mirror.num_partitions = made.partitions
    mirror.ensure_partitions()
    try:
        with transaction.atomic():
            ends = dict.fromkeys(("stopped_end", "fenced_end", "fence_epoch", "source_epoch", "source_epoch_end"))
            MirrorPartition.objects.filter(mirror=mirror).update(**ends, **reversals.no_source_seen())
            GroupOffset.objects.filter(mirror=mirror).delete()  # of an earlier mirror, so without meaning now
            coverage.keep_for(mirror=mirror, made=made, now=now)
            transition_errors.clear(mirrors=[mirror], now=now)
            transition_errors.end(mirror=mirror, codes=[CONFIGS_REFUSED], now=now)  # the configs are a mirror's now
            moved = transitions.apply_event(mirror=mirror, event=event, by=ENGINE, now=now, **facts)
            lineage.open_lineage(mirror=moved, starts=starts, now=now)
    except IllegalTransitionError:  # failed over since
        raise PreemptedError from None


def _cleaning(mirror: MirrorTopic, made: MirrorCreated, *, now: datetime) -> dict[str, Any]:
    """Return the row's fields about compaction, for the mirror that begins."""
    was_compacted = plans.is_compacting(mirror, made.source_configs) or _was_compacted(mirror, made)
    nothing = {"cleaned_until": None, "cleaned_kept_ms": None}
    stays = mirror.mirror_topic_id == made.mirror_topic_id
    cleaned = gaps.cleaning_fields_of_rejoined(mirror, made.source_configs, now=now) if stays and was_compacted else nothing
    return {"was_compacted": was_compacted, **cleaned}


def _was_compacted(mirror: MirrorTopic, made: MirrorCreated) -> bool:
    """Return whether either side was compacted before; False for a topic that was created again, since it is copied anew."""
    if mirror.mirror_topic_id != made.mirror_topic_id:
        return False
    other = pairs.counterpart(mirror)
    return mirror.was_compacted or (other is not None and other.was_compacted)


def _close(mirror: MirrorTopic, other: MirrorTopic) -> bool:
    """Close the source to producers, and open it again if it was failed over in between. Return whether it is closed.

    A stop of the source waits for the lock that is held here (``preempting``) and opens the topic afterwards, also if this
    worker crashes.
    """
    closed = False
    with wait_for_lock(lock_name(other.pk), wait_s=LOCK_WAIT_S) as acquired:
        if not acquired:
            return False
        with unless_preempted(other, on_error=lambda error: note_failure(mirror, error, fatal=False, now=timezone.now())):
            check_unchanged(other)
            jobs.close_topic(plans.source_address(mirror.link), mirror.source_topic)
            check_unchanged(other)
            closed = True
    return closed


def _drain(mirror: MirrorTopic) -> bool:
    """Return whether nothing was left to copy at two checks with a pause between them."""
    deadline, empty_since = time.monotonic() + DRAIN_S, None
    while time.monotonic() < deadline:
        blockers = blockers_of(mirror)
        note_blockers(mirror, blockers, now=timezone.now())
        if blockers:
            empty_since = None
        elif empty_since is None:
            empty_since = time.monotonic()
        elif time.monotonic() - empty_since >= SETTLE_S:
            return True
        time.sleep(POLL_EVERY_S)
        fresh = plans.load(mirror.pk)
        if fresh is None or not _is_draining(fresh):
            return False
        mirror = fresh
    return False


def _waits_for(mirror: MirrorTopic, other: MirrorTopic | None) -> dict[str, str]:
    """Return what the topic waits for before it can become a mirror, by error code."""
    if other is None:
        message = (
            f"The mirror of '{mirror.name}' no longer exists, so there is nothing to mirror. Fail over to make this "
            "topic writable again."
        )
        return {ErrorCode.REMOTE_MIRROR_NOT_FOUND_ERROR: message}
    if other.state != MirrorState.STOPPED:
        message = f"Topic '{other.name}' on the other side is {other.state}; this topic becomes its mirror once it is STOPPED."
        return {ErrorCode.WAITING_FOR_OTHER_SIDE: message}
    return {}


def _end_reversal(mirror: MirrorTopic, *, now: datetime) -> None:
    """End the reversal and resume mirroring.

    The source is opened here if no row has it as a mirror; otherwise the stop of that row opens it.
    """
    if not pairs.mirrors_of_names(mirror.link.source_cluster_id, [mirror.source_topic]).exists():
        try:
            jobs.open_if_closed(plans.source_address(mirror.link), mirror.source_topic)
        except LinkEngineError as error:
            note_failure(mirror, error, fatal=False, now=now)
            return
    transitions.apply_event(
        mirror=mirror, event=MirrorEvent.REVERSAL_ENDED, by=ENGINE, now=now, detail="the other side is gone", reversal=""
    )
    dispatch.send("reconcile_link", link_id=mirror.link_id)


def _is_draining(mirror: MirrorTopic) -> bool:
    return mirror.state == MirrorState.PENDING_SYNCHRONIZE and mirror.deletion_requested_at is None


# --- restore ----------------------------------------------------------------------------------------------------------
#
#     PENDING_SETUP_FOR_RESTORE  close the topic to producers and wait for open transactions to end; find, per partition, the
#                                first offset that the two sides do not have in common (the restore point), and store it
#     PENDING_RESTORE_MIRROR     if the topics diverged: export the diverged records (``workflows.divergence``), delete the
#                                topic, create it anew and seed its head
#                                if not (``in_place``): take the topic over as it is (``take_over``)
#
# No record can be added after the topic is closed, so the points are final but for retention and super users. ``RestoreRun``
# says which steps are done. ``deletion_decided_at`` is the point of no return: a failover before it keeps the topic, a failover
# after it first finishes the deletion, since a delayed DeleteTopics request may still be in flight.


def run_restore(mirror: MirrorTopic) -> None:
    """Advance a restore as far as possible."""
    run = mirror.restores.filter(finished_at=None).first()
    if run is None:
        return
    with unless_preempted(mirror, on_error=partial(note_delay, mirror)):
        if mirror.state == MirrorState.PENDING_SETUP_FOR_RESTORE:
            mirror = _agree(mirror, run, now=timezone.now())
        if mirror.state == MirrorState.PENDING_RESTORE_MIRROR:
            _restore(mirror, run)
        dispatch.send("reconcile_link", link_id=mirror.link_id)


def _agree(mirror: MirrorTopic, run: RestoreRun, *, now: datetime) -> MirrorTopic:
    """Find the first offset of each partition that is not common, and store it before anything is changed because of it."""
    held = _close_diverged(mirror)
    other = pairs.counterpart(mirror)
    if other is not None and other.state != MirrorState.STOPPED:
        raise LinkEngineError(
            ErrorCode.WAITING_FOR_OTHER_SIDE,
            f"Topic '{other.name}' on the other side is {other.state}, and one of the two has to stay as it is. Fail over "
            "either of them to keep its records.",
        )
    if not pairs.have_common_part(mirror, other):
        raise LinkEngineError(
            ErrorCode.REMOTE_MIRROR_NOT_FOUND_ERROR,
            f"The other side no longer has a stopped mirror of '{mirror.name}', so it is unknown up to which offset both are "
            "equal. Fail over to make this topic writable again.",
        )
    here = ClusterTopic(mirror.link.destination.address, mirror.name)
    there = ClusterTopic(plans.source_address(mirror.link), mirror.source_topic)
    parts = list(pairs.common_parts(mirror, other))
    found = find_divergence(here, there, parts=parts, held=held)
    run.diverged_topic_id, run.source_topic_id, equal_until = found.here_id, found.there_id, None
    run.parts = [part.to_json() for part in parts]
    if other is not None and (other.source_topic_id, other.mirror_topic_id) == (found.here_id, found.there_id):
        equal_until = _equal_until(other, found.points)
    if equal_until is None:
        _check_deletable(mirror)
    return _note_agreed(mirror, run, found.points, equal_until=equal_until, now=now)


def _check_deletable(mirror: MirrorTopic) -> None:
    """Raise TOPIC_DELETION_DISABLED if the cluster deletes no topics. Nothing has been changed so far."""
    if jobs.deletes_topics(mirror.link.destination.address) is False:
        raise LinkEngineError(
            ErrorCode.TOPIC_DELETION_DISABLED,
            f"A restore deletes topic '{mirror.name}' and creates it again, and its cluster deletes no topics "
            "(delete.topic.enable=false). Fail over to make the topic writable again, or set delete.topic.enable=true on the "
            "brokers and controllers.",
        )


def _close_diverged(mirror: MirrorTopic) -> tuple[str, Sequence[LogRange]]:
    """Close the topic to producers. Returns its id and its log ranges, which are final. Raises WAITING_FOR_TRANSACTIONS."""
    here = mirror.link.destination.address
    check_unchanged(mirror)
    jobs.close_topic(here, mirror.name)
    keep_compression(mirror)
    time.sleep(SETTLE_S)
    topic_id, held = log_ranges_of(here, mirror.name, closed=True)
    open_in = open_transactions(held)
    if open_in:
        raise LinkEngineError(
            ErrorCode.WAITING_FOR_TRANSACTIONS,
            f"A transaction is still open on '{mirror.name}', partition {open_in[0]}. It ends at its producer's transaction "
            "timeout at the latest; until then it is unknown which records are committed.",
        )
    return topic_id, held


def _equal_until(other: MirrorTopic, points: tuple[RestorePoint, ...]) -> datetime | None:
    """Return when both sides were last equal, if the other side's fence is exactly at this topic's end; None otherwise.

    A restore of the other side that was interrupted afterwards has changed its ``state_since``.
    """
    if not pairs.was_stopped_as_copy(other):
        return None
    fenced = dict(fenced_ends(other))
    if any(not point.end == point.common == fenced.get(point.partition, 0) for point in points):
        return None
    stops = other.transitions.filter(to_state=MirrorState.PENDING_STOPPED)
    step = stops.exclude(from_state__in=[*BECOMING, MirrorState.PENDING_STOPPED]).first()
    return step.at if step else other.created_at


def _note_agreed(
    mirror: MirrorTopic, run: RestoreRun, points: tuple[RestorePoint, ...], *, equal_until: datetime | None, now: datetime
) -> MirrorTopic:
    with transaction.atomic():
        RestoreRun.objects.filter(pk=run.pk).update(
            points=[{**asdict(point), "records": None} for point in points],
            agreed_at=now,
            in_place=equal_until is not None,
            diverged_topic_id=run.diverged_topic_id,
            source_topic_id=run.source_topic_id,
            parts=run.parts,
        )
        facts = {**reversals.initial_values(), "holds_copy": False, "start_spec": "earliest"}
        moved = transitions.apply_event(mirror=mirror, event=MirrorEvent.OFFSETS_AGREED, by=ENGINE, now=now, **facts)
        reversals.forget_ends(mirror, complete_at=equal_until)
    run.refresh_from_db()
    return moved


def _restore(mirror: MirrorTopic, run: RestoreRun) -> None:
    check_unchanged(mirror)
    if run.in_place:
        mirror.mirror_topic_id, mirror.source_topic_id = run.diverged_topic_id, run.source_topic_id
        if follows_start(mirror.link.sync_include):  # records that the new source does not have are deleted here, too
            export_diverged(mirror, run, check_owner=ThrottledCheck(mirror))
        check_common(mirror, run)
        made = take_over(mirror, ends={point["partition"]: point["common"] for point in run.points})
    else:
        export_diverged(mirror, run, check_owner=ThrottledCheck(mirror))
        decided_at = timezone.now()
        if not _decide_deletion(mirror, run, now=decided_at):
            raise PreemptedError
        delete_as_decided(mirror, run, decided_at=decided_at)
        made = create_topic(mirror)
    _note_restored(mirror, run, made, now=timezone.now())


def _decide_deletion(mirror: MirrorTopic, run: RestoreRun, *, now: datetime) -> bool:
    """Decide that the diverged topic is deleted. False if a failover came first, which keeps the topic.

    A failover after this must not open this topic again: a delayed delete request may still arrive. The row's topic id is
    cleared, so that the topic created next is recognized by its mirror configs until its id is stored.
    """
    facts = {"retry_at": None, "mirror_topic_id": ""}
    with transaction.atomic():
        if not MirrorTopic.objects.filter(pk=mirror.pk, state=MirrorState.PENDING_RESTORE_MIRROR).update(**facts):
            return False
        RestoreRun.objects.filter(pk=run.pk).update(deletion_decided_at=now)
    return True


def _note_restored(mirror: MirrorTopic, run: RestoreRun, made: MirrorCreated, *, now: datetime) -> None:
    if not run.in_place:
        jobs.clear_mirror(settings.REDIS_URL, plans.link_key(mirror.link), mirror_id=plans.mirror_key(mirror))
        with transaction.atomic():
            mirror.gaps.all().delete()  # of the deleted log
            if run.is_set_aside:
                # no other code does, and the new ledger contains no loss
                transition_errors.end(mirror=mirror, codes=[RECORDS_LOST], now=now)
            MirrorPartition.objects.filter(mirror=mirror, partition__gte=made.partitions).delete()
        gaps.note_head(mirror=mirror, seeded=made.seeded, now=now)
    starts = {point["partition"]: point["common"] for point in run.points} if run.in_place else dict(made.seeded)
    with transaction.atomic():  # a finished run is not continued, so both are stored together
        note_mirroring(mirror, made, event=MirrorEvent.MIRROR_READY, starts=starts, now=now)
        RestoreRun.objects.filter(pk=run.pk).update(finished_at=now)
