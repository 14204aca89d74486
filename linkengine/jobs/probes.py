"""Read-only requests to clusters: probe, list topics, check a link, read the end of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import TransactionalWriters
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import ClusterProbe, GapFiller, TopicDescription
from linkengine.kafka import topicwriters
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.distances import measure_distances
from linkengine.kafka.gapfillers import choose_gap_filler
from linkengine.kafka.newest_offsets import newest_ends
from linkengine.sync import topics as mirror_topics

_UNREACHABLE = frozenset(
    {ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, ErrorCode.TIMEOUT_ERROR}
)


def probe_cluster(address: ClusterAddress) -> ClusterProbe:
    """Connect and return id, brokers, release and authorizer. Raises with the precise reason if the cluster refuses."""
    return ClusterAdmin(address).probe()


def list_topics(address: ClusterAddress, *, with_configs: bool = True) -> list[TopicDescription]:
    """Describe every topic the principal may see, by name; two requests per 500 topics."""
    return ClusterAdmin(address).topics(with_configs=with_configs)


def find_topic(address: ClusterAddress, topic: str) -> TopicDescription | None:
    """Describe a topic, None if there is none."""
    return ClusterAdmin(address).find(topic)


def unclean_elections(address: ClusterAddress, topics: Sequence[str]) -> dict[str, bool]:
    """Return whether topics allow unclean leader elections; topics whose configs may not be read are left out."""
    configs = ClusterAdmin(address).effective_configs_of(topics)
    return {topic: values.get("unclean.leader.election.enable") == "true" for topic, values in configs.items()}


def transactional_writers(address: ClusterAddress, topics: Sequence[str]) -> dict[str, TransactionalWriters]:
    """Return transactional producers by topic, without topics that cannot be read; empty if the cluster refuses."""
    try:
        return topicwriters.transactional_writers(address, topics)
    except LinkEngineError:
        return {}


def find_mirror(address: ClusterAddress, topic: str, *, topic_id: str, contested: bool = False) -> TopicDescription | None:
    """Describe the topic that is a mirror's own, None if there is none; see ``sync.topics``."""
    return mirror_topics.find_mirror(ClusterAdmin(address), topic, topic_id=topic_id, contested=contested)


def topic_ends(address: ClusterAddress, topic: str, *, topic_id: str) -> dict[int, int]:
    """Return where each partition ends, records of open transactions included.

    Raises if the topic cannot be read, and SOURCE_TOPIC_ID_CHANGED if it is another topic of the same name.
    """
    found = newest_ends(address, topic)
    if found.topic_id != topic_id:
        raise LinkEngineError(ErrorCode.SOURCE_TOPIC_ID_CHANGED, f"Topic '{topic}' was deleted and created again.")
    return found.ends


def check_link(
    *,
    source: ClusterAddress,
    destination: ClusterAddress,
    expected_source_cluster_id: str | None = None,
    fills_gaps: bool = True,
    with_distances: bool = False,
) -> ClusterProbe:
    """Check that a link can work and return the source's probe.

    ``fills_gaps`` is False for the source side of a link: its mirrors are elsewhere, so it never writes to its "destination".
    ``with_distances`` also measures the round trip to each broker of the source.

    Raises what the source's probe raises, CLUSTER_ID_MISMATCH, MISCONFIGURATION_ERROR if both are the same cluster,
    DESTINATION_UNAVAILABLE, and AUTHORIZATION_ERROR if the link's principal can fill gaps at the destination neither by markers
    nor by transactions.
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
    if fills_gaps:
        there = replace(there, gap_filler=choose_gap_filler(destination))
    return replace(there, distances=measure_distances(source)) if with_distances else there


def find_gap_filler(destination: ClusterAddress) -> GapFiller:
    """Return how gaps can be filled at a destination; raises the same errors of the destination as ``check_link``."""
    _probe_destination(destination)
    return choose_gap_filler(destination)


def _probe_destination(destination: ClusterAddress) -> ClusterProbe:
    try:
        return probe_cluster(destination)
    except LinkEngineError as error:
        code = ErrorCode.DESTINATION_UNAVAILABLE if error.code in _UNREACHABLE else error.code
        raise LinkEngineError(code, f"The destination cluster refuses the connection. {error.message}") from error
