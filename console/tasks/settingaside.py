"""Set the records aside that a restore is about to delete: nothing goes that is in the topic and not in the file.

The topic is closed to producers, but super users pass its rule. So its ends are compared once more when the file is complete,
on every way to the deletion; what came meanwhile is set aside too before anything is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime

from django.db.models import QuerySet
from django.utils import timezone

from console import exports
from console.models import MirrorTopic, RestoreRun
from console.reconciling import plans
from console.tasks.holdings import held_by
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import LogRange
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.restoring import RestorePoint, as_held_now, lost_there


def set_aside(mirror: MirrorTopic, run: RestoreRun, *, check_ours: Callable[[], None] = lambda: None) -> None:
    """Bring the file up to the ends of the topic; raise where somebody wrote meanwhile, then ask again.

    ``check_ours`` is called before each record and raises where a failover waits for this to end.
    """
    run.refresh_from_db()
    if run.exported_at is None:
        _export(mirror, run, _look_again(mirror, run), check_ours=check_ours)
    _look_again(mirror, run)


def _look_again(mirror: MirrorTopic, run: RestoreRun) -> tuple[RestorePoint, ...]:
    """Answer the points as they are now. Ends that moved are written down, and the file is not complete any more."""
    before = run.restore_points
    points = as_held_now(before, held=_held(mirror, run), other=_still_there(mirror, run))
    moved = [one.partition for one, old in zip(points, before, strict=True) if one.end != old.end]
    if moved:
        changed = [{**asdict(one), "records": None} for one in points]
        RestoreRun.objects.filter(pk=run.pk).update(points=changed, exported_at=None)
        raise LinkEngineError(
            ErrorCode.SIDES_DIVERGED,
            f"Somebody wrote to '{mirror.name}', partition {moved[0]}, although it is closed to producers. The new "
            "records are set aside too.",
        )
    return points


def _still_there(mirror: MirrorTopic, run: RestoreRun) -> tuple[LogRange, ...]:
    """Answer what the topic holds that is to be mirrored; raise where it is not there any more, or lost what was common.

    Hours may pass while records are set aside, and once the topic here is doomed the other one is all there is.
    """
    if run.doomed_at is not None:
        return ()
    topic_id, theirs = held_by(plans.source_address(mirror.link), mirror.source_topic, closed=False)
    lost = lost_there(run.restore_points, other=theirs)
    if (run.source_topic_id and topic_id != run.source_topic_id) or lost:
        what = f"lost records of partition {lost[0]}" if lost else "was deleted and created again"
        raise LinkEngineError(
            ErrorCode.SIDES_DIVERGED,
            f"'{mirror.source_topic}' {what} since both sides agreed on offsets, so '{mirror.name}' is not deleted. Fail over "
            "to make it writable again.",
        )
    return tuple(theirs)


def _held(mirror: MirrorTopic, run: RestoreRun) -> tuple[LogRange, ...]:
    """Answer what the diverged topic holds; nothing once it is deleted."""
    here = mirror.link.destination.address
    found = jobs.find_topic(here, mirror.name)
    if run.doomed_at is not None and (found is None or found.topic_id != run.diverged_topic_id):
        return ()
    return jobs.log_ranges(here, mirror.name)


def _export(mirror: MirrorTopic, run: RestoreRun, points: tuple[RestorePoint, ...], *, check_ours: Callable[[], None]) -> None:
    rounds = _rounds(points)
    if not rounds:
        _note_exported(run, {}, now=timezone.now())
        return
    name = f"{mirror.name}-{run.pk}-{run.requested_at:%Y%m%dT%H%M%SZ}.jsonl.gz"
    with exports.writing(name) as sink:
        if not _as_read(run).exists():  # with the file in our hands: the topic may be another one by now
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR, f"Another worker has set records of '{mirror.name}' aside. Looking again."
            )

        def keep(line: bytes) -> None:
            check_ours()
            sink(line)

        counts: Counter[int] = Counter()
        for ranges in rounds:
            counts.update(jobs.export_records(mirror.link.destination.address, mirror.name, ranges, sink=keep))
    _note_exported(run, counts, name=name, now=timezone.now())


def _rounds(points: Iterable[RestorePoint]) -> list[dict[int, OffsetRange]]:
    """Answer what to export one after the other, each with one range of a partition."""
    found = ({one.partition: one.apart[turn] for one in points if len(one.apart) > turn} for turn in range(2))
    return [ranges for ranges in found if ranges]


def _note_exported(run: RestoreRun, counts: Mapping[int, int], *, name: str = "", now: datetime) -> None:
    """Write down that the file is complete, unless the points it was made for are not those of the run any more."""
    written = exports.measure(name) if name else None
    _as_read(run).update(
        points=[{**one, "records": counts.get(one["partition"], 0)} for one in run.points],
        export_name=name,
        export_records=sum(counts.values()),
        exported_at=now,
        export_bytes=written.size_bytes if written else None,
        export_sha256=written.sha256 if written else "",
    )
    run.refresh_from_db()


def _as_read(run: RestoreRun) -> QuerySet[RestoreRun]:
    return RestoreRun.objects.filter(pk=run.pk, exported_at=None, points=run.points)
