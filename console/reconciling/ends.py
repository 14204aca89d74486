"""Where mirrors end when they are stopped: what is known of it before the fence, and what is kept of it for good.

Two ends per partition. ``stopped_end`` is behind the last mirrored offset: what both sides have in common, and where a report
begins to count what was not copied. ``fenced_end`` is where the fence stands; a stranger's records may lie between both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from django.db.models.functions import Coalesce
from django.utils import timezone

from console.links import pairs
from console.mirrors import progress
from console.models import LineageRange, MirrorPartition, MirrorTopic
from console.models.bulk_update import update_each
from linkengine.domain.leases import Grant
from linkengine.domain.mirrorjobs import MirrorStop, MirrorStopped

Ends = tuple[tuple[int, int], ...]  # (partition, offset)


def mirrored_ends(mirror: MirrorTopic) -> Ends:
    """Answer ``pairs.mirrored_ends`` as the engine's plans take them."""
    return tuple(pairs.mirrored_ends(mirror).items())


def fenced_ends(mirror: MirrorTopic) -> Ends:
    """Answer (partition, offset of the fence) where it was recorded; an earlier version has recorded one end only."""
    rows = MirrorPartition.objects.filter(mirror=mirror).annotate(fence=Coalesce("fenced_end", "stopped_end"))
    return tuple(rows.exclude(stopped_end=None).order_by("partition").values_list("partition", "fence"))


def with_known_ends(stop: MirrorStop, mirror: MirrorTopic, *, grants: Iterable[Grant] = ()) -> MirrorStop:
    """Add to a stop what rows and the leases that were taken for it (``grants``) tell of the mirror's end."""
    ((_, known),) = many_with_known_ends([(mirror, stop)], grants=grants)
    return known


def many_with_known_ends(
    stops: Sequence[tuple[MirrorTopic, MirrorStop]], *, grants: Iterable[Grant]
) -> list[tuple[MirrorTopic, MirrorStop]]:
    """Do for many stops what ``with_known_ends`` does for one. Three queries, and one request to Redis per link."""
    left = {one.key: one.left[1] for one in grants if one.left is not None}
    copied = _copied([mirror for mirror, _ in stops])
    return [
        (mirror, replace(stop, copied=tuple(sorted(copied.get(mirror.pk, {}).items())), left=_left(stop, left)))
        for mirror, stop in stops
    ]


def _left(stop: MirrorStop, left: Mapping[str, int]) -> Ends:
    return tuple((one.partition, left[one.key]) for one in stop.assignments if one.key in left)


def _copied(mirrors: Sequence[MirrorTopic]) -> dict[int, dict[int, int]]:
    """Answer, by primary key and partition, below which offset all is known to be the source's.

    As an earlier attempt has recorded it, else as the copier has reported; of one that never did, where copying begins.
    """
    found: dict[int, dict[int, int]] = {one.pk: {} for one in mirrors}
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


def record_ends(mirror: MirrorTopic, stopped: MirrorStopped) -> None:
    """Keep where the mirror ended before any producer is let in."""
    record_many_ends([(mirror, stopped)])


def record_many_ends(found: Iterable[tuple[MirrorTopic, MirrorStopped]]) -> None:
    """Keep where mirrors ended before any producer is let in, all or none; the epoch of a fence stays as it was seen first."""
    stops = list(found)
    giving_back = [mirror.pk for mirror, stopped in stops if stopped.gives_back]
    fields = ("stopped_end", "fenced_end", "mirror_end", "bytes_per_s", "records_per_s")
    rows = [
        ((dict(one.foreign).get(partition, fence), fence, fence, None, None), (mirror.pk, partition))
        for mirror, one in stops
        for partition, fence in one.ends
    ]
    epochs = [((epoch,), (mirror.pk, partition)) for mirror, one in stops for partition, epoch in one.epochs]
    # the epochs first: who finds an end recorded does not look for its fence again
    update_each(MirrorPartition, fields=("fence_epoch",), keys=("mirror", "partition"), rows=epochs)
    update_each(MirrorPartition, fields=fields, keys=("mirror", "partition"), rows=rows)
    MirrorTopic.objects.filter(pk__in=giving_back).update(giving_back=True)
