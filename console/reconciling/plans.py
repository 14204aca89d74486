"""Converts rows into the engine's plans: keys, addresses of clusters, partitions to copy, ends of stopped mirrors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

from django.db.models.functions import Coalesce
from django.utils import timezone

from console.config import signing_keys
from console.config.logging import current_request_id
from console.links import pairs
from console.mirrors import progress
from console.models import ClusterLink, LineageRange, MirrorPartition, MirrorTopic, StateTransitionError
from console.models.row_changes import update_each
from console.reconciling.groups import known_offsets
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.configs import follows_start, is_compacted
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorStop, MirrorStopped, MirrorSync, MirrorTakeover
from linkengine.domain.plans import (
    TRANSACTIONAL_ID_PREFIX,
    CopyPlan,
    CopyTuning,
    GapFiller,
    PartitionAssignment,
    VerifyPlan,
    producer_id_for,
)
from linkengine.domain.signatures import Signer
from linkengine.domain.states import BECOMING, CLOSED_FIRST, MirrorState, StopReason
from linkengine.domain.workers import Grant

TUNING = CopyTuning()
Ends = tuple[tuple[int, int], ...]  # (partition, offset)
_NO_ADDRESS = ClusterAddress(bootstrap_servers="")


def load(mirror_id: int) -> MirrorTopic | None:
    """Return a mirror with the related rows that plans need, and its partitions with their current progress."""
    mirrors = MirrorTopic.objects.select_related("link__destination__environment", "link__source")
    mirror = mirrors.prefetch_related("link__configs", "partitions").filter(pk=mirror_id).first()
    if mirror is not None:
        progress.refresh([mirror], now=timezone.now(), insist=True)
    return mirror


def load_link(link_id: int) -> ClusterLink | None:
    """Return a link with the related rows that its reconcile pass and its tasks need."""
    links = ClusterLink.objects.select_related("destination__environment", "source").prefetch_related("configs", "tasks")
    return links.filter(pk=link_id).first()


def link_key(link: ClusterLink) -> str:
    """Return the engine's key of a link. Unlike a primary key it is never reused, not even by another database."""
    return link.link_uuid.hex


def signer_of(link: ClusterLink) -> Signer:
    """Return the signer of the link's reports and losses; its keys travel in the plans of copy workers."""
    return signing_keys.link_signer(link_key(link))


def mirror_key(mirror: MirrorTopic) -> str:
    """Return the engine's key of a mirror."""
    return mirror.engine_name


def partition_keys(mirror: MirrorTopic) -> list[str]:
    """Return the engine's keys of all partitions of a mirror, as in their assignments."""
    key = mirror_key(mirror)
    return [f"{key}/{number}" for number in range(mirror.num_partitions)]


def source_address(link: ClusterLink) -> ClusterAddress:
    """Return the address of the link's source, with the cluster id that is expected there."""
    return replace(address_from_properties(pairs.properties_of_source(link)), cluster_id=link.source_cluster_id)


def _source_of_stop(link: ClusterLink) -> ClusterAddress:
    """Return the address of the link's source, or an address without servers if it cannot be built from what is stored.

    A stop does not depend on the source. To the engine, an address without servers is a source that is not available.
    """
    try:
        return source_address(link)
    except LinkEngineError:  # shown on the link by its probes
        return _NO_ADDRESS


def assignments_of(
    mirror: MirrorTopic, *, partitions: int | None = None, topic_id: str = ""
) -> tuple[PartitionAssignment, ...]:
    """Return an assignment for each partition of the mirror."""
    count = mirror.num_partitions if partitions is None else partitions
    return tuple(_assignments(mirror, range(count), source_topic_id=topic_id or mirror.source_topic_id))


def _assignments(
    mirror: MirrorTopic,
    partitions: Iterable[int],
    *,
    source_topic_id: str,
    mirror_topic_id: str = "",
    since_ms: int = 0,
    seen: Mapping[int, tuple[int, int] | None] = MappingProxyType({}),
) -> Iterator[PartitionAssignment]:
    """Yield assignments without intermediate copies: a link may have ten thousand in each reconcile pass."""
    follows = follows_start(mirror.link.sync_include)
    by_transactions = mirror.link.gap_filler == GapFiller.TRANSACTIONS
    link_number = mirror.link_id if mirror.first_link_number is None else mirror.first_link_number
    key = mirror_key(mirror)
    for partition in partitions:
        yield PartitionAssignment(
            mirror_id=key,
            partition=partition,
            source_topic=mirror.source_topic,
            mirror_topic=mirror.name,
            source_topic_id=source_topic_id,
            mirror_topic_id=mirror_topic_id,
            producer_id=producer_id_for(link_number, mirror.pk, partition),
            follows_start=follows,
            transactional_id=f"{TRANSACTIONAL_ID_PREFIX}{key}-{partition}" if by_transactions else "",
            since_ms=since_ms,
            source_seen=seen.get(partition),
        )


