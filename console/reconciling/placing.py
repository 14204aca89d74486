"""Which partitions are copied, and by which copy worker: rows in, decision of ``linkengine.domain.assignment``, rows out.

Where a partition is placed is kept in the database, so that the loss of Redis moves nothing. Two may decide at the same time:
each move is a compare-and-swap, and what a worker is told is written from the rows, again and again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.db.models import Q

from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling.plans import mirror_key, partition_keys
from linkengine.domain.assignment import Place, Wanted, assign
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionProgress, life_of
from linkengine.domain.states import COPYING, LinkState, MirrorState, StopReason


def is_wanted(mirror: MirrorTopic, link: ClusterLink) -> bool:
    """Tell whether the mirror shall be copied now. A stopping one only while its promotion drains."""
    if link.error_code == ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR:  # whoever opens the connections is not there
        return False
    if link.state == LinkState.PAUSED or mirror.deletion_requested_at is not None or not mirror.num_partitions:
        return False
    state = MirrorState(mirror.state)
    if state is MirrorState.PENDING_STOPPED:
        draining = mirror.drained_at is None and mirror.fencing_at is None
        return mirror.stop_reason == StopReason.PROMOTE and draining
    return state in COPYING


def lives_of(mirrors: Collection[MirrorTopic]) -> dict[str, str]:
    """Answer, by the engine's name of a mirror, which topics it joins now."""
    return {mirror_key(one): life_of(one.source_topic_id, one.mirror_topic_id) for one in mirrors}


def of_these_lives(mirrors: Collection[MirrorTopic], reports: Iterable[PartitionProgress]) -> list[PartitionProgress]:
    """Leave reports out that tell of topics which a mirror does not join any more: a restore made one anew since."""
    lives = lives_of(mirrors)
    return [one for one in reports if one.life in {"", lives.get(one.key.rpartition("/")[0], "")}]


def wanted_rows(
    link: ClusterLink, mirrors: Iterable[MirrorTopic], rows: Mapping[str, MirrorPartition]
) -> dict[str, MirrorPartition]:
    """Answer the rows of the partitions that shall be copied now, by key."""
    keys = [key for mirror in mirrors if is_wanted(mirror, link) for key in partition_keys(mirror)]
    return {key: rows[key] for key in keys if key in rows}


def take_from_workers(rows: Iterable[MirrorPartition]) -> None:
    """Note that these are not copied any more: they count for no worker."""
    placed = [row for row in rows if row.worker_id]
    if placed:
        MirrorPartition.objects.filter(pk__in=[row.pk for row in placed]).update(worker_id="")
    for row in placed:
        row.worker_id = ""


def place(places: Collection[Place], newcomers: Collection[int] = ()) -> set[int]:
    """Give every partition a worker, move what has to move, and answer the links (by primary key) of those that moved.

    ``newcomers``: partitions, by primary key, that shall be copied and that nobody has. One query, and one for each way in
    which partitions move.
    """
    rows = MirrorPartition.objects.filter(~Q(worker_id="") | Q(pk__in=newcomers))
    found: list[Any] = list(rows.order_by().values_list("pk", "mirror__link_id", "worker_id", "bytes_per_s"))
    wanted = [Wanted(key=str(pk), link_id=str(link), worker_id=worker, bytes_per_s=rate) for pk, link, worker, rate in found]
    links = {str(pk): link for pk, link, _, _ in found}
    before = {one.key: one.worker_id for one in wanted}
    ways: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, worker in assign(wanted, places).items():
        ways[before[key], worker].append(key)
    for (old, new), keys in ways.items():
        MirrorPartition.objects.filter(pk__in=[int(key) for key in keys], worker_id=old).update(worker_id=new)
    return {links[key] for keys in ways.values() for key in keys}


def read_places(rows: Collection[MirrorPartition]) -> None:
    """Take over from the database where partitions are placed now."""
    if rows:
        now: Any = dict(MirrorPartition.objects.filter(pk__in=[row.pk for row in rows]).values_list("pk", "worker_id"))
        for row in rows:
            row.worker_id = now.get(row.pk, "")


def placed_on(worker_ids: Collection[str]) -> set[str]:
    """Answer which of these workers have partitions."""
    return set(MirrorPartition.objects.filter(worker_id__in=worker_ids).values_list("worker_id", flat=True).distinct())
