"""Finds the offsets at which two topics with a common history diverge, and exports the diverged records before a restore.

Topics are compared by id, because a topic that was deleted and created again has the same name but other records. Where the
two topics of a partition are known to differ is a ``RestorePoint``:

    offset     start          other_start              common              end
    here         |──── head ─────|── on both sides ───────|───── tail ──────|
    other side                   |────────────────────────|── other records, if any

A restore deletes the topic here. A record may be deleted only if it is in the export file or on the other side. Head and tail
exist only here and are exported. Both can grow while a long file is written, which may take hours:

* Retention of the other side deletes its oldest records. The head grows, and the new part is appended to the file, until
  nothing is added.
* A super user writes to this topic, although its ACLs keep producers out. The tail grows, and the export starts over
  (SIDES_DIVERGED, retried automatically).
* The other side loses common records. Before the deletion is decided this stops the restore; after that, the tail grows and
  the export starts over.

A complete file is compared with both sides once more on each path to the deletion, since the worker that wrote it may have
crashed before it deleted the topic. From ``RestoreRun.deletion_decided_at`` on, the deletion is decided and may have been
requested already.

Each decision has a time of its own, which is checked directly before the request for the deletion is sent
(``delete_as_decided``). So a worker that was suspended deletes nothing after the decision was reverted (``keep_topic``), and a
request that was sent before has no effect after ``LATE``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import product
from typing import NamedTuple

import structlog
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from console import audit
from console.actors import ENGINE
from console.mirrors import diverged_exports
from console.models import MirrorTopic, RestoreRun
from console.models.mirrors import RECORDS_LOST
from console.reconciling import plans, transition_errors
from console.workflows.mirrors import REFUSED_DELETION, PreemptedError, note_failure
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import (
    CommonPart,
    RestorePoint,
    as_held_now,
    common_ends,
    ends_behind_takeover_markers,
    not_common,
    restore_points,
)
from linkengine.domain.plans import LogRange
from linkengine.domain.ranges import OffsetRange

# How late a requested deletion may take effect: a broker forwards the request to the controller for at most 60 s, which drops
# it after its timeout of 20 s; what a dead process had not sent is dropped (SO_LINGER 0). The rest is reserve.
LATE = timedelta(minutes=3)
_log = structlog.get_logger(__name__)

# --- common part and divergence ---------------------------------------------------------------------------------------


class ClusterTopic(NamedTuple):
    """A topic name and the cluster that has the topic."""

    address: ClusterAddress
    name: str


class Divergence(NamedTuple):
    """Two topics, by id, and the restore point of each partition: where the two diverge."""

    here_id: str
    there_id: str
    points: tuple[RestorePoint, ...]


def log_ranges_of(address: ClusterAddress, topic: str, *, closed: bool) -> tuple[str, Sequence[LogRange]]:
    """Return the topic's id and the log range of each partition. ``closed``: no producer may write, so the ends are final.

    Raises UNKNOWN_TOPIC_OR_PARTITION_ERROR if the topic does not exist, and the errors of ``jobs.log_ranges``.
    """
    found = jobs.find_topic(address, topic)
    if found is None:
        raise LinkEngineError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR,
            f"Topic {topic!r} no longer exists. Check why it was deleted, and create it again if it is still needed.",
        )
    return found.topic_id, jobs.log_ranges(address, topic, closed=closed)


def find_divergence(
    here: ClusterTopic, there: ClusterTopic, *, parts: Iterable[CommonPart], held: tuple[str, Sequence[LogRange]] | None = None
) -> Divergence:
    """Find where two topics diverge, from what is known of their common part and from their current log ranges.

    ``held`` is the current range of the topic here, if the caller has just read it. If a source has lost records since they
    were copied (an unclean leader election, a cluster restored from a snapshot), the two have only the records before the loss
    in common (KIP-101). If a mirror has lost its end after it was stopped, how much it lost is not known, and nothing is
    common.
    """
    here_id, ranges_here = held or log_ranges_of(*here, closed=False)
    there_id, ranges_there = log_ranges_of(*there, closed=False)
    common = common_now(here, there, parts=parts, ids=(here_id, there_id))
    return Divergence(here_id, there_id, restore_points(ranges_here, common=common, other=ranges_there))


def common_now(here: ClusterTopic, there: ClusterTopic, *, parts: Iterable[CommonPart], ids: tuple[str, str]) -> dict[int, int]:
    """Return, by partition, up to which offset the two topics of these ids are the same, as both clusters confirm now."""
    fenced = [_with_fences(part, here, there) for part in parts if (part.here_id, part.there_id) == ids]
    confirmed = [_as_kept(part, here, there) for part in fenced]
    common = common_ends(confirmed, here_id=ids[0], there_id=ids[1])
    for stopped, taken in product(confirmed, fenced):
        for partition, end in ends_behind_takeover_markers(stopped, taken).items():
            common[partition] = max(end, common.get(partition, 0))
    return common


def _with_fences(part: CommonPart, here: ClusterTopic, there: ClusterTopic) -> CommonPart:
    """Return the common part without partitions whose copy has lost its fence."""
    copy = there if part.source_is_here else here
    lost = jobs.lost_fences(*copy, fences=part.fences, epochs=part.fence_epochs, by_markers=part.by_markers)
    return part.without(lost)


def _as_kept(part: CommonPart, here: ClusterTopic, there: ClusterTopic) -> CommonPart:
    """Return the common part up to where the leader epoch history of its source still matches."""
    source = here if part.source_is_here else there
    return part.as_kept(jobs.kept_up_to(*source, epochs=part.epochs))


# --- the decided deletion ---------------------------------------------------------------------------------------------


def delete_as_decided(mirror: MirrorTopic, run: RestoreRun, *, decided_at: datetime) -> None:
    """Delete the diverged topic. Raises PreemptedError if its deletion was reverted, or decided again, since ``decided_at``."""

    def check_owner() -> None:
        if not RestoreRun.objects.filter(pk=run.pk, deletion_decided_at=decided_at).exists():
            raise PreemptedError

    here = mirror.link.destination.address
    jobs.delete_diverged(destination=here, topic=mirror.name, topic_id=run.diverged_topic_id, check_owner=check_owner)


def redecide(run: RestoreRun, *, now: datetime) -> datetime:
    """Decide the deletion again, for another attempt. Raises PreemptedError if another worker has changed the decision."""
    if not RestoreRun.objects.filter(pk=run.pk, deletion_decided_at=run.deletion_decided_at, finished_at=None).update(
        deletion_decided_at=now
    ):
        raise PreemptedError
    run.deletion_decided_at = now
    return now


def keep_topic(mirror: MirrorTopic, run: RestoreRun, *, now: datetime) -> None:
    """Revert the decision and end the restore: the topic stays with all its records.

    Raises PreemptedError if another worker has changed the decision.
    """
    with transaction.atomic():
        undecided = RestoreRun.objects.filter(pk=run.pk, deletion_decided_at=run.deletion_decided_at, finished_at=None)
        if not undecided.update(finished_at=now, deletion_decided_at=None):
            raise PreemptedError
        MirrorTopic.objects.filter(pk=mirror.pk).update(mirror_topic_id=run.diverged_topic_id)
    mirror.mirror_topic_id = run.diverged_topic_id


# --- the topic of an interrupted restore ------------------------------------------------------------------------------


def finish_decided_deletion(mirror: MirrorTopic) -> bool:
    """Finish the deletion that an interrupted restore has started, or revert it. False: it has to be tried again.

    Otherwise producers would write to a topic about to be deleted.
    """
    run = mirror.restores.filter(finished_at=None).exclude(deletion_decided_at=None).first()
    if run is None:
        return True
    here = mirror.link.destination.address
    try:
        if not _try_export(mirror, run) or not _try_deletion(mirror, run):
            return True
        if jobs.find_topic(here, mirror.name) is None:
            jobs.open_topic(here, mirror.name)
    except LinkEngineError as error:
        note_failure(mirror, error, fatal=False, now=timezone.now())
        return False
    except PreemptedError:
        _log.warning("restore.deletion_redecided", mirror=mirror.name)
        return False
    mirror.restores.filter(pk=run.pk).update(finished_at=timezone.now())
    return True


def _try_export(mirror: MirrorTopic, run: RestoreRun) -> bool:
    """Export what is to be deleted. False if that is not possible: then the topic is kept with all its records.

    The file of the restore was complete when the deletion was decided. It has to be written again if it was lost, if a super
    user wrote to the topic, or if the other side lost records, and by now the disk may be full or a record unreadable. Raises
    the error while an earlier request may still delete the topic (``LATE``).
    """
    try:
        export_diverged(mirror, run)
    except LinkEngineError as error:
        found = jobs.find_topic(mirror.link.destination.address, mirror.name)
        if found is None or found.topic_id != run.diverged_topic_id or run.deletion_decided_at is None:
            raise  # deleted since: the next attempt notices
        keep_at = run.deletion_decided_at + LATE
        if timezone.now() < keep_at:
            message = f"{error.message} If that is still so at {keep_at:%H:%M:%S} UTC, the topic is kept with all its records."
            raise LinkEngineError(error.code, message) from error
        _keep_and_audit(mirror, run, error)
        return False
    return True


def _try_deletion(mirror: MirrorTopic, run: RestoreRun) -> bool:
    """Delete the topic of an interrupted restore. False if the cluster refuses: then it is kept with all its records."""
    try:
        delete_as_decided(mirror, run, decided_at=redecide(run, now=timezone.now()))
    except LinkEngineError as error:
        if error.code not in REFUSED_DELETION:
            raise
        _keep_and_audit(mirror, run, error)
        return False
    return True


def _keep_and_audit(mirror: MirrorTopic, run: RestoreRun, error: LinkEngineError) -> None:
    now, detail = timezone.now(), {"restore": run.pk, "code": error.code, "reason": error.message}
    with transaction.atomic():
        keep_topic(mirror, run, now=now)
        audit.record(by=ENGINE, action="KeepDivergedTopic", resource=audit.path_of(mirror), now=now, detail=detail)
    _log.warning("restore.topic_kept", mirror=mirror.name, code=error.code)


# --- the export -------------------------------------------------------------------------------------------------------


def export_diverged(mirror: MirrorTopic, run: RestoreRun, *, check_owner: Callable[[], None] = lambda: None) -> None:
    """Export all diverged records up to the topic's ends. Raises SIDES_DIVERGED if there are new records; call it again then.

    ``check_owner`` is called before each record and raises if a failover waits for the export to stop.
    """
    run.refresh_from_db()
    _discard_lost_file(mirror, run)
    if run.exported_at is None and run.deletion_decided_at is not None and not _held(mirror, run):
        _note_already_deleted(mirror, run, now=timezone.now())
        return
    if run.exported_at is None:
        _export(mirror, run, _refresh_points(mirror, run), check_owner=check_owner)
    _refresh_points(mirror, run)


def _discard_lost_file(mirror: MirrorTopic, run: RestoreRun) -> None:
    """Export again if the file has disappeared since, as long as the topic still has the records."""
    if diverged_exports.is_lost(run) and _held(mirror, run):
        _log.warning("export.lost", mirror=mirror.name, file=run.export_name)
        RestoreRun.objects.filter(pk=run.pk, exported_at=run.exported_at).update(exported_at=None)
        run.refresh_from_db()


def _note_already_deleted(mirror: MirrorTopic, run: RestoreRun, *, now: datetime) -> None:
    """Raise an alarm and keep the file as it is: a delayed request deleted the topic before the export was complete again."""
    _log.warning("export.not_renewed", mirror=mirror.name, file=run.export_name)
    message = (
        f"'{mirror.name}' was deleted by a delayed request before the export of its diverged records was complete. Records "
        f"that were written to it, or that '{mirror.source_topic}' lost, after its deletion was decided may not exist "
        "anywhere. The export file of the restore, if there is one, has all earlier records."
    )
    transition_errors.note(mirror=mirror, code=RECORDS_LOST, message=message, now=now)
    RestoreRun.objects.filter(pk=run.pk, exported_at=None).exclude(export_name="").update(exported_at=now)
    run.refresh_from_db()


def _refresh_points(mirror: MirrorTopic, run: RestoreRun) -> tuple[RestorePoint, ...]:
    """Return the current restore points. Raises SIDES_DIVERGED, after storing them, if they require another export.

    They do if a producer wrote to the topic, if common records were lost, or if a complete file lacks records.
    """
    before = run.restore_points
    points = _current_points(mirror, run)
    grown, lost = _grown(before, points), not_common(before, common={point.partition: point.common for point in points})
    gone = _gone(before, points) if run.exported_at is not None else ()
    if grown or lost or gone:
        changed = [{**asdict(point), "records": None} for point in points]
        RestoreRun.objects.filter(pk=run.pk).update(points=changed, exported_at=None)
        raise LinkEngineError(ErrorCode.SIDES_DIVERGED, _why_again(mirror, grown=grown, lost=lost, gone=gone))
    return points


def _grown(before: Iterable[RestorePoint], points: Iterable[RestorePoint]) -> tuple[int, ...]:
    """List the partitions whose end has moved, and the new partitions that have records."""
    ends = {old.partition: old.end for old in before}
    return tuple(point.partition for point in points if point.end != ends.get(point.partition))


def _gone(before: Iterable[RestorePoint], points: Iterable[RestorePoint]) -> dict[int, OffsetRange]:
    """Return, by partition, the offsets that only this side has now: the other side had them before."""
    starts = {old.partition: old.other_start for old in before}
    heads = {point.partition: point.head_since(starts[point.partition]) for point in points if point.partition in starts}
    return {partition: head for partition, head in heads.items() if head}


def _why_again(mirror: MirrorTopic, *, grown: Collection[int], lost: Collection[int], gone: Collection[int]) -> str:
    if grown:
        return (
            f"Records were written to '{mirror.name}', partition {min(grown)}, although it is closed to producers. They are "
            "exported too; the restore is retried automatically."
        )
    if lost:
        return (
            f"'{mirror.source_topic}' was deleted, or lost records of partition {min(lost)}, after the deletion of "
            f"'{mirror.name}' was decided. The records that only '{mirror.name}' has now are exported first."
        )
    return (
        f"Retention removed records of '{mirror.source_topic}', partition {min(gone)}, that '{mirror.name}' still has. "
        "They are exported too; the restore is retried automatically."
    )


def _current_points(mirror: MirrorTopic, run: RestoreRun) -> tuple[RestorePoint, ...]:
    held = _without_takeover_markers(mirror, run, _held(mirror, run))
    if run.deletion_decided_at is None:
        return as_held_now(run.restore_points, held=held, other=check_common(mirror, run))
    other, common = _other_side_after_decision(mirror, run) if held else ((), None)
    return as_held_now(run.restore_points, held=held, other=other, common=common)


def _without_takeover_markers(mirror: MirrorTopic, run: RestoreRun, held: tuple[LogRange, ...]) -> tuple[LogRange, ...]:
    """Leave out the marker that an interrupted takeover of this topic has appended, since no other producer wrote it."""
    ends = {point.partition: point.common for point in run.restore_points} if run.in_place else {}
    grown = {part.partition: ends[part.partition] for part in held if part.end - 1 == ends.get(part.partition)}
    taken_over = jobs.taken_over_before(plans.takeover_of(mirror, ends=grown, generation=0)) if grown else ()
    return tuple(replace(part, end=part.end - 1) if part.partition in taken_over else part for part in held)


def check_common(mirror: MirrorTopic, run: RestoreRun) -> tuple[LogRange, ...]:
    """Return the log ranges of the topic that is to be copied. Raises SIDES_DIVERGED unless it still has all common records.

    Hours may pass while records are exported, and once the deletion of the topic here is decided, the other topic is the only
    copy. So everything that confirmed the common part is checked again: topic ids, ends, fences and leader epoch histories.
    """
    there = ClusterTopic(plans.source_address(mirror.link), mirror.source_topic)
    topic_id, ranges = log_ranges_of(*there, closed=False)
    renewed = topic_id != run.source_topic_id
    lost = () if renewed else not_common(run.restore_points, common=_common_now(mirror, run, ranges))
    if renewed or lost:
        raise LinkEngineError(ErrorCode.SIDES_DIVERGED, _why_stopped(mirror, lost))
    return tuple(ranges)


def _common_now(mirror: MirrorTopic, run: RestoreRun, there_ranges: Iterable[LogRange]) -> dict[int, int]:
    """Return, by partition, the current end of the common part."""
    ends = {part.partition: part.end for part in there_ranges}
    here, there = (
        ClusterTopic(mirror.link.destination.address, mirror.name),
        ClusterTopic(plans.source_address(mirror.link), mirror.source_topic),
    )
    common = common_now(here, there, parts=run.common_parts, ids=(run.diverged_topic_id, run.source_topic_id))
    return {partition: min(end, ends.get(partition, 0)) for partition, end in common.items()}


def _why_stopped(mirror: MirrorTopic, lost: Sequence[int]) -> str:
    what = f"lost records of partition {lost[0]}, or may have" if lost else "was deleted and created again"
    return (
        f"'{mirror.source_topic}' {what} since both sides agreed on offsets, so '{mirror.name}' is not deleted and stays "
        "closed. Fail over to make it writable again; a later restore compares both sides anew."
    )


def _other_side_after_decision(mirror: MirrorTopic, run: RestoreRun) -> tuple[tuple[LogRange, ...], dict[int, int] | None]:
    """Return the log ranges and common ends of the other side once the deletion here is decided, whatever their state.

    If the other topic is gone or was created anew, nothing is common and everything here is to be exported. If the other
    cluster is not available, the agreed points stay valid (None).
    """
    try:
        topic_id, ranges = log_ranges_of(plans.source_address(mirror.link), mirror.source_topic, closed=False)
    except LinkEngineError as error:
        return (), {} if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR else None
    if topic_id != run.source_topic_id:
        return (), {}
    try:
        return tuple(ranges), _common_now(mirror, run, ranges)
    except LinkEngineError:
        return tuple(ranges), None


def _held(mirror: MirrorTopic, run: RestoreRun) -> tuple[LogRange, ...]:
    """Return the log ranges of the diverged topic, or () once it is deleted.

    It counts as deleted only if no broker has its id (``find_mirror`` raises if a broker has it, or does not respond):
    outdated metadata would end the export, and the topic would be deleted all the same. Raises SIDES_DIVERGED if another topic
    has its name.
    """
    here = mirror.link.destination.address
    known = run.diverged_topic_id
    if known and jobs.find_mirror(here, mirror.name, topic_id=known) is None:
        if run.deletion_decided_at is not None:
            return ()
        raise LinkEngineError(
            ErrorCode.SIDES_DIVERGED,
            f"Topic '{mirror.name}' was deleted and created again since both sides agreed on offsets, or the console's "
            "database was restored from a backup. Nothing is exported or deleted. Fail over to make the topic writable again; "
            "a later restore compares both sides anew.",
        )
    return jobs.log_ranges(here, mirror.name)


def _export(mirror: MirrorTopic, run: RestoreRun, points: tuple[RestorePoint, ...], *, check_owner: Callable[[], None]) -> None:
    if not any(point.diverged for point in points):
        _note_exported(run, points, {}, now=timezone.now())
        return
    name = diverged_exports.name_for(run, mirror.name)
    with diverged_exports.writing(name) as sink:
        if not _unchanged(run).exists():  # with the file locked: another worker may have finished it
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR, f"Another worker has exported records of '{mirror.name}'. Retrying automatically."
            )

        def write_line(line: bytes) -> None:
            check_owner()
            sink(line)

        points, counts = _write(mirror, run, points, sink=write_line)
    _note_exported(run, points, counts, name=name, written=sink.written, now=timezone.now())


def _write(
    mirror: MirrorTopic, run: RestoreRun, points: tuple[RestorePoint, ...], *, sink: Callable[[bytes], None]
) -> tuple[tuple[RestorePoint, ...], Counter[int]]:
    """Write head and tail of each partition until nothing is added. Return the points then, and record counts by partition.

    Records are written in offset order, in which they can be replayed: first the heads, which may grow in the process, and the
    tails once the heads have stopped growing. Few records are added to a head while a tail is written; they come last.
    """
    counts: Counter[int] = Counter()
    heads = {point.partition: head for point in points if (head := point.head_since(0))}
    tails = {point.partition: point.tail for point in points if point.tail}
    while heads or tails:
        ranges, tails = (heads, tails) if heads else (tails, {})
        counts.update(jobs.export_records(mirror.link.destination.address, mirror.name, ranges, sink=sink))
        before, points = points, _current_points(mirror, run)
        heads = _gone(before, points)
    return points, counts


def _note_exported(
    run: RestoreRun,
    points: Iterable[RestorePoint],
    counts: Mapping[int, int],
    *,
    name: str = "",
    written: diverged_exports.Written | None = None,
    now: datetime,
) -> None:
    """Store that the file is complete, unless the run's points have changed since the export started."""
    starts = {point.partition: point.other_start for point in points}
    _unchanged(run).update(
        points=[
            {**point, "other_start": starts[point["partition"]], "records": counts.get(point["partition"], 0)}
            for point in run.points
        ],
        export_name=name,
        export_records=sum(counts.values()),
        exported_at=now,
        export_bytes=written.size_bytes if written else None,
        export_sha256=written.sha256 if written else "",
    )
    run.refresh_from_db()


def _unchanged(run: RestoreRun) -> QuerySet[RestoreRun]:
    """Return the run's row if no other worker has completed the export or changed the points since it was read."""
    return RestoreRun.objects.filter(pk=run.pk, exported_at=None, points=run.points)
