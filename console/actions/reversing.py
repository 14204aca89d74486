"""The rows of a reversal: the mirror drains, and the topic it copies from gets a row that becomes its mirror.

Both rows move in one transaction, the other side's first, so that nobody sees one half and two people cannot undo each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from console import dispatch, pairs
from console.actions import transitions, verification
from console.actors import ENGINE, Actor
from console.errors import ConflictError, ConsoleError
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from linkengine.domain.clusterviews import ReversalRisks
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason

_E, _S = MirrorEvent, MirrorState
ASK_TIMEOUT_S = 10.0
REVERSALS = (_E.REVERSE_AND_START, _E.REVERSE_AND_PAUSE)


def risks_of(link: ClusterLink, mirrors: Iterable[MirrorTopic]) -> dict[str, ReversalRisks]:
    """Return, by mirror topic, what its clusters return that should be known before a reversal."""
    topics = {mirror.name: mirror.source_topic for mirror in mirrors if mirror.num_partitions}
    if not topics:
        return {}
    try:
        found = dispatch.call("find_reversal_risks", timeout_s=ASK_TIMEOUT_S, link_id=link.pk, topics=topics)
    except (ConsoleError, LinkEngineError):
        return dict.fromkeys(topics, ReversalRisks())
    return {name: ReversalRisks.from_json(risks) for name, risks in found.items()}


def begin(*, mirror: MirrorTopic, operation: MirrorEvent, by: Actor, now: datetime) -> MirrorTopic:
    """Let the mirror drain and announce its source topic as the next mirror; call it inside a transaction."""
    there = pairs.other_side(mirror.link)
    if there is None:
        raise ConflictError(f"Cluster link '{mirror.link.name}' has no other side any more.")
    row = _announce(mirror, there, operation, by=by, now=now)
    dispatch.send("reconcile_link", link_id=row.link_id)
    return transitions.apply_event(mirror=mirror, event=operation, by=by, now=now, reversal=operation)


def go_on(*, mirror: MirrorTopic, by: Actor, now: datetime) -> MirrorTopic:
    """Go on with a reversal that was paused, once the mirror is active again; does nothing where there is none."""
    if not mirror.reversal or mirror.state != _S.ACTIVE:
        return mirror
    other = pairs.counterpart(mirror)
    if other is None or other.state != _S.PENDING_MIRROR:
        return _forget(mirror)
    return transitions.apply_event(mirror=mirror, event=MirrorEvent(mirror.reversal), by=by, now=now)


def end_at_other_side(*, mirror: MirrorTopic, now: datetime) -> None:
    """Let the other side mirror on: this topic, which was becoming its mirror, has been failed over. After this row moved."""
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
    """Go from draining to the swap; False where the other side was failed over in the meantime."""
    other = pairs.counterpart(mirror)
    if other is None:
        return False
    with transaction.atomic():
        # touches the other row first, as its failover does: one of both waits for the other and then sees what it did
        if not MirrorTopic.objects.filter(pk=other.pk, state=_S.PENDING_MIRROR).update(reversal=mirror.reversal):
            return False
        transitions.apply_event(mirror=mirror, event=_E.SYNCHRONIZED, by=ENGINE, now=now, stop_reason=StopReason.PROMOTE)
    return True


def _announce(mirror: MirrorTopic, there: ClusterLink, operation: MirrorEvent, *, by: Actor, now: datetime) -> MirrorTopic:
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
    row = MirrorTopic.objects.filter(link=there, name=mirror.source_topic).first()
    if row is not None:
        verification.keep_ledger(mirror=row, **ids, now=now)  # the other side may have been made anew by a restore
        row = transitions.apply_event(mirror=row, event=_E.BECOME_MIRROR, by=by, now=now, **facts)
    else:
        row = MirrorTopic(
            link=there,
            name=mirror.source_topic,
            state=_S.PENDING_MIRROR,
            state_since=now,
            created_at=now,
            created_by=by.name,
            **facts,
        )
        _insert(row)
        transitions.note_creation(mirror=row, by=by, now=now)
    forget_ends(row, whole_at=now)  # until both change places it is the source itself
    return row


def _insert(row: MirrorTopic) -> None:
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:  # somebody was quicker
        message = f"Topic '{row.name}' is becoming a mirror of '{row.source_topic}' already: somebody has just asked for that."
        raise ConflictError(message) from None


def fresh_life() -> dict[str, Any]:
    """Answer the marks of a mirror's last life, wiped."""
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
        "synced_at": None,
    }


def forget_ends(mirror: MirrorTopic, *, whole_at: datetime | None) -> None:
    """Forget where the mirror's last life ended: its next fence is another one.

    ``whole_at``: when the topic, if it stays, last held all of what is to be its source.
    """
    missing = [MirrorPartition(mirror=mirror, partition=number) for number in range(mirror.num_partitions)]
    MirrorPartition.objects.bulk_create(missing, ignore_conflicts=True)
    ends = dict.fromkeys(
        ("stopped_end", "fenced_end", "fence_epoch", "source_end", "mirror_end", "mirror_start", "caught_up_at")
    )
    if whole_at is None:  # nor does anything stay that could lack a deletion
        ends |= dict.fromkeys(("late_since", "late_until"))
    MirrorPartition.objects.filter(mirror=mirror).update(**ends, **no_source_seen(), whole_at=whole_at, behind=True, phase="")


def no_source_seen() -> dict[str, None]:
    """Answer what was last seen of a source, wiped: a stop must not tell of a former one's end."""
    seen = ("source_start", "last_source_end", "last_source_seen_at", "last_high_watermark", "last_timestamp_ms")
    return dict.fromkeys(seen)


def _forget(mirror: MirrorTopic) -> MirrorTopic:
    MirrorTopic.objects.filter(pk=mirror.pk).update(reversal="")
    mirror.reversal = ""
    return mirror
