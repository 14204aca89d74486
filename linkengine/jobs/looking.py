"""Look at clusters without changing anything: probe, list topics, check a link, sample offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import structlog

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import ClusterProbe, PartitionOffsets, TopicDescription
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.gapfillers import choose_gap_filler
from linkengine.sync import topics as mirror_topics

log = structlog.get_logger(__name__)
_UNREACHABLE = frozenset(
    {ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, ErrorCode.TIMEOUT_ERROR}
)


def probe_cluster(address: ClusterAddress) -> ClusterProbe:
    """Log in and look: id, brokers, release, authorizer. Raises with the precise reason where the cluster refuses."""
    return ClusterAdmin(address).probe()


def list_topics(address: ClusterAddress, *, with_configs: bool = True) -> list[TopicDescription]:
    """Describe every topic the principal may see, by name; two requests per 500 topics."""
    return ClusterAdmin(address).topics(with_configs=with_configs)


def find_topic(address: ClusterAddress, topic: str) -> TopicDescription | None:
    """Describe one topic, None if there is none."""
    return ClusterAdmin(address).find(topic)


def find_mirror(address: ClusterAddress, topic: str, *, topic_id: str, contested: bool = False) -> TopicDescription | None:
    """Describe the topic that is a mirror's own, None if there is none; see ``sync.topics``."""
    return mirror_topics.find_mirror(ClusterAdmin(address), topic, topic_id=topic_id, contested=contested)


def topic_ends(address: ClusterAddress, topic: str, *, topic_id: str) -> dict[int, int]:
    """Answer where each partition ends, records of open transactions included.

    Raises where the topic cannot be asked, and SOURCE_TOPIC_ID_CHANGED where it is another one of the same name.
    """
    admin = ClusterAdmin(address)
    found = admin.describe(topic)
    if found.topic_id != topic_id:
        raise LinkEngineError(ErrorCode.SOURCE_TOPIC_ID_CHANGED, f"Topic '{topic}' was deleted and created again.")
    return admin.offsets(topic, OffsetKind.END, partitions=found.partitions)


def check_link(
    *, source: ClusterAddress, destination: ClusterAddress, expected_source_cluster_id: str | None = None
) -> ClusterProbe:
    """Check that a link can work and answer the source's probe.

    Raises what the source's probe raises, CLUSTER_ID_MISMATCH, MISCONFIGURATION_ERROR where both are one cluster,
    DESTINATION_UNAVAILABLE, and AUTHORIZATION_ERROR where our principal can fill gaps at the destination neither by markers nor
    by transactions.
    """
    there = probe_cluster(source)
    if expected_source_cluster_id and there.cluster_id != expected_source_cluster_id:
        raise LinkEngineError(
            ErrorCode.CLUSTER_ID_MISMATCH,
            f"The source cluster has the id {there.cluster_id}, expected was {expected_source_cluster_id}. Correct "
            "bootstrap.servers or the source cluster id.",
        )
    here = _probe_destination(destination)
    if here.cluster_id == there.cluster_id:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"Source and destination are the same cluster ({here.cluster_id}). A link needs two clusters.",
        )
    return replace(there, gap_filler=choose_gap_filler(destination))


def partition_offsets(
    *, source: ClusterAddress, destination: ClusterAddress, topics: Sequence[tuple[str, str, int]]
) -> dict[str, tuple[PartitionOffsets, ...]]:
    """Sample both sides of mirrors given as (source topic, mirror topic, partitions); answer by mirror topic.

    Two requests per cluster, whatever the number of topics. A side that does not answer leaves None.
    """
    there = [(topic, partition) for topic, _, count in topics for partition in range(count)]
    here = [(topic, partition) for _, topic, count in topics for partition in range(count)]
    source_start, source_end = _sample(source, there, kinds=(OffsetKind.START, OffsetKind.STABLE_END))
    mirror_start, mirror_end = _sample(destination, here, kinds=(OffsetKind.START, OffsetKind.END))
    return {
        mirror: tuple(
            PartitionOffsets(
                partition=partition,
                source_start=source_start.get((topic, partition)),
                source_end=source_end.get((topic, partition)),
                mirror_start=mirror_start.get((mirror, partition)),
                mirror_end=mirror_end.get((mirror, partition)),
            )
            for partition in range(count)
        )
        for topic, mirror, count in topics
    }


def _sample(
    address: ClusterAddress, places: Iterable[tuple[str, int]], *, kinds: tuple[OffsetKind, OffsetKind]
) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    admin, wanted = ClusterAdmin(address), list(places)
    try:
        return admin.many_offsets(wanted, kinds[0]), admin.many_offsets(wanted, kinds[1])
    except LinkEngineError as error:
        log.info("offsets_not_sampled", bootstrap=address.bootstrap_servers, code=error.code)
        return {}, {}


def _probe_destination(destination: ClusterAddress) -> ClusterProbe:
    try:
        return probe_cluster(destination)
    except LinkEngineError as error:
        code = ErrorCode.DESTINATION_UNAVAILABLE if error.code in _UNREACHABLE else error.code
        raise LinkEngineError(code, f"The destination cluster does not let us in. {error.message}") from error
