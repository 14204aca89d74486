"""Decides which partitions are copied, and by which copy worker. Reads rows, calls ``domain.workers.assign``, stores the moves.

Placements are stored in the database, so a loss of Redis's data moves nothing. Two processes may decide at the same time: each
move is a compare-and-swap, and assignments are written from the rows again and again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce

from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling.plans import mirror_key, partition_keys
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionProgress, topic_ids_of
from linkengine.domain.states import COPYING, LinkState, MirrorState, StopReason
from linkengine.domain.workers import EACH_BYTES_PER_S, PartitionLoad, PoolWorker, assign, moves_nothing


def is_to_be_copied(mirror: MirrorTopic, link: ClusterLink) -> bool:
    """Return whether the mirror is to be copied now. A stopping mirror is, while its promotion waits for lag zero."""
    if link.error_code == ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR:  # the side that opens the connections does not exist
        return False
    if link.state == LinkState.PAUSED or mirror.deletion_requested_at is not None or not mirror.num_partitions:
        return False
    state = MirrorState(mirror.state)
    if state is MirrorState.PENDING_STOPPED:
        draining = mirror.drained_at is None and mirror.fencing_at is None
        return mirror.stop_reason == StopReason.PROMOTE and draining
    return state in COPYING


def topic_ids_by_mirror(mirrors: Collection[MirrorTopic]) -> dict[str, str]:
    """Return the ids of the two topics that each mirror connects now, by the engine's key of the mirror."""
    return {mirror_key(mirror): topic_ids_of(mirror.source_topic_id, mirror.mirror_topic_id) for mirror in mirrors}


def of_current_topics(mirrors: Collection[MirrorTopic], reports: Iterable[PartitionProgress]) -> list[PartitionProgress]:
    """Leave out reports on topics that a mirror no longer connects, since a restore has created a topic anew."""
    current_ids = topic_ids_by_mirror(mirrors)
    return [report for report in reports if report.topic_ids in {"", current_ids.get(report.key.rpartition("/")[0], "")}]


def wanted_rows(
    link: ClusterLink, mirrors: Iterable[MirrorTopic], rows: Mapping[str, MirrorPartition]
) -> dict[str, MirrorPartition]:
    """Return the rows of the partitions that are to be copied now, by key."""
    keys = [key for mirror in mirrors if is_to_be_copied(mirror, link) for key in partition_keys(mirror)]
    return {key: rows[key] for key in keys if key in rows}


def take_from_workers(rows: Iterable[MirrorPartition]) -> None:
    """Store that these partitions are no longer copied, so that they count for no worker."""
    placed = [row for row in rows if row.worker_id]
    if placed:
        MirrorPartition.objects.filter(pk__in=[row.pk for row in placed]).update(worker_id="")
    for row in placed:
        row.worker_id = ""


def place(workers: Collection[PoolWorker], unplaced: Collection[int] = (), *, fine: bool = False) -> set[int]:
    """Assign a worker to each partition, move those that have to move, and return their links (primary keys).

    ``unplaced``: partitions (primary keys) that are to be copied and have no worker. ``fine``: as for ``assign``. One
    query if nothing moves; otherwise two, plus one per (old, new) worker.
    """
    if not unplaced and moves_nothing(_loads(), workers, fine=fine):
        return set()
    rows = MirrorPartition.objects.filter(~Q(worker_id="") | Q(pk__in=unplaced))
    found: list[Any] = list(rows.order_by().values_list("pk", "mirror__link_id", "worker_id", "bytes_per_s"))
    partitions = [
        PartitionLoad(key=str(pk), link_id=str(link), worker_id=worker, bytes_per_s=rate) for pk, link, worker, rate in found
    ]
    links = {str(pk): link for pk, link, _, _ in found}
    before = {partition.key: partition.worker_id for partition in partitions}
    moves: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, worker in assign(partitions, workers, fine=fine).items():
        moves[before[key], worker].append(key)
    for (old, new), keys in moves.items():
        MirrorPartition.objects.filter(pk__in=[int(key) for key in keys], worker_id=old).update(worker_id=new)
    return {links[key] for keys in moves.values() for key in keys}


def _loads() -> dict[str, float]:
    """Return the load of each worker that has partitions, as ``PartitionLoad.load`` of all of them."""
    placed = MirrorPartition.objects.exclude(worker_id="").order_by().values("worker_id")
    sums = placed.annotate(partitions=Count("pk"), rate=Coalesce(Sum("bytes_per_s"), 0.0))
    return {row["worker_id"]: row["rate"] + row["partitions"] * EACH_BYTES_PER_S for row in sums}


def read_places(rows: Collection[MirrorPartition]) -> None:
    """Update the rows' placements from the database."""
    if rows:
        now: Any = dict(MirrorPartition.objects.filter(pk__in=[row.pk for row in rows]).values_list("pk", "worker_id"))
        for row in rows:
            row.worker_id = now.get(row.pk, "")


def placed_on(worker_ids: Collection[str]) -> set[str]:
    """Return which of these workers have partitions."""
    return set(MirrorPartition.objects.filter(worker_id__in=worker_ids).values_list("worker_id", flat=True).distinct())
