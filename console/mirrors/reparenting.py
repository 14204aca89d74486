"""Re-parents a paused mirror: moves it to a link from another copy of its source, without copying any record again.

Topic A is mirrored to B and to C. A is lost and B is failed over. The mirror C can continue from B if it is a prefix of B. This
is proved by two facts: both have the same source topic id, and no partition of C ends beyond the offset at which B was fenced.
The mirror stays PAUSED until a person resumes it. No worker copies it until then, and its lease names and producer ids do not
change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet

from console import audit
from console.access import Permission, can, check_permission, visible_links
from console.actors import Actor
from console.errors import ConflictError, NotFoundError, from_engine
from console.links import pairs
from console.mirrors import actions as mirror_actions
from console.mirrors import lineage, reversals
from console.models import (
    ClusterLink,
    GroupOffset,
    MirrorPartition,
    MirrorTopic,
    RoleBinding,
    StateTransition,
    StateTransitionError,
)
from console.models.links import show_change
from console.models.mirrors import CONFIGS_REFUSED, STAYING
from console.queue import dispatch
from linkengine.domain.configs import follows_start
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.messages import gettext_lazy, join_messages
from linkengine.domain.mirrorjobs import ReparentPoint, obstacles, reparent_points
from linkengine.domain.plans import LogRange
from linkengine.domain.states import MirrorState

MEASURE_TIMEOUT_S = 30.0  # the copy worker may take six to release its leases, then two clusters are read
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
    """A move that was done, or that a preview found possible."""

    mirror: MirrorTopic
    link: ClusterLink
    parent: MirrorTopic
    points: tuple[ReparentPoint, ...]


def possible_links(mirror: MirrorTopic, by: Actor) -> list[ClusterLink]:
    """Return the links to which the mirror might move; whether its offsets allow it is measured on request. Two queries."""
    if not _may_move(mirror) or not can(by, Permission.OPERATE_MIRROR, mirror=mirror):
        return []
    links = visible_links(by).filter(destination=mirror.link.destination_id, deletion_requested_at=None)
    others = links.exclude(pk=mirror.link_id).exclude(mode="SOURCE").select_related("destination__environment", "source")
    allowed = [link for link in others if mirror.name.startswith(link.prefix) and _allowed(mirror, link, by)]
    if not allowed:
        return []
    clusters = {link.source_cluster_id for link in allowed}
    names = {mirror.name.removeprefix(link.prefix) for link in allowed}
    parents = _parents(mirror).filter(link__destination__cluster_id__in=clusters, name__in=names)
    known = set(parents.values_list("link__destination__cluster_id", "name"))
    return [link for link in allowed if (link.source_cluster_id, mirror.name.removeprefix(link.prefix)) in known]


def reparent(*, mirror: MirrorTopic, link_name: str, validate_only: bool, by: Actor, now: datetime) -> Reparenting:
    """Move the mirror to the link ``link_name`` of its cluster; raise ConflictError, with the offsets, if it may not move."""
    check_permission(by, Permission.OPERATE_MIRROR, mirror=mirror)
    links = visible_links(by).select_related("destination__environment", "source")
    link = links.filter(destination=mirror.link.destination_id, name=link_name).first()
    if link is None:
        raise NotFoundError(
            gettext_lazy("Cluster link '%(link_name)s' does not exist on this cluster.", link_name=link_name),
            code="UNKNOWN_LINK",
        )
    topic = RoleBinding.ResourceType.TOPIC
    check_permission(by, Permission.MANAGE_MIRROR, link=link, resource_type=topic, resource_name=mirror.name)
    parent = _check_rows(mirror, link, by=by)
    points = _measure(mirror, link, parent)
    if not validate_only:
        mirror = _move(mirror, link, parent, ends={point.partition: point.end for point in points}, by=by, now=now)
    return Reparenting(mirror=mirror, link=link, parent=parent, points=points)


def _check_rows(mirror: MirrorTopic, link: ClusterLink, *, by: Actor) -> MirrorTopic:
    """Return the stopped mirror on the link's source that becomes the parent; raise ConflictError if rows forbid the move."""
    if link.pk == mirror.link_id:
        raise ConflictError(
            gettext_lazy("'%(topic)s' is a mirror topic of cluster link '%(link)s' already.", topic=mirror.name, link=link.name)
        )
    _check_link(mirror, link)
    if not _may_move(mirror):
        raise ConflictError(
            gettext_lazy(
                "'%(topic)s' is %(state)s, or a reversal of it is under way. Only a mirror can move.",
                topic=mirror.name,
                state=mirror.state,
            )
        )
    if mirror.state != MirrorState.PAUSED:
        raise ConflictError(
            gettext_lazy(
                "'%(topic)s' is %(state)s. Pause it first, so that nothing copies while it moves.",
                topic=mirror.name,
                state=mirror.state,
            )
        )
    parent = _find_parent(mirror, link)
    if parent is None:
        raise ConflictError(
            gettext_lazy(
                "The source of '%(link)s' has no stopped mirror topic that was copied from the same source topic "
                "(id %(id)s) and whose mirror here would be named '%(topic)s'. Fail it over there first. For a "
                "topic that was not a mirror topic, create a new mirror topic instead.",
                link=link.name,
                id=mirror.source_topic_id,
                topic=mirror.name,
            )
        )
    if not pairs.was_valid_copy(parent):
        raise ConflictError(
            gettext_lazy(
                "'%(parent)s' on cluster %(cluster)s had failed when it was stopped, or verification found records "
                "that differ from its source's, so '%(topic)s' cannot continue from it. If its error is "
                "RECORDS_DIFFER, verify the whole topic first. Otherwise delete this mirror topic and create it "
                "again.",
                parent=parent.name,
                cluster=link.source_cluster_id,
                topic=mirror.name,
            ),
            code=ErrorCode.SIDES_DIVERGED,
        )
    mirror_actions.check_ring(MirrorTopic(link=link, name=mirror.name, source_topic=parent.name), by=by)
    return parent


