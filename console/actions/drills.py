"""Begin a rehearsal of a failover, and keep what came of it. The mirrors themselves are not touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from console import audit, dispatch
from console.access import Permission, check_permission
from console.actions import transitions
from console.actions.rows import lock_link
from console.actors import Actor
from console.errors import ConflictError, InvalidInputError, NotFoundError
from console.models import ClusterLink, Drill, MirrorTopic
from console.models.links import show_change
from linkengine.domain.drills import BATCH, DrillRow, GroupRow, repeated, scratch_name, verdict
from linkengine.domain.errors import ErrorCode
from linkengine.domain.startspec import LATEST, start_problem
from linkengine.domain.states import LinkState, MirrorState

Status = Drill.Status
OVER = (Status.PASSED, Status.FAILED)


def start_drill(*, link: ClusterLink, names: Sequence[str] = (), start_spec: str = LATEST, by: Actor, now: datetime) -> Drill:
    """Make scratch copies of the named mirrors, or of all active ones, some at a time; caught up, they fail over by themselves.

    ``start_spec`` says how much they hold: ``latest`` only what arrives from now on, ``earliest`` everything, or a moment.
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
        drill.topics = [one.name for one in chosen]
        drill.save(update_fields=["topics"])
        _make_copies(chosen[:BATCH], drill, by=by, now=now)
        detail = {"drill": drill.pk, "topics": [one.source_topic for one in chosen], "start": start_spec}
        audit.record(by=by, action="StartFailoverDrill", resource=audit.path_of(link), now=now, detail=detail)
        show_change(link.pk)
    dispatch.send("reconcile_link", link_id=link.pk)
    return drill


def move(*, drill: Drill, status: Status, now: datetime, **changes: object) -> bool:
    """Take the next step, once; answer False where somebody else has taken it."""
    moved = Drill.objects.filter(pk=drill.pk, status=drill.status).update(status=status, status_since=now, **changes)
    show_change(drill.link_id)
    return bool(moved)


def begin_next_batch(*, drill: Drill, by: Actor, now: datetime) -> bool:
    """Make the scratch copies of the topics whose turn it is; answer False where none are left.

    A mirror that is not active any more, and all that a drill with a problem or of a link that is to go does not come to, is
    told of in the report.
    """
    told = {row["mirror_topic_name"] for row in drill.report}
    waiting = [name for name in drill.topics if name not in told]
    why = _why_it_ends(drill)
    active = {} if why else {one.name: one for one in _active(drill.link)}
    why = why or "Not rehearsed: it is no active mirror topic any more."
    missed = [DrillRow(mirror_topic_name=name, scratch_topic_name="", problem=why) for name in waiting if name not in active]
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
    """Close a drill whose scratch copies are gone."""
    rows = [DrillRow(**one) for one in drill.report]
    passed = verdict(rows) and not drill.problem
    move(drill=drill, status=Status.PASSED if passed else Status.FAILED, now=now, finished_at=now)


def report_of(rows: Sequence[DrillRow | GroupRow]) -> list[dict[str, object]]:
    """Answer rows as they are stored."""
    return [asdict(one) for one in rows]


def _why_it_ends(drill: Drill) -> str:
    if drill.problem:
        return "Not rehearsed: the drill ended before."
    going = ClusterLink.objects.exclude(deletion_requested_at=None).filter(pk=drill.link_id).exists()
    return "Not rehearsed: the cluster link is being deleted." if going else ""


def _check_link(link: ClusterLink) -> None:
    if link.deletion_requested_at is not None:
        raise ConflictError(f"Cluster link '{link.name}' is being deleted.")
    if link.state != LinkState.ACTIVE:
        raise ConflictError(f"Cluster link '{link.name}' is {link.state.lower()}. A drill copies from the source first.")
    if link.drills.exclude(status__in=OVER).exists():
        raise ConflictError(f"A drill of cluster link '{link.name}' is under way. Wait until it is over.")
    if link.destination.deletes_topics is False:
        raise ConflictError(
            f"Cluster '{link.destination.name}' deletes no topics (delete.topic.enable=false), so a drill's scratch copies "
            "would stay. Set delete.topic.enable=true on its brokers and controllers first.",
            code=ErrorCode.TOPIC_DELETION_DISABLED,
        )


def _chosen(link: ClusterLink, names: Sequence[str], drill: Drill) -> list[MirrorTopic]:
    mirrors = list(_active(link))
    if names:
        missing = set(names) - {one.name for one in mirrors}
        if missing:
            raise NotFoundError(f"These are no active mirror topics of the link: {', '.join(sorted(missing))}.")
        mirrors = [one for one in mirrors if one.name in set(names)]
    if not mirrors:
        raise ConflictError(f"Cluster link '{link.name}' has no active mirror topic to rehearse with.")
    clashes = repeated((one.name for one in mirrors), drill=drill.pk)
    if clashes:
        raise InvalidInputError(f"These names are too alike for one drill: {', '.join(sorted(clashes))}.")
    return mirrors


def _active(link: ClusterLink) -> QuerySet[MirrorTopic]:
    active = link.mirrors.filter(drill=None, state=MirrorState.ACTIVE, deletion_requested_at=None, num_partitions__gt=0)
    return active.order_by("name")


def _make_copies(mirrors: Sequence[MirrorTopic], drill: Drill, *, by: Actor, now: datetime) -> None:
    for one in mirrors:
        copy = _scratch(one, drill, now=now)
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
