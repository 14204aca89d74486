"""Rows as the engine's plans: who a link and a mirror are to the engine, how to reach their clusters, what to copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

from django.utils import timezone

from console.config import signing_keys
from console.config.logging import current_request_id
from console.links import pairs
from console.mirrors import progress
from console.models import ClusterLink, MirrorPartition, MirrorTopic, StateTransitionError
from console.reconciling import ends
from console.reconciling.groups import known_offsets
from linkengine.domain.addresses import ClusterAddress, address_from_properties
from linkengine.domain.configs import follows_start, is_compacted
from linkengine.domain.errors import ErrorCode
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorStop, MirrorSync, MirrorTurn
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

TUNING = CopyTuning()
_NOBODY = ClusterAddress(bootstrap_servers="")


def load(mirror_id: int) -> MirrorTopic | None:
    """Read a mirror with all that plans need, and its partitions with their current progress."""
    mirrors = MirrorTopic.objects.select_related("link__destination__environment", "link__source")
    mirror = mirrors.prefetch_related("link__configs", "partitions").filter(pk=mirror_id).first()
    if mirror is not None:
        progress.refresh([mirror], now=timezone.now(), insist=True)
    return mirror


def load_link(link_id: int) -> ClusterLink | None:
    """Read a link with what its heart beat and its tasks need."""
    links = ClusterLink.objects.select_related("destination__environment", "source").prefetch_related("configs", "tasks")
    return links.filter(pk=link_id).first()


def link_key(link: ClusterLink) -> str:
    """Name a link to the engine: unlike a row's number it is never used again, not even by another database."""
    return link.link_uuid.hex


def signer_of(link: ClusterLink) -> Signer:
    """Return the signer of the link's reports and losses; its keys travel in the plans of copy workers."""
    return signing_keys.link_signer(link_key(link))


def mirror_key(mirror: MirrorTopic) -> str:
    """Name a mirror to the engine."""
    return mirror.engine_name


def partition_keys(mirror: MirrorTopic) -> list[str]:
    """Name all partitions of a mirror as their assignments do."""
    key = mirror_key(mirror)
    return [f"{key}/{number}" for number in range(mirror.num_partitions)]


def source_address(link: ClusterLink) -> ClusterAddress:
    """Return how the link reaches its source, and which cluster has to answer there."""
    return replace(address_from_properties(pairs.properties_of_source(link)), cluster_id=link.source_cluster_id)


def assignments_of(
    mirror: MirrorTopic, *, partitions: int | None = None, topic_id: str = ""
) -> tuple[PartitionAssignment, ...]:
    """Answer one assignment per partition of the mirror."""
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
    """Answer, by copy worker, what it copies of a link; ``rows`` are those of the partitions to copy, by key."""
    shares: dict[str, list[PartitionAssignment]] = defaultdict(list)
    for mirror in mirrors:
        key, since_ms = mirror_key(mirror), int(mirror.state_since.timestamp() * 1000)
        known = ((number, rows.get(f"{key}/{number}")) for number in range(mirror.num_partitions))
        placed = {number: row for number, row in known if row is not None and row.worker_id}
        ids = {"source_topic_id": mirror.source_topic_id, "mirror_topic_id": mirror.mirror_topic_id}
        seen = {number: _seen(row) for number, row in placed.items()}
        for assignment in _assignments(mirror, placed, **ids, since_ms=since_ms, seen=seen):
            shares[placed[assignment.partition].worker_id].append(assignment)
    if not shares:
        return {}
    common = CopyPlan(
        link_id=link_key(link),
        revision=link.revision,
        source=source_address(link),
        destination=link.destination.address,
        workers=len(shares),
        tuning=replace(TUNING, bytes_per_s=throughput_limit(link)),
        signing_keys=signer_of(link).texts(),
        request_id=current_request_id(),
    )
    return {worker: replace(common, assignments=tuple(some)) for worker, some in shares.items()}


def empty_plan(link_id: str) -> CopyPlan:
    """Answer a plan in which nothing is copied, by the engine's name of the link; it needs no addresses.

    It has the link's keys: who lets go signs a last report.
    """
    return CopyPlan(
        link_id=link_id,
        revision=0,
        source=_NOBODY,
        destination=_NOBODY,
        signing_keys=signing_keys.link_signer(link_id).texts(),
        request_id=current_request_id(),
    )


def _of_this_topic(mirror: MirrorTopic) -> tuple[PartitionAssignment, ...]:
    return tuple(replace(one, mirror_topic_id=mirror.mirror_topic_id) for one in assignments_of(mirror))


def throughput_limit(link: ClusterLink) -> int:
    """Answer the link's bandwidth limit in bytes per second, 0 where there is none."""
    return max(0, int(config_of(link, "link.throughput.limit.bytes.per.second") or 0))


def retry_timeout(link: ClusterLink) -> timedelta:
    """Return how long a mirror of the link is retried before it is FAILED."""
    return timedelta(milliseconds=int(link.config("cluster.link.retry.timeout.ms")))


def _seen(row: MirrorPartition) -> tuple[int, int] | None:
    """Answer under which leader epoch of the source a partition was read how far, where it is known."""
    known = row.source_epoch is not None and row.source_epoch_end is not None
    return (row.source_epoch or 0, row.source_epoch_end or 0) if known else None


