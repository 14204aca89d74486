"""Ends of stopped mirrors: the end that is known before the fence, and the ends that are stored permanently.

Each partition has two ends:

* ``stopped_end``: the offset after the last mirrored record. Below it both sides have the same records, and a failover report
  counts the records that were not copied from there.
* ``fenced_end``: the offset of the fence. Foreign writes may lie between both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from django.db.models.functions import Coalesce
from django.utils import timezone

from console.links import pairs
from console.mirrors import progress
from console.models import LineageRange, MirrorPartition, MirrorTopic
from console.models.row_changes import update_each
from linkengine.domain.mirrorjobs import MirrorStop, MirrorStopped
from linkengine.domain.workers import Grant

Ends = tuple[tuple[int, int], ...]  # (partition, offset)


def mirrored_ends(mirror: MirrorTopic) -> Ends:
    """Return ``pairs.mirrored_ends`` in the format of the engine's plans."""
    return tuple(pairs.mirrored_ends(mirror).items())


def fenced_ends(mirror: MirrorTopic) -> Ends:
    """Return (partition, offset of the fence) of the recorded fences."""
    return fenced_ends_of([mirror])[mirror.pk]


def fenced_ends_of(mirrors: Sequence[MirrorTopic]) -> dict[int, Ends]:
    """Return ``fenced_ends`` by primary key; an earlier version recorded ``stopped_end`` only. One query."""
    found: dict[int, list[tuple[int, int]]] = {mirror.pk: [] for mirror in mirrors}
    rows = MirrorPartition.objects.filter(mirror__in=mirrors).annotate(fence=Coalesce("fenced_end", "stopped_end"))
    for key, partition, fence in (
        rows.exclude(stopped_end=None).order_by("partition").values_list("mirror", "partition", "fence")
    ):
        found[key].append((partition, fence))
    return {key: tuple(fences) for key, fences in found.items()}


def with_known_ends(stops: Sequence[tuple[MirrorTopic, MirrorStop]], *, grants: Iterable[Grant] = ()) -> list[MirrorStop]:
    """Return stops with the ends that are known from mirrors' progress and from the leases taken for the stops (``grants``).

    Takes two queries, and one request to Redis per link.
    """
    released = {grant.key: grant.last_release[1] for grant in grants if grant.last_release is not None}
    copied = _copied([mirror for mirror, _ in stops])
    return [
        replace(stop, copied=tuple(sorted(copied.get(mirror.pk, {}).items())), released_ends=_released(stop, released))
        for mirror, stop in stops
    ]


def _released(stop: MirrorStop, released: Mapping[str, int]) -> Ends:
    return tuple(
        (assignment.partition, released[assignment.key]) for assignment in stop.assignments if assignment.key in released
    )


def _copied(mirrors: Sequence[MirrorTopic]) -> dict[int, dict[int, int]]:
    """Return, by primary key and partition, the offset below which all records are known to be the source's.

    It is the end that an earlier attempt recorded, else the end that the copy worker reported, else the start of the copy.
    """
    found: dict[int, dict[int, int]] = {mirror.pk: {} for mirror in mirrors}
    begun = LineageRange.objects.filter(mirror__in=mirrors, closed_at=None)
    for key, partition, start in begun.values_list("mirror", "partition", "start"):
        found[key or 0][partition] = start
    chosen = MirrorTopic.objects.filter(pk__in=list(found))
    for mirror in progress.current(chosen, now=timezone.now(), insist=True):
        for row in mirror.partitions:
            known = row.mirror_end if row.stopped_end is None else row.stopped_end
            if known is not None:
                found[mirror.pk][row.partition] = known
    return found


def record_ends(found: Iterable[tuple[MirrorTopic, MirrorStopped]]) -> None:
    """Store the ends of mirrors, all or none, before producers are allowed to write to them.

    The fences of an earlier attempt keep the leader epochs that were stored then.
    """
    stops = list(found)
    restoring = [mirror.pk for mirror, stopped in stops if stopped.restores_configs]
    fields = ("stopped_end", "fenced_end", "mirror_end", "bytes_per_s", "records_per_s")
    rows = [
        ((dict(stopped.foreign).get(partition, fence), fence, fence, None, None), (mirror.pk, partition))
        for mirror, stopped in stops
        for partition, fence in stopped.ends
    ]
    epochs = [((epoch,), (mirror.pk, partition)) for mirror, stopped in stops for partition, epoch in stopped.epochs]
    # Epochs first: once an end is recorded, no later attempt searches for its fence again.
    update_each(MirrorPartition, fields=("fence_epoch",), keys=("mirror", "partition"), rows=epochs)
    update_each(MirrorPartition, fields=fields, keys=("mirror", "partition"), rows=rows)
    MirrorTopic.objects.filter(pk__in=restoring).update(restoring_configs=True)
