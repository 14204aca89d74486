"""Set the records aside that a restore is about to delete: nothing goes that is neither in the file nor on the other side.

The topic is closed to producers, but super users pass its rule; and the other side goes on to lose its oldest records to its
retention, for hours while a long file is written. So what it does not hold any more is added until there is nothing to add, and
both sides are compared once more when the file is complete, on every way to the deletion: a worker may have died meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime

import structlog
from django.db.models import QuerySet
from django.utils import timezone

from console import exports
from console.models import MirrorTopic, RestoreRun
from console.models.mirrors import RECORDS_LOST
from console.reconciling import plans, troubles
from console.tasks.holdings import Topic, common_now, held_by
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import LogRange
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.restoring import RestorePoint, as_held_now, not_common

_log = structlog.get_logger(__name__)


def set_aside(mirror: MirrorTopic, run: RestoreRun, *, check_ours: Callable[[], None] = lambda: None) -> None:
    """Bring the file up to the ends of the topic; raise where somebody wrote meanwhile, then ask again.

    ``check_ours`` is called before each record and raises where a failover waits for this to end.
    """
    run.refresh_from_db()
    _forget_lost(mirror, run)
    if run.exported_at is None and run.doomed_at is not None and not _held(mirror, run):
        _note_gone(mirror, run, now=timezone.now())
        return
    if run.exported_at is None:
        _export(mirror, run, _look_again(mirror, run), check_ours=check_ours)
    _look_again(mirror, run)


def _forget_lost(mirror: MirrorTopic, run: RestoreRun) -> None:
    """Have a file that has gone meanwhile written anew, as long as the topic still holds what was in it."""
    if exports.is_lost(run) and _held(mirror, run):
        _log.warning("export.lost", mirror=mirror.name, file=run.export_name)
        RestoreRun.objects.filter(pk=run.pk, exported_at=run.exported_at).update(exported_at=None)
        run.refresh_from_db()


def _note_gone(mirror: MirrorTopic, run: RestoreRun, *, now: datetime) -> None:
    """Keep the file as it is, and tell: a late request deleted the doomed topic before it could be made anew."""
    _log.warning("export.not_renewed", mirror=mirror.name, file=run.export_name)
    message = (
        f"'{mirror.name}' was deleted by a request that came late, while what it held was still to be set aside. Records that "
        f"were written to it, or that '{mirror.source_topic}' lost, after it was decided to delete it may be nowhere any more. "
        "The file of the restore, if there is one, has all from before."
    )
    troubles.note(mirror=mirror, code=RECORDS_LOST, message=message, now=now)
    RestoreRun.objects.filter(pk=run.pk, exported_at=None).exclude(export_name="").update(exported_at=now)
    run.refresh_from_db()


def _look_again(mirror: MirrorTopic, run: RestoreRun) -> tuple[RestorePoint, ...]:
    """Answer the points as they are now. Where somebody wrote, or a complete file lacks something, it is to be made anew."""
    before = run.restore_points
    points = _as_now(mirror, run)
    written, lost = _written(before, points), not_common(before, common={one.partition: one.common for one in points})
    taken = _taken(before, points) if run.exported_at is not None else ()
    if written or lost or taken:
        changed = [{**asdict(one), "records": None} for one in points]
        RestoreRun.objects.filter(pk=run.pk).update(points=changed, exported_at=None)
        raise LinkEngineError(ErrorCode.SIDES_DIVERGED, _why_again(mirror, written=written, lost=lost, taken=taken))
    return points


def _written(before: Iterable[RestorePoint], points: Iterable[RestorePoint]) -> tuple[int, ...]:
    """List partitions that somebody wrote to, or added with records in them."""
    ends = {old.partition: old.end for old in before}
    return tuple(one.partition for one in points if one.end != ends.get(one.partition))


def _taken(before: Iterable[RestorePoint], points: Iterable[RestorePoint]) -> dict[int, OffsetRange]:
    """Answer, by partition, what the other side held before and does not hold now, and this side does."""
    starts = {old.partition: old.other_start for old in before}
    found = {one.partition: one.head_since(starts[one.partition]) for one in points if one.partition in starts}
    return {partition: one for partition, one in found.items() if one}


def _why_again(mirror: MirrorTopic, *, written: Collection[int], lost: Collection[int], taken: Collection[int]) -> str:
    if written:
        return (
            f"Somebody wrote to '{mirror.name}', partition {min(written)}, although it is closed to producers. The new "
            "records are set aside too."
        )
    if lost:
        return (
            f"'{mirror.source_topic}' was deleted, or has lost records of partition {min(lost)}, since it was decided that "
            f"'{mirror.name}' goes. What only '{mirror.name}' holds by now is set aside before that."
        )
    return (
        f"Retention has removed records of '{mirror.source_topic}', partition {min(taken)}, that '{mirror.name}' still holds. "
        "They are set aside too."
    )


def _as_now(mirror: MirrorTopic, run: RestoreRun) -> tuple[RestorePoint, ...]:
    held = _without_claims(mirror, run, _held(mirror, run))
    if run.doomed_at is None:
        return as_held_now(run.restore_points, held=held, other=check_common(mirror, run))
    other, common = _told_there(mirror, run) if held else ((), None)
    return as_held_now(run.restore_points, held=held, other=other, common=common)


def _without_claims(mirror: MirrorTopic, run: RestoreRun, held: tuple[LogRange, ...]) -> tuple[LogRange, ...]:
    """A take-over of ours that was cut short has left its markers: nobody else wrote."""
    ends = {one.partition: one.common for one in run.restore_points} if run.in_place else {}
    grown = {one.partition: ends[one.partition] for one in held if one.end - 1 == ends.get(one.partition)}
    claimed = jobs.claimed_before(plans.turn_of(mirror, ends=grown, generation=0)) if grown else ()
    return tuple(replace(one, end=one.end - 1) if one.partition in claimed else one for one in held)


def check_common(mirror: MirrorTopic, run: RestoreRun) -> tuple[LogRange, ...]:
    """Answer what the topic holds that is to be mirrored; raise where that is not known any more to hold what is common.

    Hours may pass while records are set aside, and once the topic here is doomed the other one is all there is. So all that
    proved the common part is looked at once more: ids, ends, fences and histories.
    """
    there = Topic(plans.source_address(mirror.link), mirror.source_topic)
    topic_id, theirs = held_by(*there, closed=False)
    renewed = bool(run.source_topic_id) and topic_id != run.source_topic_id
    lost = () if renewed else not_common(run.restore_points, common=_common_now(mirror, run, theirs))
    if renewed or lost:
        raise LinkEngineError(ErrorCode.SIDES_DIVERGED, _why_not(mirror, lost))
    return tuple(theirs)


def _common_now(mirror: MirrorTopic, run: RestoreRun, theirs: Iterable[LogRange]) -> dict[int, int]:
    """Answer up to where both are the same now; by ends alone of a run that an earlier version has agreed."""
    ends = {one.partition: one.end for one in theirs}
    if not run.parts:
        return ends
    here, there = (
        Topic(mirror.link.destination.address, mirror.name),
        Topic(plans.source_address(mirror.link), mirror.source_topic),
    )
    common = common_now(here, there, parts=run.common_parts, ids=(run.diverged_topic_id, run.source_topic_id))
    return {partition: min(end, ends.get(partition, 0)) for partition, end in common.items()}


def _why_not(mirror: MirrorTopic, lost: Sequence[int]) -> str:
    what = f"lost records of partition {lost[0]}, or may have" if lost else "was deleted and created again"
    return (
        f"'{mirror.source_topic}' {what} since both sides agreed on offsets, so '{mirror.name}' stays as it is, closed. "
        "Fail over to make it writable again; a restore that is asked for after that looks at both sides anew."
    )


def _told_there(mirror: MirrorTopic, run: RestoreRun) -> tuple[tuple[LogRange, ...], dict[int, int] | None]:
    """Answer the same of a doomed topic, which goes whatever became of the other one, and what is still common.

    Nothing is where the other one is gone, or is another topic: then all that is here is to be set aside. Where the other side
    does not answer, all is as it was agreed (None).
    """
    try:
        topic_id, theirs = held_by(plans.source_address(mirror.link), mirror.source_topic, closed=False)
    except LinkEngineError as error:
        return (), {} if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR else None
    if topic_id != run.source_topic_id:
        return (), {}
    try:
        return tuple(theirs), _common_now(mirror, run, theirs)
    except LinkEngineError:
        return tuple(theirs), None


def _held(mirror: MirrorTopic, run: RestoreRun) -> tuple[LogRange, ...]:
    """Answer what the diverged topic holds; nothing once it is deleted. Raises where another one took its name before."""
    here = mirror.link.destination.address
    found = jobs.find_topic(here, mirror.name)
    same = found is not None and found.topic_id == run.diverged_topic_id
    if run.doomed_at is not None and not same:
        return ()
    if run.diverged_topic_id and not same:
        raise LinkEngineError(
            ErrorCode.SIDES_DIVERGED,
            f"Topic '{mirror.name}' was deleted and created again since both sides agreed on offsets, or the console's "
            "database was put back to a backup. Nothing is set aside or deleted. Fail over to make the topic writable again; "
            "a restore that is asked for after that looks at it anew.",
        )
    return jobs.log_ranges(here, mirror.name)


def _export(mirror: MirrorTopic, run: RestoreRun, points: tuple[RestorePoint, ...], *, check_ours: Callable[[], None]) -> None:
    if not any(one.apart for one in points):
        _note_exported(run, points, {}, now=timezone.now())
        return
    name = exports.name_for(run, mirror.name)
    with exports.writing(name) as sink:
        if not _as_read(run).exists():  # with the file in our hands: the topic may be another one by now
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR, f"Another worker has set records of '{mirror.name}' aside. Looking again."
            )

        def keep(line: bytes) -> None:
            check_ours()
            sink(line)

        points, counts = _write(mirror, run, points, sink=keep)
    _note_exported(run, points, counts, name=name, written=sink.written, now=timezone.now())


def _write(
    mirror: MirrorTopic, run: RestoreRun, points: tuple[RestorePoint, ...], *, sink: Callable[[bytes], None]
) -> tuple[tuple[RestorePoint, ...], Counter[int]]:
    """Write what is apart until a look finds nothing more; answer the points then, and the records by partition.

    In the order of offsets, in which a person may write them back: heads first, which grow while they are written, and once
    they do not, the tails. What a head grows by while a tail is written is small, and comes last.
    """
    counts: Counter[int] = Counter()
    heads = {one.partition: head for one in points if (head := one.head_since(0))}
    tails = {one.partition: one.tail for one in points if one.tail}
    while heads or tails:
        ranges, tails = (heads, tails) if heads else (tails, {})
        counts.update(jobs.export_records(mirror.link.destination.address, mirror.name, ranges, sink=sink))
        before, points = points, _as_now(mirror, run)
        heads = _taken(before, points)
    return points, counts


def _note_exported(
    run: RestoreRun,
    points: Iterable[RestorePoint],
    counts: Mapping[int, int],
    *,
    name: str = "",
    written: exports.Written | None = None,
    now: datetime,
) -> None:
    """Write down that the file is complete, unless the points it was made for are not those of the run any more."""
    starts = {one.partition: one.other_start for one in points}
    _as_read(run).update(
        points=[
            {**one, "other_start": starts[one["partition"]], "records": counts.get(one["partition"], 0)} for one in run.points
        ],
        export_name=name,
        export_records=sum(counts.values()),
        exported_at=now,
        export_bytes=written.size_bytes if written else None,
        export_sha256=written.sha256 if written else "",
    )
    run.refresh_from_db()


def _as_read(run: RestoreRun) -> QuerySet[RestoreRun]:
    return RestoreRun.objects.filter(pk=run.pk, exported_at=None, points=run.points)
