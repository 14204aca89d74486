"""Reversals on real clusters: close the source, drain, swap; then the former source becomes the mirror.

The mirror's side: PENDING_SYNCHRONIZE until nothing is left to copy, then a promotion (``stopping``). The other side:
PENDING_MIRROR until that promotion has fenced, then it is taken over where it stands. Every step may be repeated; a worker that
dies leaves rows from which the reconciler goes on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import structlog
from celery import shared_task
from django.db import transaction
from django.utils import timezone

from console import dispatch, lineage, pairs, store
from console.actions import reversing, transitions
from console.actors import ENGINE
from console.models import GroupOffset, MirrorPartition, MirrorTopic
from console.models.mirrors import CONFIGS_REFUSED
from console.reconciling import coverage, gaps, plans, sampling, tombstones, troubles
from console.reconciling.ends import fenced_ends, mirrored_ends
from console.tasks import leases
from console.tasks.mirrors import note_delay, note_failure
from console.tasks.overtaking import OvertakenError, check_wanted, hold_name, patient_hold, unless_overtaken
from console.tasks.stopping import blockers_of, note_blockers
from linkengine import jobs
from linkengine.domain.configs import COMPRESSION, PHYSICAL
from linkengine.domain.errors import ErrorCode, IllegalTransitionError, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorCreated
from linkengine.domain.plans import GapFiller
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason, MirrorEvent, MirrorState

DRAIN_S = 20.0  # of watching in one task; the next one goes on
LOOK_EVERY_S = 0.4
SETTLE_S = 1.0  # a Produce that a broker let in before the rule came is over by then
RELEASE_S = 2.0
HOLD_WAIT_S = 2.0  # the other side's task looks for a moment every two seconds whether its turn has come
_log = structlog.get_logger(__name__)


@shared_task(name="advance_reversal")
def advance_reversal(*, mirror_id: int, **_: Any) -> None:
    """Close the source to producers and wait until the mirror holds all of it."""
    with store.hold(f"reverse:{mirror_id}") as ours:
        mirror = plans.load(mirror_id) if ours else None
        if mirror is None or not _is_draining(mirror):
            return
        other = pairs.counterpart(mirror)
        if other is None or other.state != MirrorState.PENDING_MIRROR:
            _end_reversal(mirror, now=timezone.now())
            return
        if _close(mirror, other) and _drain(mirror) and reversing.note_synchronized(mirror=mirror, now=timezone.now()):
            dispatch.send("advance_stop", mirror_id=mirror_id)


@shared_task(name="turn_into_mirror")
def turn_into_mirror(*, mirror_id: int, **_: Any) -> None:
    """Take the former source over as a mirror, once its former mirror was fenced."""
    with store.hold(hold_name(mirror_id)) as ours:
        mirror = plans.load(mirror_id) if ours else None
        if mirror is None or mirror.state != MirrorState.PENDING_MIRROR:
            return
        other = pairs.counterpart(mirror)
        reason = _not_yet(mirror, other)
        if reason:
            if troubles.replace(mirror=mirror, errors=reason, now=timezone.now()):
                dispatch.send("reconcile_link", link_id=mirror.link_id)
            return
        assert other is not None
        with unless_overtaken(mirror, otherwise=partial(note_delay, mirror)):
            _turn(mirror, other)
            dispatch.send("reconcile_link", link_id=mirror.link_id)


def _turn(mirror: MirrorTopic, other: MirrorTopic) -> None:
    ends = dict(fenced_ends(other))
    _check_copy(mirror, other, ends)
    check_wanted(mirror)
    turned = take_over(mirror, ends=ends, begins=pairs.begins_of(other))
    paused = mirror.reversal == MirrorEvent.REVERSE_AND_PAUSE
    event = MirrorEvent.MIRROR_READY_PAUSED if paused else MirrorEvent.MIRROR_READY
    note_mirroring(mirror, turned, event=event, starts=ends, now=timezone.now())


def _check_copy(mirror: MirrorTopic, other: MirrorTopic, fences: Mapping[int, int]) -> None:
    """Somebody may have failed the other side over, because its copier had given up or in spite of what it holds.

    And its cluster may have lost the end of the copy since: then this topic has the last one.
    """
    if pairs.was_sound(other) and mirrored_ends(other) == fenced_ends(other):
        _check_fences(mirror, other, fences)
        return
    raise LinkEngineError(
        ErrorCode.SIDES_DIVERGED,
        f"The other side's copy of '{mirror.name}' was stopped with records that are not this topic's, or may not be, so this "
        "topic cannot become its mirror as it is. Fail over here to make it writable again; truncate-and-restore then sets "
        "aside what differs.",
    )


def _check_fences(mirror: MirrorTopic, other: MirrorTopic, fences: Mapping[int, int]) -> None:
    there, by_markers = plans.source_address(mirror.link), other.link.gap_filler == GapFiller.MARKERS
    epochs = pairs.fence_epochs(other)
    lost = jobs.lost_fences(there, mirror.source_topic, fences=fences, epochs=epochs, by_markers=by_markers)
    if lost:
        raise LinkEngineError(
            ErrorCode.SIDES_DIVERGED,
            f"The other side's copy of '{mirror.name}' lost records of partition {lost[0]} since it was stopped, or may have. "
            "This topic holds them still, so it does not become that one's mirror. Fail over here to make it writable again; "
            "truncate-and-restore on the other side then lets that one follow this one.",
        )


def take_over(mirror: MirrorTopic, *, ends: Mapping[int, int], begins: Mapping[int, int] | None = None) -> MirrorCreated:
    """Claim the topic up to the offsets at which the other side was fenced, and note the markers that did it.

    ``begins``: where the other side begins, unless what is older here was set aside.
    """
    keep_compression(mirror)
    with leases.taken(mirror, wait_s=RELEASE_S) as taken:
        turned = jobs.turn_mirror(plans.turn_of(mirror, ends=ends, begins=begins, generation=taken.generation))
    marks = {number: (Gap(OffsetRange(end, end + 1), GapReason.TRANSACTION_MARKER),) for number, end in ends.items()}
    gaps.store_gaps(mirror=mirror, gaps=marks, now=timezone.now())
    return turned


def keep_compression(mirror: MirrorTopic) -> None:
    """Remember the compression a topic has of its own: a mirror keeps batches as they are; a stopped one gets it back.

    Safe to repeat: what the copy itself needs is never taken for the topic's own.
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
    """Let the copier have it: the topic is a mirror now, of the other side's records from ``starts`` on.

    Raises OvertakenError where it was failed over meanwhile.
    """
    facts: dict[str, Any] = {
        **reversing.fresh_life(),
        "source_topic_id": made.source_topic_id,
        "mirror_topic_id": made.mirror_topic_id,
        "num_partitions": made.partitions,
        "read_only": made.read_only,
        "source_configs": made.source_configs,
        **_cleaning(mirror, made, now=now),
        "holds_copy": True,
        "reversal": "",
        "synced_at": now,
    }
    mirror.num_partitions = made.partitions
    sampling.ensure_rows(mirror)
    try:
        with transaction.atomic():
            ends = dict.fromkeys(("stopped_end", "fenced_end", "fence_epoch", "source_epoch", "source_epoch_end"))
            MirrorPartition.objects.filter(mirror=mirror).update(**ends, **reversing.no_source_seen())
            GroupOffset.objects.filter(mirror=mirror).delete()  # of an earlier life, from which nothing follows for this one
            coverage.keep_for(mirror=mirror, made=made, now=now)
            troubles.clear(mirror=mirror)
            troubles.end(mirror=mirror, codes=[CONFIGS_REFUSED])  # they are a mirror's now
            moved = transitions.apply_event(mirror=mirror, event=event, by=ENGINE, now=now, **facts)
            lineage.open_lineage(mirror=moved, starts=starts, now=now)
    except IllegalTransitionError:  # failed over in the meantime
        raise OvertakenError from None


