"""Starts, continues and ends reversals of mirrors, and starts truncate-and-restore of former mirrors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from console.access import Permission, can
from console.actors import ENGINE, Actor
from console.errors import ConflictError, ConsoleError
from console.links import pairs
from console.mirrors import transitions
from console.models import ClusterLink, MirrorPartition, MirrorTopic, RestoreRun, RoleBinding
from console.queue import dispatch
from console.verification import actions as verification_actions
from linkengine.domain.clusterviews import ReversalRisks
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.mirrorjobs import RestorePoint
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason

# --- reversal ---------------------------------------------------------------------------------------------------------
#
# The mirror copies the remaining records, and its source topic gets a row that becomes the next mirror.
#
# ==========================  ===================  =======================
# step                        mirror               row of its source topic
# ==========================  ===================  =======================
# reverse is requested        PENDING_SYNCHRONIZE  PENDING_MIRROR
# all records are copied      PENDING_STOPPED      PENDING_MIRROR
# the directions are swapped  STOPPED              ACTIVE or PAUSED
# ==========================  ===================  =======================
#
# Both rows change in one transaction, the other side's row first. So no reader sees half of a reversal, and of two concurrent
# requests the second waits for the first and reads its changes. ``workflows.reverse_and_restore`` carries the steps out.


_E, _S = MirrorEvent, MirrorState
QUERY_TIMEOUT_S = 10.0
REVERSALS = (_E.REVERSE_AND_START, _E.REVERSE_AND_PAUSE)


def risks_of(link: ClusterLink, mirrors: Iterable[MirrorTopic]) -> dict[str, ReversalRisks]:
    """Return, by mirror topic, the risks of a reversal that its clusters report; unknown if they cannot be reached."""
    topics = {mirror.name: mirror.source_topic for mirror in mirrors if mirror.num_partitions}
    if not topics:
        return {}
    try:
        found = dispatch.call("find_reversal_risks", timeout_s=QUERY_TIMEOUT_S, link_id=link.pk, topics=topics)
    except (ConsoleError, LinkEngineError):
        return dict.fromkeys(topics, ReversalRisks())
    return {name: ReversalRisks.from_json(risks) for name, risks in found.items()}


def begin_reversal(*, mirror: MirrorTopic, operation: MirrorEvent, by: Actor, now: datetime) -> MirrorTopic:
    """Set the mirror to PENDING_SYNCHRONIZE and its source topic's row to PENDING_MIRROR; needs the caller's transaction."""
    other = pairs.other_side(mirror.link)
    if other is None:
        raise ConflictError(
            gettext_lazy(
                "Cluster link '%(link)s' no longer has another side, so its mirrors cannot be reversed. Create the "
                "link on the other cluster first.",
                link=mirror.link.name,
            )
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
        **initial_values(),
    }
    row = MirrorTopic.objects.filter(link=other, name=mirror.source_topic).first()
    if row is not None:
        verification_actions.keep_ledger(mirror=row, **ids, now=now)  # a restore may have created the other side's topic anew
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
    forget_ends(row, complete_at=now)  # until the directions are swapped, the topic is the source and has all its records
    return row


def _insert(row: MirrorTopic) -> None:
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:  # another request has inserted the row
        message = gettext_lazy(
            "Another request has just started to make topic '%(topic)s' a mirror of '%(source_topic)s', so this "
            "request did nothing. Check the state of both topics.",
            topic=row.name,
            source_topic=row.source_topic,
        )
        raise ConflictError(message) from None


def initial_values() -> dict[str, Any]:
    """Return the fields to reset when a stopped topic becomes a mirror again."""
    return {
        "stop_reason": "",
        "drained_at": None,
        "fencing_at": None,
        "restoring_configs": False,
        "error_code": "",
        "error_message": "",
        "error_since": None,
        "retry_count": 0,
        "retry_at": None,
    }


def forget_ends(mirror: MirrorTopic, *, complete_at: datetime | None) -> None:
    """Reset the recorded ends and fences of the mirror's partitions, since its next stop writes them again.

    ``complete_at`` is when the topic last held all records of its future source; None if the topic is created anew.
    """
    missing = [MirrorPartition(mirror=mirror, partition=number) for number in range(mirror.num_partitions)]
    MirrorPartition.objects.bulk_create(missing, ignore_conflicts=True)
    ends = dict.fromkeys(
        ("stopped_end", "fenced_end", "fence_epoch", "source_end", "mirror_end", "mirror_start", "caught_up_at")
    )
    if complete_at is None:  # a topic created anew has no records that a deletion at the source could have missed
        ends |= dict.fromkeys(("late_since", "late_until"))
    MirrorPartition.objects.filter(mirror=mirror).update(
        **ends, **no_source_seen(), complete_at=complete_at, behind=True, phase=""
    )


def no_source_seen() -> dict[str, None]:
    """Return the fields of the last source measurement, reset, so that a failover report never uses a former source's end."""
    seen = ("source_start", "last_source_end", "last_source_seen_at", "last_high_watermark", "last_timestamp_ms")
    return dict.fromkeys(seen)


def _forget(mirror: MirrorTopic) -> MirrorTopic:
    MirrorTopic.objects.filter(pk=mirror.pk).update(reversal="")
    mirror.reversal = ""
    return mirror


# --- truncate and restore ---------------------------------------------------------------------------------------------
#
# An ordinary topic becomes the mirror of its former mirror, which was stopped and is written to now.
#
# The operation is requested on the topic that is to become the mirror. That topic may never have been a mirror, so its row
# may be created here. ``console.workflows.reverse_and_restore`` carries the restore out.


COUNT_TIMEOUT_S = 20.0


