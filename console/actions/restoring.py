"""The rows of a truncate-and-restore: an ordinary topic becomes the mirror of the topic that was stopped last.

It is asked for on the topic that shall become the mirror. That topic may never have been one, so its row may be made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.utils import timezone

from console import dispatch, pairs
from console.access import Permission, can
from console.actions import reversing, transitions
from console.actors import Actor
from console.errors import ConflictError, ConsoleError
from console.models import ClusterLink, MirrorTopic, RestoreRun, RoleBinding
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.restoring import RestorePoint
from linkengine.domain.states import MirrorEvent, MirrorState

COUNT_TIMEOUT_S = 20.0


def candidates(link: ClusterLink, by: Actor) -> Iterator[MirrorTopic]:
    """List, unsaved, the ordinary topics of the link's cluster whose former mirrors on the other side are stopped."""
    other = pairs.other_side(link)
    if other is None:
        return
    now = timezone.now()
    for one in MirrorTopic.objects.filter(link=other, state=MirrorState.STOPPED, deletion_requested_at=None):
        topic = RoleBinding.ResourceType.TOPIC
        if can(by, Permission.VIEW, link=link, resource_type=topic, resource_name=one.source_topic):
            yield _draft(link, one, now=now)


def candidate(link: ClusterLink, name: str, by: Actor) -> MirrorTopic | None:
    """Answer the candidate of this name, unsaved."""
    return next((one for one in candidates(link, by) if one.name == name), None)


def count_divergence(link: ClusterLink, mirrors: Iterable[MirrorTopic]) -> dict[str, tuple[RestorePoint, ...]]:
    """Count, by topic and partition, what a restore would drop now. Topics about which nobody can tell are left out."""
    known = {one.name: _known(one) for one in mirrors if pairs.have_parted(one, pairs.counterpart(one))}
    if not known:
        return {}
    try:
        found = dispatch.call("count_divergence", timeout_s=COUNT_TIMEOUT_S, link_id=link.pk, known=known)
    except (ConsoleError, LinkEngineError):
        return {}
    return {name: tuple(RestorePoint(**one) for one in points) for name, points in found.items()}


def check_deletable(mirror: MirrorTopic) -> None:
    """Raise ConflictError where the restore has to delete the topic, as far as is known, and the cluster deletes none."""
    cluster = mirror.link.destination
    if cluster.deletes_topics is not False:
        return
    points = count_divergence(mirror.link, [mirror]).get(mirror.name)
    if points is None or any(point.diverged for point in points):
        raise ConflictError(
            f"truncate-and-restore deletes topic '{mirror.name}' and creates it again, and cluster '{cluster.name}' deletes no "
            "topics (delete.topic.enable=false). Set delete.topic.enable=true on its brokers and controllers first.",
            code=ErrorCode.TOPIC_DELETION_DISABLED,
        )


def _known(mirror: MirrorTopic) -> dict[str, Any]:
    """Answer, as JSON has it, which topic the other side's is and what the rows know of the common part."""
    parts = pairs.common_parts(mirror, pairs.counterpart(mirror))
    return {"source_topic": mirror.source_topic, "parts": [one.to_json() for one in parts]}


def begin(*, mirror: MirrorTopic, by: Actor, now: datetime) -> MirrorTopic:
    """Begin the restore and its record; call it inside a transaction.

    Raises ConflictError where the other side has been asked to follow this one at the same time: both would be deleted.
    """
    _hold_both(mirror)
    if mirror.pk is None:
        mirror.created_at = mirror.state_since = now
        mirror.created_by = by.name
        mirror.save(force_insert=True)
        transitions.note_creation(mirror=mirror, by=by, now=now)
    facts = {key: value for key, value in reversing.fresh_life().items() if key not in ("fencing_at", "stop_reason")}
    moved = transitions.apply_event(mirror=mirror, event=MirrorEvent.RESTORE, by=by, now=now, reversal="", **facts)
    RestoreRun.objects.create(mirror=moved, requested_by=by.name, requested_at=now)
    return moved


def _hold_both(mirror: MirrorTopic) -> None:
    """Lock the rows of both sides, in one order; whoever comes second sees what the first one did."""
    first = pairs.counterpart(mirror)
    keys = [one.pk for one in (mirror, first) if one is not None and one.pk is not None]
    list(MirrorTopic.objects.select_for_update().filter(pk__in=keys).order_by("pk").values_list("pk"))
    other = pairs.counterpart(mirror)
    if other is not None and (other.state != MirrorState.STOPPED or other.deletion_requested_at is not None):
        raise ConflictError(
            f"Topic '{other.name}' on the other side is {other.state} by now; it has to be STOPPED to be mirrored from."
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
