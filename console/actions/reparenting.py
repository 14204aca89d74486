"""Moves a paused mirror to a link from another copy of its source, without copying anything again.

A is mirrored to B and to C. A is lost and B failed over: C's mirror goes on behind B, if it is a prefix of it. Proof: both name
the same source topic id, and C ends nowhere beyond the offset at which B was fenced. The mirror stays PAUSED until a person
resumes it; nobody copies meanwhile, and its leases and producer ids stay what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from console import audit
from console.access import Permission, can, check_permission, visible_links
from console.actions import mirrors, reversing
from console.actors import Actor
from console.errors import ConflictError, NotFoundError, from_engine
from console.links import pairs
from console.mirrors import lineage
from console.models import ClusterLink, GroupOffset, MirrorPartition, MirrorTopic, RoleBinding, StateTransition
from console.models.links import show_change
from console.models.mirrors import CONFIGS_REFUSED, STAYING
from console.queue import dispatch
from linkengine.domain.configs import follows_start
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import LogRange
from linkengine.domain.reparenting import ReparentPoint, obstacles, reparent_points
from linkengine.domain.states import MirrorState

MEASURE_TIMEOUT_S = 30.0  # the copier may take six to let go, then two clusters are asked
_UNKNOWN_YET = (
    dict.fromkeys(
        (
            "source_start",
            "source_end",
            "last_source_end",
            "last_source_seen_at",
            "last_high_watermark",
            "last_source_fetch_offset",
            "caught_up_at",
        )
    )
    | {"source_epoch": None, "source_epoch_end": None}
    | {
        "bytes_per_s": None,
        "records_per_s": None,
        "behind": True,
        "phase": "",
        "error_code": "",
        "error_message": "",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reparenting:
    """What was, or with a preview would be, done."""

    mirror: MirrorTopic
    link: ClusterLink
    parent: MirrorTopic
    points: tuple[ReparentPoint, ...]


def possible_links(mirror: MirrorTopic, by: Actor) -> list[ClusterLink]:
    """List the links over which the mirror might go on; whether its offsets allow it is measured when it is asked for."""
    if not _may_move(mirror) or not can(by, Permission.OPERATE_MIRROR, mirror=mirror):
        return []
    links = visible_links(by).filter(destination=mirror.link.destination_id, deletion_requested_at=None)
    others = links.exclude(pk=mirror.link_id).exclude(mode="SOURCE").select_related("destination", "source")
    return [one for one in others if _allowed(mirror, one, by) and _find_parent(mirror, one) is not None]


def reparent(*, mirror: MirrorTopic, link_name: str, validate_only: bool, by: Actor, now: datetime) -> Reparenting:
    """Move the mirror to the link ``link_name`` of its cluster; raise ConflictError, with the offsets, where it may not be."""
    check_permission(by, Permission.OPERATE_MIRROR, mirror=mirror)
    links = visible_links(by).select_related("destination__environment", "source")
    link = links.filter(destination=mirror.link.destination_id, name=link_name).first()
    if link is None:
        raise NotFoundError(f"Cluster link '{link_name}' does not exist on this cluster.", code="UNKNOWN_LINK")
    topic = RoleBinding.ResourceType.TOPIC
    check_permission(by, Permission.MANAGE_MIRROR, link=link, resource_type=topic, resource_name=mirror.name)
    parent = _check_rows(mirror, link, by=by)
    points = _measure(mirror, link, parent)
    if not validate_only:
        mirror = _move(mirror, link, parent, ends={one.partition: one.end for one in points}, by=by, now=now)
    return Reparenting(mirror=mirror, link=link, parent=parent, points=points)


def _check_rows(mirror: MirrorTopic, link: ClusterLink, *, by: Actor) -> MirrorTopic:
    """Answer the stopped mirror at the link's source that shall become the parent."""
    if link.pk == mirror.link_id:
        raise ConflictError(f"'{mirror.name}' is a mirror topic of cluster link '{link.name}' already.")
    _check_link(mirror, link)
    if not _may_move(mirror):
        raise ConflictError(f"'{mirror.name}' is {mirror.state}, or a reversal of it is under way. Only a mirror can move.")
    if mirror.state != MirrorState.PAUSED:
        raise ConflictError(f"'{mirror.name}' is {mirror.state}. Pause it first, so that nothing copies while it moves.")
    parent = _find_parent(mirror, link)
    if parent is None:
        raise ConflictError(
            f"On the source of '{link.name}' no stopped mirror is known that was copied from the same source topic "
            f"(id {mirror.source_topic_id}) and whose mirror here is called '{mirror.name}'. Fail it over there first. A topic "
            "that is none can only be mirrored anew."
        )
    if not pairs.was_valid_copy(parent):
        raise ConflictError(
            f"'{parent.name}' on cluster {link.source_cluster_id} had failed when it was stopped, or a comparison found "
            f"records that differ from its source's, so '{mirror.name}' cannot go on behind it. If it is RECORDS_DIFFER, "
            "verify all of it first; else mirror it anew here.",
            code=ErrorCode.SIDES_DIVERGED,
        )
    mirrors.check_ring(MirrorTopic(link=link, name=mirror.name, source_topic=parent.name), by=by)
    return parent