def candidates(link: ClusterLink, by: Actor) -> Iterator[MirrorTopic]:
    """Yield unsaved mirrors for visible ordinary topics of the link's cluster whose mirrors on the other side are stopped."""
    other = pairs.other_side(link)
    if other is None:
        return
    now = timezone.now()
    for stopped in MirrorTopic.objects.filter(link=other, state=MirrorState.STOPPED, deletion_requested_at=None):
        topic = RoleBinding.ResourceType.TOPIC
        if can(by, Permission.VIEW, link=link, resource_type=topic, resource_name=stopped.source_topic):
            yield _draft(link, stopped, now=now)


def candidate(link: ClusterLink, name: str, by: Actor) -> MirrorTopic | None:
    """Return the unsaved candidate with this name, or None."""
    return next((mirror for mirror in candidates(link, by) if mirror.name == name), None)


def count_divergence(
    link: ClusterLink, mirrors: Iterable[MirrorTopic], *, related: pairs.RelatedRows | None = None
) -> dict[str, tuple[RestorePoint, ...]]:
    """Count on the cluster, by topic and partition, the offsets that a restore would drop now.

    The result lacks topics for which the count is unknown: their common part is unknown, or the cluster cannot be reached. A
    worker reads what is known of the common parts. Two queries, none if ``related`` has read its rows.
    """
    chosen = list(mirrors)
    related = pairs.RelatedRows(chosen) if related is None else related
    with_parts = [mirror for mirror in chosen if pairs.have_common_part(mirror, related.counterpart(mirror))]
    topics = {mirror.name: mirror.source_topic for mirror in with_parts}
    if not topics:
        return {}
    try:
        found = dispatch.call("count_divergence", timeout_s=COUNT_TIMEOUT_S, link_id=link.pk, topics=topics)
    except (ConsoleError, LinkEngineError):
        return {}
    return {name: tuple(RestorePoint(**point) for point in points) for name, points in found.items()}


def check_deletable(mirror: MirrorTopic) -> None:
    """Raise ConflictError if the restore may have to delete the topic and topic deletion is disabled on the cluster.

    The topic need not be deleted if it has no diverged records; an unknown count is treated as if it had.
    """
    cluster = mirror.link.destination
    if cluster.deletes_topics is not False:
        return
    points = count_divergence(mirror.link, [mirror]).get(mirror.name)
    if points is None or any(point.diverged for point in points):
        raise ConflictError(
            gettext_lazy(
                "Truncate and restore has to delete topic '%(topic)s' and create it again, but topic deletion is "
                "disabled on cluster '%(cluster)s' (delete.topic.enable=false). Set delete.topic.enable=true on its "
                "brokers and controllers first.",
                topic=mirror.name,
                cluster=cluster.name,
            ),
            code=ErrorCode.TOPIC_DELETION_DISABLED,
        )


def known_parts(link: ClusterLink, topics: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the other side's topic and the common part that is known from the rows, as a JSON object by topic.

    ``topics`` are the source topics by topic. A topic may never have been a mirror.
    """
    rows = {row.name: row for row in MirrorTopic.objects.filter(link=link, name__in=topics)}
    found = {}
    for name, source_topic in topics.items():
        mirror = rows.get(name) or MirrorTopic(name=name, source_topic=source_topic, state=_S.STOPPED, holds_copy=False)
        mirror.link = link
        parts = pairs.common_parts(mirror, pairs.counterpart(mirror))
        found[name] = {"source_topic": source_topic, "parts": [part.to_json() for part in parts]}
    return found


def begin_restore(*, mirror: MirrorTopic, by: Actor, now: datetime) -> MirrorTopic:
    """Start a restore and store its run; needs the caller's transaction.

    Raises ConflictError if a restore of the other side was requested at the same time: each topic would be deleted to become
    the mirror of the other.
    """
    _lock_both_sides(mirror)
    if mirror.pk is None:
        mirror.created_at = mirror.state_since = now
        mirror.created_by = by.name
        mirror.save(force_insert=True)
        transitions.note_creation(mirror=mirror, by=by, now=now)
    facts = {key: value for key, value in initial_values().items() if key not in ("fencing_at", "stop_reason")}
    moved = transitions.apply_event(mirror=mirror, event=MirrorEvent.RESTORE, by=by, now=now, reversal="", **facts)
    RestoreRun.objects.create(mirror=moved, requested_by=by.name, requested_at=now)
    return moved


def _lock_both_sides(mirror: MirrorTopic) -> None:
    """Lock the rows of both sides, ordered by key, and check the other side's current row.

    The order prevents deadlocks; the second of two concurrent requests reads the changes of the first.
    """
    unlocked = pairs.counterpart(mirror)
    keys = [row.pk for row in (mirror, unlocked) if row is not None and row.pk is not None]
    list(MirrorTopic.objects.select_for_update().filter(pk__in=keys).order_by("pk").values_list("pk"))
    other = pairs.counterpart(mirror)
    if other is not None and (other.state != MirrorState.STOPPED or other.deletion_requested_at is not None):
        raise ConflictError(
            gettext_lazy(
                "Topic '%(topic)s' on the other side is %(state)s now, but must be STOPPED to become the source. "
                "Check both topics, then retry.",
                topic=other.name,
                state=other.state,
            )
        )


def _draft(link: ClusterLink, source: MirrorTopic, *, now: datetime) -> MirrorTopic:
    return MirrorTopic(
        link=link,
        name=source.source_topic,
        source_topic=source.name,
        source_topic_id=source.mirror_topic_id,
        mirror_topic_id=source.source_topic_id,
        num_partitions=source.num_partitions,
        state=MirrorState.STOPPED,
        state_since=now,
        holds_copy=False,
        created_at=now,
    )
