"""Read-only requests: probe clusters and links, read log ends, check a promotion and the tail of a mirror."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import TransactionalWriters
from linkengine.domain.configs import NEEDED
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.messages import Message, gettext_lazy, join_messages
from linkengine.domain.plans import ClusterProbe, GapFiller, TopicDescription
from linkengine.kafka import producers
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.brokers import measure_distances
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import TopicEnds, newest_ends, newest_view
from linkengine.kafka.transactions import choose_gap_filler
from linkengine.sync import topics as mirror_topics
from linkengine.sync.configs import pending_change, read_source_configs
from linkengine.sync.topics import missing_mirror

# --- clusters, links and topics ------------------------------------------------------------------------------------------


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
        return producers.transactional_writers(address, topics)
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
        raise LinkEngineError(
            ErrorCode.SOURCE_TOPIC_ID_CHANGED,
            f"Topic '{topic}' was deleted and created again. Its offsets are those of another "
            "topic. Create its mirror topic again to copy it.",
        )
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


# --- promotion -----------------------------------------------------------------------------------------------------------
# A promoted mirror equals its source in records, partitions and configs. ``promotion_blockers`` returns what it still waits
# for.


Blocker = tuple[ErrorCode, str]
_NAMED_AT_MOST = 3  # lagging partitions listed in a message


def promotion_blockers(
    *,
    source: ClusterAddress,
    destination: ClusterAddress,
    source_topic: str,
    mirror_topic: str,
    sync_include: tuple[str, ...] | None = None,
    refused: Collection[str] = (),
) -> list[Blocker]:
    """Return (code, message) of everything the promotion waits for; empty if it may continue. Changes nothing.

    Configs that the destination has just ``refused`` are not waited for, unless the topic needs them: the stop tries them once
    more and reports them.

    Producers must have stopped writing to the source, or the result is outdated at once. Run ``sync_mirror`` first, so that
    configs and partitions need not wait for its next run.
    """
    there, here = ClusterAdmin(source), ClusterAdmin(destination)
    try:
        ends, mirror = newest_ends(source, source_topic), here.find(mirror_topic)
        if mirror is None:
            raise missing_mirror(mirror_topic)
        if len(ends.ends) != mirror.partitions:
            return [_partitions(ends, mirror)]
        values = read_source_configs(there, source_topic, include=sync_include)
        change = pending_change(here, mirror_topic, source_configs=values, include=sync_include)
        pending = [name for name in change.names if name not in refused or name in NEEDED]
        configs = [_configs(pending)] if pending else []
        return [*_lags(ends, here.offsets(mirror_topic, OffsetKind.END, partitions=mirror.partitions)), *configs]
    except LinkEngineError as error:
        return [(error.code, error.message)]


def _lags(source: TopicEnds, mirrored: Mapping[int, int]) -> Iterator[Blocker]:
    stable, ends = source.stable, source.ends
    behind = {partition: stable[partition] - end for partition, end in mirrored.items() if stable[partition] > end}
    if behind:
        yield ErrorCode.WAITING_FOR_LAG, _lag_message(behind)
    ahead = [partition for partition, end in mirrored.items() if end > ends[partition]]
    if ahead:
        yield ErrorCode.UNEXPECTED_TRUNCATION, _ahead_message(ahead[0])
    pending = [partition for partition in stable if stable[partition] < ends[partition]]
    if pending and not behind:
        yield ErrorCode.WAITING_FOR_LAG, _open_transaction_message(pending[0])


def _lag_message(behind: dict[int, int]) -> Message:
    worst = sorted(behind, key=lambda partition: -behind[partition])[:_NAMED_AT_MOST]
    named = (gettext_lazy("partition %(number)s: %(what)s", number=partition, what=behind[partition]) for partition in worst)
    return gettext_lazy(
        "%(count)s offsets are still to be copied from the source (%(partitions)s). Mirroring continues until then.",
        count=sum(behind.values()),
        partitions=join_messages(", ", named),
    )


def _ahead_message(partition: int) -> Message:
    return gettext_lazy(
        "The mirror is ahead of its source in partition %(partition)s: the source has lost acknowledged records (an unclean "
        "leader election?), or another producer wrote to the mirror. Fail over to keep the mirror as it is.",
        partition=partition,
    )


def _open_transaction_message(partition: int) -> Message:
    return gettext_lazy(
        "A transaction is still open on the source in partition %(partition)s; its records are copied when it ends. Wait for "
        "its producer or for the transaction timeout.",
        partition=partition,
    )


def _partitions(source: TopicEnds, mirror: TopicDescription) -> Blocker:
    return ErrorCode.WAITING_FOR_PARTITIONS, gettext_lazy(
        "The source topic has %(source)s partitions, the mirror %(mirror)s. The next run adds them.",
        source=len(source.ends),
        mirror=mirror.partitions,
    )


def _configs(names: Sequence[str]) -> Blocker:
    text = gettext_lazy("Configs of the mirror do not equal the source's yet: %(names)s.", names=", ".join(names))
    return ErrorCode.WAITING_FOR_CONFIGS, text


# --- tail check from recorded ends ---------------------------------------------------------------------------------------
# Whether a mirror still ends with what its last copy worker wrote. Equal ends of both sides do not show whose records they are.
# A copy worker that ends in an orderly way releases its lease with the mirror's end and the leader epoch of the source under
# which it had read everything below (``copyjob.source.epoch_history``). A foreign write to a mirror that is not being copied
# to, or records that the source lost and replaced, can make the ends equal as well; then either of the two numbers differs.


# by partition: the source's leader epoch and the mirror's end with which the lease was released; None: unknown
ReleasedEnds = Mapping[int, tuple[int, int] | None]


def failed_tail_checks(
    *, source: ClusterAddress, destination: ClusterAddress, source_topic: str, mirror_topic: str, released: ReleasedEnds
) -> list[int]:
    """Return the partitions that fail the check: the mirror's end has moved since, or the source's leader has changed.

    Only for a time at which no copy worker is running. Raises if a leader does not respond.
    """
    with closing(Cluster(source)) as cluster:
        leaders = newest_view(cluster, source_topic).partitions
    ends = ClusterAdmin(destination).offsets(mirror_topic, OffsetKind.END, partitions=len(released))
    return [
        partition
        for partition, recorded in sorted(released.items())
        if partition not in leaders or recorded != (leaders[partition].epoch, ends[partition])
    ]