def _check_link(mirror: MirrorTopic, link: ClusterLink) -> None:
    """Raise ConflictError if the link takes no mirrors now, or cannot take over this mirror."""
    mirror_actions.check_link_state(link)
    if link.gap_filler != mirror.link.gap_filler:
        raise ConflictError(
            gettext_lazy(
                "The principals of '%(link)s' and '%(old)s' have different rights on the destination, so the new "
                "link cannot continue where the old link stopped. Grant both CLUSTER_ACTION, or neither.",
                link=link.name,
                old=mirror.link.name,
            )
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
    rows = _parents(mirror).filter(
        link__destination__cluster_id=link.source_cluster_id, name=mirror.name.removeprefix(link.prefix)
    )
    return rows.order_by("-state_since").select_related("link__destination").first()


def _parents(mirror: MirrorTopic) -> QuerySet[MirrorTopic]:
    """Return the stopped mirrors, on any cluster, that were copied from the same source topic."""
    rows = MirrorTopic.objects.filter(
        link__source_cluster_id=mirror.link.source_cluster_id,
        source_topic_id=mirror.source_topic_id,
        state=MirrorState.STOPPED,
        holds_copy=True,
        drill=None,
        deletion_requested_at=None,
    )
    return rows.exclude(mirror_topic_id="")


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
            gettext_lazy(
                "'%(topic)s' is not a prefix of '%(parent)s' on cluster %(cluster)s: %(reasons)s. Nothing was "
                "changed. Fail this mirror topic over to keep the records that only it holds, or delete it and "
                "create it again over '%(link)s'.",
                topic=mirror.name,
                parent=parent.name,
                cluster=link.source_cluster_id,
                reasons=join_messages("; ", reasons),
                link=link.name,
            ),
            code=ErrorCode.SIDES_DIVERGED,
        )
    return points


def _check_ids(mirror: MirrorTopic, parent: MirrorTopic, found: dict[str, Any]) -> None:
    for row, topic_id in ((mirror, found["topic_id"]), (parent, found["parent_id"])):
        if topic_id != row.mirror_topic_id:
            raise ConflictError(
                gettext_lazy(
                    "Topic '%(topic)s' on cluster %(cluster)s was deleted and created again (id %(topic_id)s, was "
                    "%(known_id)s), so its contents are unknown. Delete the mirror topic and create it again.",
                    topic=row.name,
                    cluster=row.link.destination.cluster_id,
                    topic_id=topic_id,
                    known_id=row.mirror_topic_id,
                ),
                code=ErrorCode.SIDES_DIVERGED,
            )


