"""Failover drills on scratch copies of mirrors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from console import audit
from console.access import Permission, check_permission
from console.actors import Actor
from console.errors import ConflictError, InvalidInputError, NotFoundError
from console.mirrors import transitions
from console.models import (
    ClusterLink,
    Drill,
    MirrorTopic,
)
from console.models.links import show_change
from console.models.row_changes import lock_link
from console.queue import dispatch
from linkengine.domain.errors import ErrorCode
from linkengine.domain.failover import BATCH, DrillRow, GroupRow, all_passed, repeated, scratch_name
from linkengine.domain.linkrules import LATEST, start_problem
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.states import LinkState, MirrorState

# --- failover drills --------------------------------------------------------------------------------------------------
#
# Drills use scratch copies of mirrors. The mirrors are not touched.


Status = Drill.Status
OVER = (Status.PASSED, Status.FAILED, Status.CANCELED)


def start_drill(*, link: ClusterLink, names: Sequence[str] = (), start_spec: str = LATEST, by: Actor, now: datetime) -> Drill:
    """Create scratch copies of the named mirrors, or of all active mirrors, in batches of ``BATCH``, and store the drill.

    A copy that has caught up is failed over automatically (``console.workflows.drills``). ``start_spec`` is the offset at which
    the copies start: ``latest`` copies only new records, ``earliest`` all records, a timestamp the records from then on.
    """
    check_permission(by, Permission.OPERATE_MIRROR, link=link)
    check_permission(by, Permission.MANAGE_MIRROR, link=link)
    problem = start_problem(start_spec)
    if problem:
        raise InvalidInputError(problem, field="start")
    with transaction.atomic():
        locked = lock_link(link)
        _check_link(locked)
        drill = Drill.objects.create(link=link, status_since=now, start_spec=start_spec, requested_by=by.name, requested_at=now)
        chosen = _chosen(link, names, drill)
        drill.topics = [mirror.name for mirror in chosen]
        drill.save(update_fields=["topics"])
        _make_copies(chosen[:BATCH], drill, by=by, now=now)
        detail = {"drill": drill.pk, "topics": [mirror.source_topic for mirror in chosen], "start": start_spec}
        audit.record(by=by, action="StartFailoverDrill", resource=audit.path_of(link), now=now, detail=detail)
        show_change(link.pk)
    dispatch.send("reconcile_link", link_id=link.pk)
    return drill


def cancel_drill(*, drill: Drill, by: Actor, now: datetime) -> None:
    """Cancel a drill: its scratch copies are deleted, no further topics are copied, and it ends CANCELED.

    Raises ConflictError if it is over. A drill that is canceled already stays as it is.
    """
    check_permission(by, Permission.OPERATE_MIRROR, link=drill.link)
    check_permission(by, Permission.MANAGE_MIRROR, link=drill.link)
    with transaction.atomic():
        lock_link(drill.link)
        stored = Drill.objects.get(pk=drill.pk)
        if stored.status in OVER:
            raise ConflictError(
                gettext_lazy("Drill %(drill)s has ended, so there is nothing to cancel. No action is needed.", drill=drill.pk)
            )
        if stored.canceled_by:
            return
        changes: dict[str, object] = {"canceled_by": by.name, "problem": stored.problem or f"Canceled by {by.name}."}
        if stored.status != Status.CLEANING:
            changes |= {"status": Status.CLEANING, "status_since": now}
        # A step that is in progress changes the status by compare-and-swap only, so it cannot undo this.
        Drill.objects.filter(pk=drill.pk).exclude(status__in=OVER).update(**changes)
        detail = {"drill": drill.pk}
        audit.record(by=by, action="CancelFailoverDrill", resource=audit.path_of(drill.link), now=now, detail=detail)
        show_change(drill.link_id)
    dispatch.send("advance_drill", drill_id=drill.pk)


def running_drill(link: ClusterLink) -> Drill | None:
    """Return the drill of a link that is not over. One query."""
    return link.drills.exclude(status__in=OVER).first()


def check_no_drill(link: ClusterLink) -> None:
    """Raise ConflictError while a drill of a link is in progress: its scratch copies need the link until they are deleted."""
    drill = running_drill(link)
    if drill is not None:
        raise ConflictError(
            gettext_lazy(
                "Failover drill %(drill)s of cluster link '%(link)s' is in progress; its scratch topics are deleted "
                "through the link. Cancel the drill or wait until it has ended, then delete the link.",
                drill=drill.pk,
                link=link.name,
            ),
            code="LINK_IN_USE",
        )


def move(*, drill: Drill, status: Status, now: datetime, **changes: object) -> bool:
    """Set the drill's next status by compare-and-swap; return False if another task has changed the status before."""
    moved = Drill.objects.filter(pk=drill.pk, status=drill.status).update(status=status, status_since=now, **changes)
    show_change(drill.link_id)
    return bool(moved)


