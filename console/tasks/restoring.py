"""Truncate-and-restore on real clusters: close the topic, agree on where the sides part, set the rest aside, mirror again.

PENDING_SETUP_FOR_RESTORE until the points are agreed: producers are kept out and open transactions have ended, so nothing can
be added any more. PENDING_RESTORE_MIRROR then exports, deletes and creates the topic again, in this order; or takes it over
where it stands if nothing diverged. Every step may be repeated: the run's row tells which are behind us.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console import dispatch, pairs, store
from console.actions import reversing, transitions
from console.actors import ENGINE
from console.models import MirrorPartition, MirrorTopic, RestoreRun
from console.models.mirrors import RECORDS_LOST
from console.reconciling import gaps, plans, troubles
from console.reconciling.ends import fenced_ends
from console.tasks.holdings import Topic, held_by, parting_of
from console.tasks.mirrors import create_topic, note_delay
from console.tasks.overtaking import OvertakenError, Watch, check_wanted, hold_name, unless_overtaken
from console.tasks.reversing import SETTLE_S, keep_compression, note_mirroring, take_over
from console.tasks.settingaside import check_common, set_aside
from linkengine import jobs
from linkengine.domain.configs import follows_start
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorCreated
from linkengine.domain.plans import LogRange
from linkengine.domain.restoring import RestorePoint, open_transactions
from linkengine.domain.states import BECOMING, MirrorEvent, MirrorState


@shared_task(name="advance_restore")
def advance_restore(*, mirror_id: int, **_: Any) -> None:
    """Take a restore as far as it gets."""
    with store.hold(hold_name(mirror_id)) as ours:
        mirror = plans.load(mirror_id) if ours else None
        run = mirror.restores.filter(finished_at=None).first() if mirror else None
        if mirror is None or run is None:
            return
        with unless_overtaken(mirror, otherwise=partial(note_delay, mirror)):
            if mirror.state == MirrorState.PENDING_SETUP_FOR_RESTORE:
                mirror = _agree(mirror, run, now=timezone.now())
            if mirror.state == MirrorState.PENDING_RESTORE_MIRROR:
                _restore(mirror, run)
            dispatch.send("reconcile_link", link_id=mirror.link_id)


def _agree(mirror: MirrorTopic, run: RestoreRun, *, now: datetime) -> MirrorTopic:
    """Find, per partition, the first offset that is not common; write it down before anything is done about it."""
    held = _close(mirror)
    other = pairs.counterpart(mirror)
    if other is not None and other.state != MirrorState.STOPPED:
        raise LinkEngineError(
            ErrorCode.WAITING_FOR_OTHER_SIDE,
            f"Topic '{other.name}' on the other side is {other.state} itself; one of both has to stay what it is. Fail over "
            "either of them to keep its records.",
        )
    if not pairs.have_parted(mirror, other):
        raise LinkEngineError(
            ErrorCode.REMOTE_MIRROR_NOT_FOUND_ERROR,
            f"The other side has no stopped mirror of '{mirror.name}' any more, so nobody knows up to where both are equal. "
            "Fail over to make this topic writable again.",
        )
    here = Topic(mirror.link.destination.address, mirror.name)
    there = Topic(plans.source_address(mirror.link), mirror.source_topic)
    parts = list(pairs.common_parts(mirror, other))
    found = parting_of(here, there, parts=parts, held=held)
    run.diverged_topic_id, run.source_topic_id, equal_until = found.here_id, found.there_id, None
    run.parts = [one.to_json() for one in parts]
    if other is not None and (other.source_topic_id, other.mirror_topic_id) == (found.here_id, found.there_id):
        equal_until = _equal_until(other, found.points)
    if equal_until is None:
        _check_deletable(mirror)
    return _note_agreed(mirror, run, found.points, equal_until=equal_until, now=now)


def _check_deletable(mirror: MirrorTopic) -> None:
    """Raise where the topic would have to be deleted and the cluster deletes none; up to here nothing was changed."""
    if jobs.deletes_topics(mirror.link.destination.address) is False:
        raise LinkEngineError(
            ErrorCode.TOPIC_DELETION_DISABLED,
            f"A restore deletes topic '{mirror.name}' and creates it again, and its cluster deletes no topics "
            "(delete.topic.enable=false). Fail over to make the topic writable again, or set delete.topic.enable=true on the "
            "brokers and controllers.",
        )


def _close(mirror: MirrorTopic) -> tuple[str, Sequence[LogRange]]:
    """Keep producers out; answer the topic's id and what it holds, which nobody can add to any more."""
    here = mirror.link.destination.address
    check_wanted(mirror)
    jobs.close_topic(here, mirror.name)
    keep_compression(mirror)
    time.sleep(SETTLE_S)
    topic_id, held = held_by(here, mirror.name, closed=True)
    waiting = open_transactions(held)
    if waiting:
        raise LinkEngineError(
            ErrorCode.WAITING_FOR_TRANSACTIONS,
            f"A transaction is still open on '{mirror.name}', partition {waiting[0]}. It ends by itself at its producer's "
            "transaction timeout; until then nobody can say which records were written.",
        )
    return topic_id, held