def _check_link(mirror: MirrorTopic, link: ClusterLink) -> None:
    """Refuse a link that takes no mirrors now, or that could not take this one over."""
    mirrors.check_link_state(link)
    if link.gap_filler != mirror.link.gap_filler:
        raise ConflictError(
            f"The principals of '{link.name}' and '{mirror.link.name}' have different rights on the destination, so the one "
            "could not go on where the other stopped. Grant both CLUSTER_ACTION, or neither."
        )


def _may_move(mirror: MirrorTopic) -> bool:
    settled = mirror.holds_copy and not mirror.reversal and mirror.deletion_requested_at is None and mirror.drill_id is None
    return settled and bool(mirror.source_topic_id and mirror.num_partitions) and mirror.state != MirrorState.STOPPED


def _allowed(mirror: MirrorTopic, link: ClusterLink, by: Actor) -> bool:
    topic = RoleBinding.ResourceType.TOPIC
    return can(by, Permission.MANAGE_MIRROR, link=link, resource_type=topic, resource_name=mirror.name)


def _find_parent(mirror: MirrorTopic, link: ClusterLink) -> MirrorTopic | None:
    if not mirror.name.startswith(link.prefix):
        return None
    rows = MirrorTopic.objects.filter(
        link__destination__cluster_id=link.source_cluster_id,
        link__source_cluster_id=mirror.link.source_cluster_id,
        name=mirror.name.removeprefix(link.prefix),
        source_topic_id=mirror.source_topic_id,
        state=MirrorState.STOPPED,
        holds_copy=True,
        drill=None,
        deletion_requested_at=None,
    )
    return rows.exclude(mirror_topic_id="").order_by("-state_since").select_related("link__destination").first()


def _measure(mirror: MirrorTopic, link: ClusterLink, parent: MirrorTopic) -> tuple[ReparentPoint, ...]:
    try:
        found = dispatch.call(
            "measure_reparenting",
            timeout_s=MEASURE_TIMEOUT_S,
            mirror_id=mirror.pk,
            link_id=link.pk,
            parent_topic=parent.name,
        )
    except LinkEngineError as error:
        raise from_engine(error) from error
    _check_ids(mirror, parent, found)
    points = reparent_points(
        _ranges(found["held"]),
        parent=_ranges(found["parent"]),
        fences=pairs.mirrored_ends(parent),
        heads=pairs.first_offsets(parent) if follows_start(link.sync_include) else {},
    )
    reasons = obstacles(points)
    if reasons:
        raise ConflictError(
            f"'{mirror.name}' is no prefix of '{parent.name}' on cluster {link.source_cluster_id}: {'; '.join(reasons)}. "
            "Nothing was changed. Fail this mirror topic over to keep what only it holds, or delete it and mirror the other "
            "one anew.",
            code=ErrorCode.SIDES_DIVERGED,
        )
    return points


def _check_ids(mirror: MirrorTopic, parent: MirrorTopic, found: dict[str, Any]) -> None:
    for one, seen in ((mirror, found["topic_id"]), (parent, found["parent_id"])):
        if seen != one.mirror_topic_id:
            raise ConflictError(
                f"Topic '{one.name}' on cluster {one.link.destination.cluster_id} was deleted and made anew (id {seen}, was "
                f"{one.mirror_topic_id}), so nothing proves what it holds. Delete the mirror topic and create it again.",
                code=ErrorCode.SIDES_DIVERGED,
            )


