"""Reversal of a mirror: the mirror copies the remaining records, and its source topic gets a row that becomes the next mirror.

==========================  ===================  =======================
step                        mirror               row of its source topic
==========================  ===================  =======================
reverse is requested        PENDING_SYNCHRONIZE  PENDING_MIRROR
all records are copied      PENDING_STOPPED      PENDING_MIRROR
the directions are swapped  STOPPED              ACTIVE or PAUSED
==========================  ===================  =======================

Both rows change in one transaction, the other side's row first. So no reader sees half of a reversal, and of two concurrent
requests the second waits for the first and reads its changes. ``console.workflows.reversing`` carries the steps out.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from console.actions import transitions, verification
from console.actors import ENGINE, Actor
from console.errors import ConflictError, ConsoleError
from console.links import pairs
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.queue import dispatch
from linkengine.domain.clusterviews import ReversalRisks
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason

_E, _S = MirrorEvent, MirrorState
ASK_TIMEOUT_S = 10.0
REVERSALS = (_E.REVERSE_AND_START, _E.REVERSE_AND_PAUSE)


def risks_of(link: ClusterLink, mirrors: Iterable[MirrorTopic]) -> dict[str, ReversalRisks]:
    """Return, by mirror topic, the risks of a reversal that its clusters report; unknown if they cannot be reached."""
    topics = {mirror.name: mirror.source_topic for mirror in mirrors if mirror.num_partitions}
    if not topics:
        return {}
    try:
        found = dispatch.call("find_reversal_risks", timeout_s=ASK_TIMEOUT_S, link_id=link.pk, topics=topics)
    except (ConsoleError, LinkEngineError):
        return dict.fromkeys(topics, ReversalRisks())
    return {name: ReversalRisks.from_json(risks) for name, risks in found.items()}


def begin(*, mirror: MirrorTopic, operation: MirrorEvent, by: Actor, now: datetime) -> MirrorTopic:
    """Set the mirror to PENDING_SYNCHRONIZE and its source topic's row to PENDING_MIRROR; needs the caller's transaction."""
    other = pairs.other_side(mirror.link)
    if other is None:
        raise ConflictError(
            f"Cluster link '{mirror.link.name}' no longer has another side, so its mirrors cannot be reversed. Create the link "
            "on the other cluster first."
        )
    row = _store_next_mirror(mirror, other, operation, by=by, now=now)
    dispatch.send("reconcile_link", link_id=row.link_id)
    return transitions.apply_event(mirror=mirror, event=operation, by=by, now=now, reversal=operation)


def resume_reversal(*, mirror: MirrorTopic, by: Actor, now: datetime) -> MirrorTopic:
    """Continue a paused reversal after the mirror has become active again; return the mirror unchanged if there is none."""
    if not mirror.reversal or mirror.state != _S.ACTIVE:
        return mirror
    other = pairs.counterpart(mirror)
    if other is None or other.state != _S.PENDING_MIRROR:
        return _forget(mirror)
    return transitions.apply_event(mirror=mirror, event=MirrorEvent(mirror.reversal), by=by, now=now)


def end_at_other_side(*, mirror: MirrorTopic, now: datetime) -> None:
    """End the reversal on the other side, which continues to mirror: this topic, which was to be its mirror, was failed over.

    Call it after this mirror's row has changed.
    """
    other = pairs.counterpart(mirror)
    if other is None or not other.reversal:
        return
    if other.state == _S.PENDING_SYNCHRONIZE:
        detail = "the source topic was failed over"
        transitions.apply_event(mirror=other, event=_E.REVERSAL_ENDED, by=ENGINE, now=now, detail=detail, reversal="")
    elif other.state != _S.PENDING_STOPPED:
        _forget(other)
    dispatch.send("reconcile_link", link_id=other.link_id)


def note_synchronized(*, mirror: MirrorTopic, now: datetime) -> bool:
    """Change the mirror from PENDING_SYNCHRONIZE to PENDING_STOPPED; return False if the other side was failed over."""
    other = pairs.counterpart(mirror)
    if other is None:
        return False
    with transaction.atomic():
        # updates the other row first, as its failover does: the later transaction waits for the row lock and reads the result
        if not MirrorTopic.objects.filter(pk=other.pk, state=_S.PENDING_MIRROR).update(reversal=mirror.reversal):
            return False
        transitions.apply_event(mirror=mirror, event=_E.SYNCHRONIZED, by=ENGINE, now=now, stop_reason=StopReason.PROMOTE)
    return True


def _store_next_mirror(
    mirror: MirrorTopic, other: ClusterLink, operation: MirrorEvent, *, by: Actor, now: datetime
) -> MirrorTopic:
    ids = {"source_topic_id": mirror.mirror_topic_id, "mirror_topic_id": mirror.source_topic_id}
    facts = {
        **ids,
        "reversal": operation,
        "holds_copy": False,
        "source_topic": mirror.name,
        "num_partitions": mirror.num_partitions,
        "source_configs": mirror.source_configs,
        **fresh_life(),
    }
    row = MirrorTopic.objects.filter(link=other, name=mirror.source_topic).first()
    if row is not None:
        verification.keep_ledger(mirror=row, **ids, now=now)  # a restore may have created the other side's topic anew
        row = transitions.apply_event(mirror=row, event=_E.BECOME_MIRROR, by=by, now=now, **facts)
    else:
        row = MirrorTopic(
            link=other,
            name=mirror.source_topic,
            state=_S.PENDING_MIRROR,
            state_since=now,
            created_at=now,
            created_by=by.name,
            **facts,
        )
        _insert(row)
        transitions.note_creation(mirror=row, by=by, now=now)
    forget_ends(row, whole_at=now)  # until the directions are swapped, the topic is the source and has all its records
    return row


def _insert(row: MirrorTopic) -> None:
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:  # another request has inserted the row
        message = (
            f"Another request has just started to make topic '{row.name}' a mirror of '{row.source_topic}', so this request "
            "did nothing. Check the state of both topics."
        )
        raise ConflictError(message) from None


def fresh_life() -> dict[str, Any]:
    """Return the fields to reset when a stopped topic becomes a mirror again."""
    return {
        "stop_reason": "",
        "drained_at": None,
        "fencing_at": None,
        "giving_back": False,
        "error_code": "",
        "error_message": "",
        "error_since": None,
        "retry_count": 0,
        "retry_at": None,
    }


def forget_ends(mirror: MirrorTopic, *, whole_at: datetime | None) -> None:
    """Reset the recorded ends and fences of the mirror's partitions, since its next stop writes new ones.

    ``whole_at`` is the time at which the topic last held all records of its future source; None if the topic is created anew.
    """
    missing = [MirrorPartition(mirror=mirror, partition=number) for number in range(mirror.num_partitions)]
    MirrorPartition.objects.bulk_create(missing, ignore_conflicts=True)
    ends = dict.fromkeys(
        ("stopped_end", "fenced_end", "fence_epoch", "source_end", "mirror_end", "mirror_start", "caught_up_at")
    )
    if whole_at is None:  # a topic created anew has no records that a deletion at the source could have missed
        ends |= dict.fromkeys(("late_since", "late_until"))
    MirrorPartition.objects.filter(mirror=mirror).update(**ends, **no_source_seen(), whole_at=whole_at, behind=True, phase="")


def no_source_seen() -> dict[str, None]:
    """Return the fields of the last source measurement, reset, so that a failover report never uses a former source's end."""
    seen = ("source_start", "last_source_end", "last_source_seen_at", "last_high_watermark", "last_timestamp_ms")
    return dict.fromkeys(seen)


def _forget(mirror: MirrorTopic) -> MirrorTopic:
    MirrorTopic.objects.filter(pk=mirror.pk).update(reversal="")
    mirror.reversal = ""
    return mirror