def _equal_until(other: MirrorTopic, points: tuple[RestorePoint, ...]) -> datetime | None:
    """Answer when both sides were equal last if the other one was fenced exactly where this one ends, so that it can go on.

    A restore of the other one that was cut short afterwards has moved its ``state_since``.
    """
    if not pairs.was_stopped_as_copy(other):
        return None
    fenced = dict(fenced_ends(other))
    if any(not one.end == one.common == fenced.get(one.partition, 0) for one in points):
        return None
    stops = other.transitions.filter(to_state=MirrorState.PENDING_STOPPED)
    step = stops.exclude(from_state__in=[*BECOMING, MirrorState.PENDING_STOPPED]).first()
    return step.at if step else other.created_at


def _note_agreed(
    mirror: MirrorTopic, run: RestoreRun, points: tuple[RestorePoint, ...], *, equal_until: datetime | None, now: datetime
) -> MirrorTopic:
    with transaction.atomic():
        RestoreRun.objects.filter(pk=run.pk).update(
            points=[{**asdict(one), "records": None} for one in points],
            agreed_at=now,
            in_place=equal_until is not None,
            diverged_topic_id=run.diverged_topic_id,
            source_topic_id=run.source_topic_id,
            parts=run.parts,
        )
        facts = {**reversing.fresh_life(), "holds_copy": False, "start_spec": "earliest"}
        moved = transitions.apply_event(mirror=mirror, event=MirrorEvent.OFFSETS_AGREED, by=ENGINE, now=now, **facts)
        reversing.forget_ends(mirror, whole_at=equal_until)
    run.refresh_from_db()
    return moved


def _restore(mirror: MirrorTopic, run: RestoreRun) -> None:
    check_wanted(mirror)
    if run.in_place:
        mirror.mirror_topic_id, mirror.source_topic_id = run.diverged_topic_id, run.source_topic_id
        if follows_start(mirror.link.sync_include):  # what the new source does not have goes from here, too
            set_aside(mirror, run, check_ours=Watch(mirror))
        check_common(mirror, run)
        made = take_over(mirror, ends={one["partition"]: one["common"] for one in run.points})
    else:
        set_aside(mirror, run, check_ours=Watch(mirror))
        if not _doom(mirror, run, now=timezone.now()):
            raise OvertakenError
        jobs.delete_diverged(destination=mirror.link.destination.address, topic=mirror.name, topic_id=run.diverged_topic_id)
        made = create_topic(mirror)
    _note_restored(mirror, run, made, now=timezone.now())


def _doom(mirror: MirrorTopic, run: RestoreRun, *, now: datetime) -> bool:
    """Decide that the diverged topic goes; False where a failover was quicker, which keeps it.

    A failover after this finds a topic that must not be opened again: a late delete request may still be on its way. The row
    forgets its id, so that the topic which takes its place is known as the mirror's by its configs until its id is noted.
    """
    facts = {"retry_at": None, "mirror_topic_id": ""}
    with transaction.atomic():
        if not MirrorTopic.objects.filter(pk=mirror.pk, state=MirrorState.PENDING_RESTORE_MIRROR).update(**facts):
            return False
        RestoreRun.objects.filter(pk=run.pk, doomed_at=None).update(doomed_at=now)
    return True


def _note_restored(mirror: MirrorTopic, run: RestoreRun, made: MirrorCreated, *, now: datetime) -> None:
    if not run.in_place:
        jobs.clear_mirror(settings.REDIS_URL, plans.link_key(mirror.link), mirror_id=plans.mirror_key(mirror))
        with transaction.atomic():
            mirror.gaps.all().delete()  # of a log that is gone
            if run.is_set_aside:
                troubles.end(mirror=mirror, codes=[RECORDS_LOST])  # nothing else would, and the ledger tells of no loss
            MirrorPartition.objects.filter(mirror=mirror, partition__gte=made.partitions).delete()
        gaps.note_head(mirror=mirror, seeded=made.seeded, now=now)
    starts = {one["partition"]: one["common"] for one in run.points} if run.in_place else dict(made.seeded)
    with transaction.atomic():  # nobody goes on with a run that is finished
        note_mirroring(mirror, made, event=MirrorEvent.MIRROR_READY, starts=starts, now=now)
        RestoreRun.objects.filter(pk=run.pk).update(finished_at=now)
