"""Truncates and restores: makes a stopped topic a mirror again.

    PENDING_SETUP_FOR_RESTORE  close the topic to producers and wait for open transactions to end; find, per partition, the
                               first offset that the two sides do not have in common (the restore point), and store it
    PENDING_RESTORE_MIRROR     if the topics diverged: export the diverged records (``export_diverged``), delete the topic,
                               create it anew and seed its head
                               if not (``in_place``): take the topic over as it is (``reversing.take_over``)

No record can be added after the topic is closed, so the points are final but for retention and super users. ``RestoreRun`` says
which steps are done; each step may be repeated. ``deletion_decided_at`` is the point of no return: a failover before it keeps
the topic, a failover after it first finishes the deletion, since a delayed DeleteTopics request may still be in flight.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.actors import ENGINE
from console.links import pairs
from console.mirrors import reversals, transitions
from console.models import MirrorPartition, MirrorTopic, RestoreRun
from console.models.mirrors import RECORDS_LOST
from console.queue import dispatch
from console.reconciling import gaps, plans, transition_errors
from console.reconciling.ends import fenced_ends
from console.workflows.divergence import Topic, find_divergence, log_ranges_of
from console.workflows.export_diverged import check_common, delete_as_decided, export_diverged
from console.workflows.mirrors import PreemptedError, Watch, check_unchanged, create_topic, note_delay, unless_preempted
from console.workflows.reversing import SETTLE_S, keep_compression, note_mirroring, take_over
from linkengine import jobs
from linkengine.domain.configs import follows_start
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorCreated, RestorePoint, open_transactions
from linkengine.domain.plans import LogRange
from linkengine.domain.states import BECOMING, MirrorEvent, MirrorState


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
    held = _close(mirror)
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
    here = Topic(mirror.link.destination.address, mirror.name)
    there = Topic(plans.source_address(mirror.link), mirror.source_topic)
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


def _close(mirror: MirrorTopic) -> tuple[str, Sequence[LogRange]]:
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
        reversals.forget_ends(mirror, whole_at=equal_until)
    run.refresh_from_db()
    return moved


def _restore(mirror: MirrorTopic, run: RestoreRun) -> None:
    check_unchanged(mirror)
    if run.in_place:
        mirror.mirror_topic_id, mirror.source_topic_id = run.diverged_topic_id, run.source_topic_id
        if follows_start(mirror.link.sync_include):  # records that the new source does not have are deleted here, too
            export_diverged(mirror, run, check_owner=Watch(mirror))
        check_common(mirror, run)
        made = take_over(mirror, ends={point["partition"]: point["common"] for point in run.points})
    else:
        export_diverged(mirror, run, check_owner=Watch(mirror))
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