def copy_plans(link: ClusterLink, mirrors: Iterable[MirrorTopic], rows: Mapping[str, MirrorPartition]) -> dict[str, CopyPlan]:
    """Return the plan of each copy worker of a link, by worker; ``rows`` are those of the partitions to copy, by key."""
    assigned: dict[str, list[PartitionAssignment]] = defaultdict(list)
    for mirror in mirrors:
        key, since_ms = mirror_key(mirror), int(mirror.state_since.timestamp() * 1000)
        known = ((number, rows.get(f"{key}/{number}")) for number in range(mirror.num_partitions))
        placed = {number: row for number, row in known if row is not None and row.worker_id}
        ids = {"source_topic_id": mirror.source_topic_id, "mirror_topic_id": mirror.mirror_topic_id}
        seen = {number: _seen(row) for number, row in placed.items()}
        for assignment in _assignments(mirror, placed, **ids, since_ms=since_ms, seen=seen):
            assigned[placed[assignment.partition].worker_id].append(assignment)
    if not assigned:
        return {}
    common = CopyPlan(
        link_id=link_key(link),
        revision=link.revision,
        source=source_address(link),
        destination=link.destination.address,
        workers=len(assigned),
        tuning=replace(TUNING, bytes_per_s=throughput_limit(link)),
        signing_keys=signer_of(link).texts(),
        request_id=current_request_id(),
    )
    return {worker: replace(common, assignments=tuple(assignments)) for worker, assignments in assigned.items()}


def empty_plan(link_id: str) -> CopyPlan:
    """Return a plan that copies nothing, for a link by the engine's key; it needs no addresses.

    It contains the link's signing keys: a copy worker that releases its partitions signs a last report of each.
    """
    return CopyPlan(
        link_id=link_id,
        revision=0,
        source=_NO_ADDRESS,
        destination=_NO_ADDRESS,
        signing_keys=signing_keys.link_signer(link_id).texts(),
        request_id=current_request_id(),
    )


def _of_this_topic(mirror: MirrorTopic) -> tuple[PartitionAssignment, ...]:
    return tuple(replace(assignment, mirror_topic_id=mirror.mirror_topic_id) for assignment in assignments_of(mirror))


def throughput_limit(link: ClusterLink) -> int:
    """Return the link's bandwidth limit in bytes per second, 0 without a limit."""
    return max(0, int(config_of(link, "link.throughput.limit.bytes.per.second") or 0))


def retry_timeout(link: ClusterLink) -> timedelta:
    """Return how long a mirror of the link is retried before it is FAILED."""
    return timedelta(milliseconds=int(link.config("cluster.link.retry.timeout.ms")))


def _seen(row: MirrorPartition) -> tuple[int, int] | None:
    """Return the leader epoch of the source and the offset below which all was read in this epoch, None if unknown."""
    known = row.source_epoch is not None and row.source_epoch_end is not None
    return (row.source_epoch or 0, row.source_epoch_end or 0) if known else None


def setup_of(mirror: MirrorTopic) -> MirrorSetup:
    """Return the engine's plan for creating the mirror topic."""
    link = mirror.link
    return MirrorSetup(
        link_id=link_key(link),
        mirror_id=mirror_key(mirror),
        source=source_address(link),
        destination=link.destination.address,
        source_topic=mirror.source_topic,
        mirror_topic=mirror.name,
        replication_factor=mirror.replication_factor,
        configs=dict(mirror.config_overrides),
        sync_include=link.sync_include,
        guard=is_guarded(link),
        start=mirror.start_spec,
        contested=is_contested(mirror),
    )


def keyless(mirrors: Iterable[MirrorTopic]) -> set[int]:
    """Return the mirrors (primary keys) that have refused records without a key."""
    refused = StateTransitionError.objects.filter(mirror__in=[mirror.pk for mirror in mirrors], code=ErrorCode.KEYLESS_RECORDS)
    return set(refused.values_list("mirror_id", flat=True))


def syncs_of(mirrors: Sequence[MirrorTopic]) -> list[MirrorSync]:
    """Return the engine's plans for syncing configs and partitions of mirrors of a link with their sources. A query."""
    assert len({mirror.link_id for mirror in mirrors}) == 1
    link, refusing = mirrors[0].link, keyless(mirrors)
    source, destination, include = source_address(link), link.destination.address, link.sync_include
    return [
        MirrorSync(
            source=source,
            destination=destination,
            source_topic=mirror.source_topic,
            source_topic_id=mirror.source_topic_id,
            mirror_topic=mirror.name,
            mirror_topic_id=mirror.mirror_topic_id,
            sync_include=include,
            previous=dict(mirror.source_configs),
            configs=dict(mirror.config_overrides),
            keyless=mirror.pk in refusing,
            guard=is_guarded(link),
        )
        for mirror in mirrors
    ]


def stop_of(mirror: MirrorTopic, *, generation: int) -> MirrorStop:
    """Return the engine's plan for stopping a mirror."""
    (stop,) = stops_of([mirror], generations={mirror.pk: generation})
    return stop


