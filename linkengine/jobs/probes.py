"""Read-only requests: probe clusters and links, read log ends, check a promotion, and the tail or the fences of a mirror."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from enum import Enum

import structlog

from linkengine.batches.records import is_commit
from linkengine.batches.view import BatchView, iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import TransactionalWriters
from linkengine.domain.configs import NEEDED
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.messages import TranslatableText, gettext_lazy, join_messages
from linkengine.domain.plans import PRODUCER_ID_BASE, ClusterProbe, GapFiller, TopicDescription, TopicPartition
from linkengine.kafka import producers
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import TopicEnds, common_end, newest_ends, newest_view, read_ends
from linkengine.kafka.protocol import BrokerError, KafkaCode
from linkengine.kafka.single_reads import FEW_BYTES, read_batches
from linkengine.kafka.topicviews import TopicMetadata
from linkengine.kafka.transactions import choose_gap_filler
from linkengine.kafka.views import measure_distances
from linkengine.sync import topics as mirror_topics
from linkengine.sync.topics import missing_mirror, pending_change, read_source_configs

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

    Raises the errors of the source's probe, CLUSTER_ID_MISMATCH, MISCONFIGURATION_ERROR if both are the same cluster,
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
# A promoted mirror equals its source in records, partitions and configs. ``promotion_blockers`` returns the obstacles that
# remain.


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


def _lag_message(behind: dict[int, int]) -> TranslatableText:
    worst = sorted(behind, key=lambda partition: -behind[partition])[:_NAMED_AT_MOST]
    named = (gettext_lazy("partition %(number)s: %(what)s", number=partition, what=behind[partition]) for partition in worst)
    return gettext_lazy(
        "%(count)s offsets are still to be copied from the source (%(partitions)s). Mirroring continues until then.",
        count=sum(behind.values()),
        partitions=join_messages(", ", named),
    )


def _ahead_message(partition: int) -> TranslatableText:
    return gettext_lazy(
        "The mirror is ahead of its source in partition %(partition)s: the source has lost acknowledged records (an unclean "
        "leader election?), or another producer wrote to the mirror. Fail over to keep the mirror as it is.",
        partition=partition,
    )


def _open_transaction_message(partition: int) -> TranslatableText:
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
# Whether a mirror still ends with the records of its last copy worker. Equal ends do not show whose records they are.
# A copy worker that ends in an orderly way releases its lease with the mirror's end and the leader epoch of the source under
# which it had read everything below (``copyjob.source.leaders``). A foreign write to a mirror that is not being copied
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


# --- fences of a stopped mirror ------------------------------------------------------------------------------------------
# Everything below an existing fence was copied. The log of a stopped mirror can lose its end like any log: by an
# unclean leader election, or when the cluster is restored from a snapshot. Producers then continue from there, and the log
# soon is longer than before. The fence is gone, or another batch is at its offset.
#
# Compaction removes markers, too. So there is a second check: the leader's epoch history, which a log keeps without its
# batches. A leader that lost the fence has a newer epoch that begins at or before it (KIP-101): the epoch of the stop ends
# there. If applications can write batches that look like the fence, both checks have to pass.


log = structlog.get_logger(__name__)


class _Found(Enum):
    """Content of the log at the offset of a fence."""

    FENCE = "a fence"
    ANOTHER = "another batch"
    REMOVED = "nothing, between other batches: compaction has removed it"
    BELOW_START = "nothing, with all before it: retention has removed it"


def lost_fences(
    address: ClusterAddress, topic: str, *, fences: Mapping[int, int], epochs: Mapping[int, int], by_markers: bool
) -> list[int]:
    """Return the partitions that no longer have the fence that was written at this offset, or for which that is unknown.

    ``epochs``: the leader epochs under which fences were seen, as far as known. ``by_markers``: a fence has a producer id that
    no coordinator assigns, so that an application's COMMIT marker is another batch. Without an epoch, a fence that retention
    has removed is not lost, but a fence that compaction has removed is. Raises if a partition has no leader, or a broker does
    not respond.
    """
    with closing(Cluster(address)) as cluster:
        view = newest_view(cluster, topic)
        ends = read_ends(cluster, topic, view).ends
        known = {number: offset for number, offset in sorted(fences.items()) if number in ends}
        gone = {number for number, at in known.items() if at >= ends[number]}
        found = {
            number: _check_fence(cluster, view, (topic, number), known[number], by_markers=by_markers)
            for number in known.keys() - gone
        }
        proven = {number for number, at_fence in found.items() if by_markers and at_fence is _Found.FENCE}
        kept = common_end(cluster, topic, view, epochs=_chosen(epochs, found.keys() - proven))
    lost = sorted(
        gone | {number for number in found.keys() - proven if _is_lost(found[number], known[number], kept.get(number))}
    )
    if lost:
        log.warning("stop.fences_lost", topic=topic, partitions=lost)
    return lost


def _chosen(epochs: Mapping[int, int], partitions: Collection[int]) -> dict[int, int]:
    return {number: epoch for number, epoch in epochs.items() if number in partitions}


def _is_lost(found: _Found, fence: int, kept_up_to: int | None) -> bool:
    """Decide by the batch at the fence's offset and by the leader's epoch history, if it is known."""
    if found is _Found.ANOTHER:
        return True
    return found is _Found.REMOVED if kept_up_to is None else kept_up_to <= fence


def _check_fence(cluster: Cluster, view: TopicMetadata, where: TopicPartition, offset: int, *, by_markers: bool) -> _Found:
    """Return the kind of batch at an offset below the log's end."""
    (topic, partition), leader = where, view.partitions[where[1]]
    with closing(cluster.open(leader.broker)) as connection:
        place = (topic, view.topic_id, partition)
        error, records = read_batches(connection, topic=place, leader_epoch=leader.epoch, offset=offset, max_bytes=FEW_BYTES)
    if error == KafkaCode.OFFSET_OUT_OF_RANGE:
        return _Found.BELOW_START
    if error:
        raise BrokerError(error, f"The fence of {topic}-{partition} cannot be read")
    for at, batch in iter_batches(records):
        if batch.base_offset <= offset < batch.next_offset:
            return _Found.FENCE if _is_fence(batch, records[at : at + batch.size], by_markers=by_markers) else _Found.ANOTHER
    return _Found.REMOVED


def _is_fence(view: BatchView, batch: memoryview, *, by_markers: bool) -> bool:
    return is_commit(view, batch) and (not by_markers or view.producer_id >= PRODUCER_ID_BASE)