def setup_of(mirror: MirrorTopic) -> MirrorSetup:
    """Answer what to create."""
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
    """Pick the mirrors, by primary key, that have refused records without a key."""
    refused = StateTransitionError.objects.filter(mirror__in=[one.pk for one in mirrors], code=ErrorCode.KEYLESS_RECORDS)
    return set(refused.values_list("mirror_id", flat=True))


def sync_of(mirror: MirrorTopic, *, keyless: bool = False) -> MirrorSync:
    """Answer what shall follow the source; ``keyless`` as of ``MirrorSync``."""
    return MirrorSync(
        source=source_address(mirror.link),
        destination=mirror.link.destination.address,
        source_topic=mirror.source_topic,
        source_topic_id=mirror.source_topic_id,
        mirror_topic=mirror.name,
        mirror_topic_id=mirror.mirror_topic_id,
        sync_include=mirror.link.sync_include,
        previous=dict(mirror.source_configs),
        configs=dict(mirror.config_overrides),
        keyless=keyless,
        guard=is_guarded(mirror.link),
    )


def stop_of(
    mirror: MirrorTopic,
    *,
    generation: int,
    fenced_ends: tuple[tuple[int, int], ...] | None = None,
    partitions: int | None = None,
) -> MirrorStop:
    """Answer what to fence; ``fenced_ends`` where the caller knows what an earlier attempt recorded.

    ``partitions`` are those the topic has, where the row does not know.
    """
    fences = ends.fenced_ends(mirror) if fenced_ends is None else fenced_ends
    ways = source_address(mirror.link), mirror.link.destination.address
    stop = _stop(mirror, ways, generation=generation, fenced_ends=fences, partitions=partitions)
    return replace(stop, contested=is_contested(mirror))


def stops_of(mirrors: Iterable[MirrorTopic], *, generations: Mapping[int, int]) -> list[MirrorStop]:
    """Answer what to fence of one link, nothing of which was fenced before; ``generations`` by primary key."""
    found = list(mirrors)
    assert len({one.link_id for one in found}) <= 1
    ways = (source_address(found[0].link), found[0].link.destination.address) if found else None
    return [_stop(one, ways, generation=generations[one.pk], fenced_ends=()) for one in found if ways]


def _stop(
    mirror: MirrorTopic,
    ways: tuple[ClusterAddress, ClusterAddress],
    *,
    generation: int,
    fenced_ends: tuple[tuple[int, int], ...],
    partitions: int | None = None,
) -> MirrorStop:
    source, destination = ways
    return MirrorStop(
        source=source,
        destination=destination,
        assignments=assignments_of(mirror, partitions=partitions),
        reason=StopReason(mirror.stop_reason),
        generation=generation,
        source_topic=mirror.source_topic,
        mirror_topic=mirror.name,
        mirror_topic_id=mirror.mirror_topic_id,
        was_mirror=mirror.prior_state not in BECOMING,
        failed=mirror.prior_state == MirrorState.FAILED,
        seeding=_may_be_seeding(mirror),
        fenced_ends=fenced_ends,
        giving_back=mirror.giving_back,
        source_configs=dict(mirror.source_configs),
        configs=dict(mirror.config_overrides),
        sync_include=mirror.link.sync_include,
        guard=is_guarded(mirror.link),
        was_closed=mirror.prior_state in CLOSED_FIRST,
        group_offsets=known_offsets(mirror),
    )


def _may_be_seeding(mirror: MirrorTopic) -> bool:
    """Tell whether the topic may hold part of a head and nothing else: made by a set-up, or for a restore, that did not end."""
    if not mirror.num_partitions:
        return True
    if mirror.holds_copy or mirror.prior_state != MirrorState.PENDING_RESTORE_MIRROR:
        return False
    run = mirror.restores.order_by("-pk").first()
    return run is not None and run.doomed_at is not None


def turn_of(
    mirror: MirrorTopic, *, ends: Mapping[int, int], generation: int, begins: Mapping[int, int] | None = None
) -> MirrorTurn:
    """Answer what to take over as a mirror, where its new source was fenced, and where that began if it was not at 0."""
    return MirrorTurn(
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
    """Answer what to compare: up to the mirror's end now, or to where it was stopped."""
    return VerifyPlan(
        source=source_address(mirror.link),
        destination=mirror.link.destination.address,
        source_topic=mirror.source_topic,
        mirror_topic=mirror.name,
        ends=ends.mirrored_ends(mirror),
        compacted=mirror.was_compacted,
    )


def is_compacting(mirror: MirrorTopic, source_configs: Mapping[str, str]) -> bool:
    """Tell whether either side is compacted now, where the source has these configs."""
    return is_compacted(source_configs) or is_compacted(mirror.config_overrides)


def is_guarded(link: ClusterLink) -> bool:
    """Tell whether mirrors are shut to other writers: a principal that may not append markers may not set ACLs either."""
    return link.gap_filler == GapFiller.MARKERS


def is_contested(mirror: MirrorTopic) -> bool:
    """Tell whether another mirror that is not stopped has the name on this cluster: the rules on it may be that one's."""
    return pairs.mirrors_of_name(mirror.link.destination.cluster_id, mirror.name).exclude(pk=mirror.pk).exists()


def config_of(link: ClusterLink, name: str) -> str:
    """Answer the text of a config that was set, "" otherwise; no query where configs were read with the link."""
    return next((one.value for one in link.configs.all() if one.name == name), "")