def begin_next_batch(*, drill: Drill, by: Actor, now: datetime) -> bool:
    """Create the scratch copies of the next topics without a report row; return False if no topic is left.

    A topic that cannot be part of the drill gets a report row with the reason: its mirror is not active, the drill has a
    problem, or the link is being deleted.
    """
    reported = {row["mirror_topic_name"] for row in drill.report}
    waiting = [name for name in drill.topics if name not in reported]
    reason = _end_reason(drill)
    active = {} if reason else {mirror.name: mirror for mirror in _active(drill.link)}
    reason = reason or "Not rehearsed: the mirror topic is not active."
    missed = [DrillRow(mirror_topic_name=name, scratch_topic_name="", problem=reason) for name in waiting if name not in active]
    batch = [active[name] for name in waiting if name in active][:BATCH]
    with transaction.atomic():
        drill.report = [*drill.report, *report_of(missed)]
        Drill.objects.filter(pk=drill.pk).update(report=drill.report)
        if not batch or not move(drill=drill, status=Status.PREPARING, now=now):
            return False
        _make_copies(batch, drill, by=by, now=now)
    dispatch.send("reconcile_link", link_id=drill.link_id)
    return True


def conclude(*, drill: Drill, now: datetime) -> None:
    """Set the final status of a drill whose scratch copies have been deleted."""
    rows = [DrillRow(**values) for values in drill.report]
    passed = all_passed(rows) and not drill.problem
    canceled = Drill.objects.filter(pk=drill.pk).exclude(canceled_by="").exists()
    drill.stop_reports.all().delete()  # of the scratch copies; the drill's report has their figures
    status = Status.CANCELED if canceled else Status.PASSED if passed else Status.FAILED
    move(drill=drill, status=status, now=now, finished_at=now)


def report_of(rows: Sequence[DrillRow | GroupRow]) -> list[dict[str, object]]:
    """Return report rows as JSON objects for the database."""
    return [asdict(row) for row in rows]


def _end_reason(drill: Drill) -> str:
    if drill.canceled_by:
        return "Not rehearsed: the drill was canceled."
    if drill.problem:
        return "Not rehearsed: the drill ended early because of a problem."
    deleting = ClusterLink.objects.exclude(deletion_requested_at=None).filter(pk=drill.link_id).exists()
    return "Not rehearsed: the cluster link is being deleted." if deleting else ""


def _check_link(link: ClusterLink) -> None:
    if link.deletion_requested_at is not None:
        raise ConflictError(gettext_lazy("Cluster link '%(link)s' is being deleted. Choose another link.", link=link.name))
    if link.state != LinkState.ACTIVE:
        raise ConflictError(
            gettext_lazy(
                "Cluster link '%(link)s' is %(state)s, so its drill could not copy from the source. Wait until the "
                "link is active, then retry.",
                link=link.name,
                state=link.state.lower(),
            )
        )
    if link.drills.exclude(status__in=OVER).exists():
        raise ConflictError(
            gettext_lazy(
                "A drill of cluster link '%(link)s' is in progress. Wait until it has finished, then retry.", link=link.name
            )
        )
    if link.destination.deletes_topics is False:
        raise ConflictError(
            gettext_lazy(
                "Topic deletion is disabled on cluster '%(cluster)s' (delete.topic.enable=false), so the drill's "
                "scratch topics could not be deleted. Set delete.topic.enable=true on its brokers and controllers "
                "first.",
                cluster=link.destination.name,
            ),
            code=ErrorCode.TOPIC_DELETION_DISABLED,
        )


def _chosen(link: ClusterLink, names: Sequence[str], drill: Drill) -> list[MirrorTopic]:
    mirrors = list(_active(link))
    if names:
        missing = set(names) - {mirror.name for mirror in mirrors}
        if missing:
            raise NotFoundError(
                gettext_lazy(
                    "Not active mirror topics of cluster link '%(link)s': %(names)s. Correct the names, or "
                    "leave them out for all active mirror topics.",
                    link=link.name,
                    names=", ".join(sorted(missing)),
                )
            )
        mirrors = [mirror for mirror in mirrors if mirror.name in set(names)]
    if not mirrors:
        raise ConflictError(
            gettext_lazy(
                "Cluster link '%(link)s' has no active mirror topics, so there is nothing to "
                "copy. Create or resume mirror topics first.",
                link=link.name,
            )
        )
    clashes = repeated((mirror.name for mirror in mirrors), drill=drill.pk)
    if clashes:
        raise InvalidInputError(
            gettext_lazy(
                "The scratch copies of these topics would get the same name: %(names)s. Run a drill for each.",
                names=", ".join(sorted(clashes)),
            )
        )
    return mirrors


def _active(link: ClusterLink) -> QuerySet[MirrorTopic]:
    active = link.mirrors.listed().filter(state=MirrorState.ACTIVE, deletion_requested_at=None, num_partitions__gt=0)
    return active.order_by("name")


def _make_copies(mirrors: Sequence[MirrorTopic], drill: Drill, *, by: Actor, now: datetime) -> None:
    for mirror in mirrors:
        copy = _scratch(mirror, drill, now=now)
        copy.save(force_insert=True)
        transitions.note_creation(mirror=copy, by=by, now=now)


def _scratch(mirror: MirrorTopic, drill: Drill, *, now: datetime) -> MirrorTopic:
    return MirrorTopic(
        link=mirror.link,
        drill=drill,
        name=scratch_name(mirror.name, drill=drill.pk),
        source_topic=mirror.source_topic,
        start_spec=drill.start_spec,
        replication_factor=mirror.replication_factor,
        config_overrides=mirror.config_overrides,
        state_since=now,
        created_at=now,
        created_by=drill.requested_by,
    )