def _move(
    mirror: MirrorTopic, link: ClusterLink, parent: MirrorTopic, *, ends: dict[int, int], by: Actor, now: datetime
) -> MirrorTopic:
    """Swap the rows, if all is as it was when the offsets were measured: a resume or a restore since then undoes the proof.

    One of both links that is to go fails over or forgets the mirrors it has, and may neither miss this one nor meet it.
    """
    old, changes = mirror.link, _changes(mirror, link, parent)
    same = {"state": MirrorState.PAUSED, "state_since": mirror.state_since, "reversal": "", "deletion_requested_at": None}
    try:
        with transaction.atomic():
            _lock_parent(parent)
            lineage.close_lineage(mirror=mirror, ends=ends, now=now)
            if not MirrorTopic.objects.filter(pk=mirror.pk, link=old, **same).update(**changes):
                raise ConflictError(f"'{mirror.name}' was changed at the same time. Look again, then retry.")
            _check_link(mirror, _lock_links(old, link))
            moved = MirrorTopic.objects.select_related("link__destination__environment", "link__source").get(pk=mirror.pk)
            _forget_source(moved)
            lineage.open_lineage(mirror=moved, starts=ends, now=now)
            _note(moved, old, by=by, now=now, ends=ends)
    except IntegrityError:
        raise ConflictError(f"Cluster link '{link.name}' has a mirror topic '{mirror.name}' already.") from None
    for one in (old, link):
        dispatch.send("reconcile_link", link_id=one.pk)
    return moved


def _changes(mirror: MirrorTopic, link: ClusterLink, parent: MirrorTopic) -> dict[str, Any]:
    moved_before = mirror.first_link_uuid is not None
    return {
        **reversing.fresh_life(),
        "link": link,
        "first_link_number": mirror.first_link_number if moved_before else mirror.link_id,
        "first_link_uuid": mirror.first_link_uuid or mirror.link.link_uuid,
        "source_topic": parent.name,
        "source_topic_id": parent.mirror_topic_id,
    }


def _lock_parent(parent: MirrorTopic) -> None:
    same = MirrorTopic.objects.filter(pk=parent.pk, state=MirrorState.STOPPED, state_since=parent.state_since)
    if not same.filter(deletion_requested_at=None, mirror_topic_id=parent.mirror_topic_id).update(reversal=F("reversal")):
        raise ConflictError(f"'{parent.name}' on the other cluster was changed at the same time. Look again, then retry.")


def _lock_links(old: ClusterLink, link: ClusterLink) -> ClusterLink:
    """Keep both links as they are until the commit, and answer the new one as it is now.

    Nobody is waited for: whoever deletes a link holds it and waits for its mirrors, of which this transaction holds one.
    """
    rows = ClusterLink.objects.select_for_update(of=("self",), skip_locked=True).filter(pk__in=(old.pk, link.pk))
    locked = {one.pk: one for one in rows}
    if len(locked) < 2:
        raise ConflictError(f"'{old.name}' or '{link.name}' was deleted, or is being changed just now. Look again, then retry.")
    return locked[link.pk]


def _forget_source(mirror: MirrorTopic) -> None:
    """Nothing is known yet about the new source, nor compared with it; groups of the old one do not limit this mirror any more.

    What differed from the old source is believed to differ from its copy as well, until a comparison says otherwise.
    """
    MirrorPartition.objects.filter(mirror=mirror).update(**_UNKNOWN_YET)
    GroupOffset.objects.filter(mirror=mirror).delete()
    mirror.verified_ranges.filter(differences=0).delete()
    mirror.transition_errors.exclude(code__in=[*STAYING, CONFIGS_REFUSED]).delete()


def _note(mirror: MirrorTopic, old: ClusterLink, *, by: Actor, now: datetime, ends: dict[int, int]) -> None:
    words = f"from cluster link '{old.name}' to '{mirror.link.name}'"
    StateTransition.objects.create(
        mirror=mirror, from_state=mirror.state, to_state=mirror.state, event="re-parent", by=by.name, at=now, detail=words
    )
    show_change(old.pk, mirror.link_id)
    detail = {"from_link": old.name, "to_link": mirror.link.name, "source_topic": mirror.source_topic, "ends": ends}
    audit.record(by=by, action="ReparentMirrorTopic", resource=audit.path_of(mirror), now=now, detail=detail)


def _ranges(rows: Sequence[dict[str, int]]) -> list[LogRange]:
    return [LogRange(**row) for row in rows]