def _cleaning(mirror: MirrorTopic, made: MirrorCreated, *, now: datetime) -> dict[str, Any]:
    """Answer what the row says of compaction from now on."""
    was_compacted = plans.is_compacting(mirror, made.source_configs) or _was_compacted(mirror, made)
    nothing = {"cleaned_until": None, "cleaned_kept_ms": None}
    stays = mirror.mirror_topic_id == made.mirror_topic_id
    cleaned = tombstones.cleaned_unseen(mirror, made.source_configs, now=now) if stays and was_compacted else nothing
    return {"was_compacted": was_compacted, **cleaned}


def _was_compacted(mirror: MirrorTopic, made: MirrorCreated) -> bool:
    """Tell whether either side was compacted before; a topic that was made anew is a copy of all that the other one has."""
    if mirror.mirror_topic_id != made.mirror_topic_id:
        return False
    other = pairs.counterpart(mirror)
    return mirror.was_compacted or (other is not None and other.was_compacted)


def _close(mirror: MirrorTopic, other: MirrorTopic) -> bool:
    """Keep producers out of the source; False where that failed. One that was failed over meanwhile is opened again.

    Its stop gives way to us: it opens the topic behind us, also where we die before we see that it was failed over.
    """
    closed = False
    with patient_hold(hold_name(other.pk), wait_s=HOLD_WAIT_S) as ours:
        if not ours:
            return False
        with unless_overtaken(other, otherwise=lambda error: note_failure(mirror, error, fatal=False, now=timezone.now())):
            check_wanted(other)
            jobs.close_topic(plans.source_address(mirror.link), mirror.source_topic)
            check_wanted(other)
            closed = True
    return closed


def _drain(mirror: MirrorTopic) -> bool:
    """Tell whether nothing was left to copy at two looks with a pause between them."""
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
        time.sleep(LOOK_EVERY_S)
        fresh = plans.load(mirror.pk)
        if fresh is None or not _is_draining(fresh):
            return False
        mirror = fresh
    return False


def _not_yet(mirror: MirrorTopic, other: MirrorTopic | None) -> dict[str, str]:
    """Say what the topic waits for before it can become a mirror."""
    if other is None:
        message = (
            f"The mirror of '{mirror.name}' is not there any more, so there is nothing to mirror from. Fail over to make "
            "this topic writable again."
        )
        return {ErrorCode.REMOTE_MIRROR_NOT_FOUND_ERROR: message}
    if other.state != MirrorState.STOPPED:
        message = f"Topic '{other.name}' on the other side is {other.state}; this topic becomes its mirror once it is STOPPED."
        return {ErrorCode.WAITING_FOR_OTHER_SIDE: message}
    return {}


def _end_reversal(mirror: MirrorTopic, *, now: datetime) -> None:
    """Mirror on. A source that has no row any more is opened first, since no stop will do it; a row's own stop does."""
    if not pairs.mirrors_of_name(mirror.link.source_cluster_id, mirror.source_topic).exists():
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
