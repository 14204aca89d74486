"""Truncate and restore: an ordinary topic becomes the mirror of its former mirror, which was stopped and is written to now.

The operation is requested on the topic that is to become the mirror. That topic may never have been a mirror, so its row may be
created here. ``console.workflows.restoring`` carries the restore out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.utils import timezone

from console.access import Permission, can
from console.actions import reversing, transitions
from console.actors import Actor
from console.errors import ConflictError, ConsoleError
from console.links import pairs
from console.models import ClusterLink, MirrorTopic, RestoreRun, RoleBinding
from console.queue import dispatch
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import RestorePoint
from linkengine.domain.states import MirrorEvent, MirrorState

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


def count_divergence(link: ClusterLink, mirrors: Iterable[MirrorTopic]) -> dict[str, tuple[RestorePoint, ...]]:
    """Count on the cluster, by topic and partition, the records that a restore would drop now.

    The result lacks topics for which the count is unknown: their common part is unknown, or the cluster cannot be reached.
    """
    known = {
        mirror.name: _known_parts(mirror) for mirror in mirrors if pairs.have_common_part(mirror, pairs.counterpart(mirror))
    }
    if not known:
        return {}
    try:
        found = dispatch.call("count_divergence", timeout_s=COUNT_TIMEOUT_S, link_id=link.pk, known=known)
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
            f"Truncate and restore has to delete topic '{mirror.name}' and create it again, but topic deletion is disabled on "
            f"cluster '{cluster.name}' (delete.topic.enable=false). Set delete.topic.enable=true on its brokers and "
            "controllers first.",
            code=ErrorCode.TOPIC_DELETION_DISABLED,
        )


def _known_parts(mirror: MirrorTopic) -> dict[str, Any]:
    """Return the other side's topic and the common part that is known from the rows, as a JSON object."""
    parts = pairs.common_parts(mirror, pairs.counterpart(mirror))
    return {"source_topic": mirror.source_topic, "parts": [part.to_json() for part in parts]}


def begin(*, mirror: MirrorTopic, by: Actor, now: datetime) -> MirrorTopic:
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
    facts = {key: value for key, value in reversing.fresh_life().items() if key not in ("fencing_at", "stop_reason")}
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
            f"Topic '{other.name}' on the other side is {other.state} now, but must be STOPPED to become the source. Check "
            "both topics, then retry."
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