def _move(
    mirror: MirrorTopic, link: ClusterLink, parent: MirrorTopic, *, ends: dict[int, int], by: Actor, now: datetime
) -> MirrorTopic:
    """Move the rows to the new link if they are as they were when the offsets were measured.

    A resume or a restore since then would make the measured offsets wrong. Both links are locked and the new link is checked:
    the deletion of a link fails over or deletes its mirrors, and must neither miss this mirror nor act on it during the move.
    """
    old, changes = mirror.link, _changes(mirror, link, parent)
    same = {"state": MirrorState.PAUSED, "state_since": mirror.state_since, "reversal": "", "deletion_requested_at": None}
    try:
        with transaction.atomic():
            _lock_parent(parent)
            lineage.close_lineage(mirror=mirror, ends=ends, now=now)
            if not MirrorTopic.objects.filter(pk=mirror.pk, link=old, **same).update(**changes):
                raise ConflictError(
                    gettext_lazy("'%(topic)s' was changed at the same time. Refresh, then retry.", topic=mirror.name)
                )
            _check_link(mirror, _lock_links(old, link))
            moved = MirrorTopic.objects.select_related("link__destination__environment", "link__source").get(pk=mirror.pk)
            _forget_source(moved, now=now)
            lineage.open_lineage(mirror=moved, starts=ends, now=now)
            _note(moved, old, by=by, now=now, ends=ends)
    except IntegrityError:
        raise ConflictError(
            gettext_lazy("Cluster link '%(link)s' has a mirror topic '%(topic)s' already.", link=link.name, topic=mirror.name)
        ) from None
    for link_id in (old.pk, link.pk):
        dispatch.send("reconcile_link", link_id=link_id)
    return moved


def _changes(mirror: MirrorTopic, link: ClusterLink, parent: MirrorTopic) -> dict[str, Any]:
    moved_before = mirror.first_link_uuid is not None
    return {
        **reversals.initial_values(),
        "link": link,
        "first_link_number": mirror.first_link_number if moved_before else mirror.link_id,
        "first_link_uuid": mirror.first_link_uuid or mirror.link.link_uuid,
        "source_topic": parent.name,
        "source_topic_id": parent.mirror_topic_id,
    }


def _lock_parent(parent: MirrorTopic) -> None:
    same = MirrorTopic.objects.filter(pk=parent.pk, state=MirrorState.STOPPED, state_since=parent.state_since)
    if not same.filter(deletion_requested_at=None, mirror_topic_id=parent.mirror_topic_id).update(reversal=F("reversal")):
        raise ConflictError(
            gettext_lazy(
                "'%(parent)s' on the other cluster was changed at the same time. Refresh, then retry.", parent=parent.name
            )
        )


def _lock_links(old: ClusterLink, link: ClusterLink) -> ClusterLink:
    """Lock both links until the commit, and return the new link as it is now; raise ConflictError if either is locked or gone.

    It does not wait for a lock, to avoid a deadlock: the deletion of a link locks the link and then waits for its mirrors, and
    this transaction has locked one.
    """
    rows = ClusterLink.objects.select_for_update(of=("self",), skip_locked=True).filter(pk__in=(old.pk, link.pk))
    locked = {row.pk: row for row in rows}
    if len(locked) < 2:
        raise ConflictError(
            gettext_lazy(
                "'%(old)s' or '%(link)s' was deleted, or is being changed just now. Refresh, then retry.",
                old=old.name,
                link=link.name,
            )
        )
    return locked[link.pk]


def _forget_source(mirror: MirrorTopic, *, now: datetime) -> None:
    """Reset what was observed of the old source and verified against it; the old source's groups no longer limit this mirror.

    Ranges that differed from the old source count as different from the new source, too, until they are verified again.
    """
    MirrorPartition.objects.filter(mirror=mirror).update(**_UNKNOWN_YET)
    GroupOffset.objects.filter(mirror=mirror).delete()
    mirror.verified_ranges.filter(differences=0).delete()
    StateTransitionError.objects.filter(mirror=mirror).exclude(code__in=[*STAYING, CONFIGS_REFUSED]).end(now=now)


def _note(mirror: MirrorTopic, old: ClusterLink, *, by: Actor, now: datetime, ends: dict[int, int]) -> None:
    text = f"from cluster link '{old.name}' to '{mirror.link.name}'"
    StateTransition.objects.create(
        mirror=mirror, from_state=mirror.state, to_state=mirror.state, event="re-parent", by=by.name, at=now, detail=text
    )
    show_change(old.pk, mirror.link_id)
    detail = {"from_link": old.name, "to_link": mirror.link.name, "source_topic": mirror.source_topic, "ends": ends}
    audit.record(by=by, action="ReparentMirrorTopic", resource=audit.path_of(mirror), now=now, detail=detail)


def _ranges(rows: Sequence[dict[str, int]]) -> list[LogRange]:
    return [LogRange(**row) for row in rows]