def stops_of(
    mirrors: Sequence[MirrorTopic],
    *,
    generations: Mapping[int, int],
    partitions: Mapping[int, int | None] = MappingProxyType({}),
) -> list[MirrorStop]:
    """Return the engine's plans for stopping mirrors of a link.

    ``generations`` are those of the stops' leases. ``partitions`` are the partition counts of topics whose set-up was
    interrupted before it stored them (``workflows.stopping``). Both are by primary key.
    """
    if not mirrors:
        return []
    (link,) = {mirror.link_id: mirror.link for mirror in mirrors}.values()
    source, destination = _source_of_stop(link), link.destination.address
    fences, contested = fenced_ends_of(mirrors), _contested(mirrors)
    return [
        MirrorStop(
            source=source,
            destination=destination,
            assignments=assignments_of(mirror, partitions=partitions.get(mirror.pk)),
            reason=StopReason(mirror.stop_reason),
            generation=generations[mirror.pk],
            source_topic=mirror.source_topic,
            mirror_topic=mirror.name,
            mirror_topic_id=mirror.mirror_topic_id,
            contested=mirror.name in contested,
            was_mirror=mirror.prior_state not in BECOMING,
            failed=mirror.prior_state == MirrorState.FAILED,
            seeding=_may_be_seeding(mirror),
            fenced_ends=fences[mirror.pk],
            restoring_configs=mirror.restoring_configs,
            source_configs=dict(mirror.source_configs),
            configs=dict(mirror.config_overrides),
            sync_include=mirror.link.sync_include,
            guard=is_guarded(mirror.link),
            was_closed=mirror.prior_state in CLOSED_FIRST,
            group_offsets=known_offsets(mirror),
        )
        for mirror in mirrors
    ]


def _may_be_seeding(mirror: MirrorTopic) -> bool:
    """Return whether the topic may contain only part of a head: its set-up or restore created it and was interrupted."""
    if not mirror.num_partitions:
        return True
    if mirror.holds_copy or mirror.prior_state != MirrorState.PENDING_RESTORE_MIRROR:
        return False
    run = mirror.restores.order_by("-pk").first()
    return run is not None and run.deletion_decided_at is not None


def takeover_of(
    mirror: MirrorTopic, *, ends: Mapping[int, int], generation: int, begins: Mapping[int, int] | None = None
) -> MirrorTakeover:
    """Return the plan for turning a stopped topic into a mirror of its former mirror.

    ``ends`` are the offsets at which the new source was fenced, ``begins`` its first offsets if these are not 0.
    """
    return MirrorTakeover(
        source=source_address(mirror.link),
        destination=mirror.link.destination.address,
        source_topic=mirror.source_topic,
        mirror_topic=mirror.name,
        source_topic_id=mirror.source_topic_id,
        mirror_topic_id=mirror.mirror_topic_id,
        assignments=_of_this_topic(mirror),
        ends=tuple(sorted(ends.items())),
        begins=tuple(sorted((begins or {}).items())),
        generation=generation,
        sync_include=mirror.link.sync_include,
    )


def verify_of(mirror: MirrorTopic) -> VerifyPlan:
    """Return the plan for comparing a mirror up to its current end, or up to the end at which it was stopped."""
    return VerifyPlan(
        source=source_address(mirror.link),
        destination=mirror.link.destination.address,
        source_topic=mirror.source_topic,
        mirror_topic=mirror.name,
        ends=mirrored_ends(mirror),
        compacted=mirror.was_compacted,
        request_id=current_request_id(),
    )


def is_compacting(mirror: MirrorTopic, source_configs: Mapping[str, str]) -> bool:
    """Return whether either side is compacted now, if the source has these configs."""
    return is_compacted(source_configs) or is_compacted(mirror.config_overrides)


def is_guarded(link: ClusterLink) -> bool:
    """Return whether ACLs deny writes to mirrors: a principal that may not append markers may not set ACLs either."""
    return link.gap_filler == GapFiller.MARKERS


def is_contested(mirror: MirrorTopic) -> bool:
    """Return whether another mirror that is not stopped has this name on the cluster: the ACLs may belong to it."""
    return bool(_contested([mirror]))


def _contested(mirrors: Sequence[MirrorTopic]) -> set[str]:
    """Return the names for which ``is_contested`` holds, of mirrors of a link. One query."""
    cluster_id = mirrors[0].link.destination.cluster_id
    rows = pairs.mirrors_of_names(cluster_id, [mirror.name for mirror in mirrors])
    return set(rows.exclude(pk__in=[mirror.pk for mirror in mirrors]).values_list("name", flat=True))


def config_of(link: ClusterLink, name: str) -> str:
    """Return the value of a config that was set, "" otherwise. Takes no query if the configs were prefetched."""
    return next((config.value for config in link.configs.all() if config.name == name), "")


# --- ends of stopped mirrors ------------------------------------------------------------------------------------------
#
# The end that is known before the fence, and the ends that are stored permanently. Each partition has two:
#
# * ``stopped_end``: the offset after the last mirrored record. Below it both sides have the same records, and a failover report
#   counts the records that were not copied from there.
# * ``fenced_end``: the offset of the fence. Foreign writes may lie between both.


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
