"""Reverse the direction between two topics: close the source to producers, and later take it over as the new mirror.

The two sides are never writable at the same time: the source is closed on every broker before its mirror drains, and stays
closed until a user fails it over. A Produce request that passed the authorizer before the ACL arrived ends within moments; the
caller therefore checks the end twice after draining, and ``take_over_mirror`` confirms with a marker at the agreed offset that
nothing was written in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import partial

import structlog

from linkengine.copyjob.stop.takeover import partitions_taken_over, write_takeover_markers
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import follows_start
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorCreated, MirrorTakeover
from linkengine.domain.plans import LogRange
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import EARLIEST, common_end, count_partitions, log_ends, newest_view, read_ends, read_offsets
from linkengine.kafka.producers import brokers_without_deny_write
from linkengine.kafka.protocol import BrokerError, UnreplicatedError
from linkengine.kafka.topicviews import TopicMetadata
from linkengine.sync.topics import follow_partitions, observe_source, read_source_configs, sync_configs

log = structlog.get_logger(__name__)


def close_topic(address: ClusterAddress, topic: str) -> None:
    """Make an ordinary topic read-only; raise TIMEOUT_ERROR until every broker applies the ACL. Safe to repeat."""
    admin = ClusterAdmin(address)
    if not admin.has_authorizer():
        raise LinkEngineError(
            ErrorCode.SECURITY_DISABLED_ERROR,
            f"The cluster of topic {topic!r} has no authorizer, so producers cannot be denied. Set authorizer.class.name "
            "on its brokers, or stop the producers and promote instead.",
        )
    if not admin.denies_writes(topic):
        admin.deny_writes(topic)
        log.info("topic.closed", topic=topic)
    cluster = Cluster(address)
    try:
        late = brokers_without_deny_write(cluster, topic)
    finally:
        cluster.close()
    if late:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR,
            f"Broker {late[0]} does not refuse writes to topic {topic!r} yet. It is checked again shortly.",
        )


def open_topic(address: ClusterAddress, topic: str) -> None:
    """Remove the ACLs that deny writes to or reads from a topic. Safe to repeat, also if the topic does not exist."""
    admin = ClusterAdmin(address)
    admin.allow_writes(topic)
    admin.allow_reads(topic)


def open_if_closed(address: ClusterAddress, topic: str) -> None:
    """Remove the ACL that denies writes to a topic. Safe to repeat.

    A refusal to read or change ACLs is ignored: then this engine cannot have set one.
    """
    admin = ClusterAdmin(address)
    try:
        if admin.has_authorizer() and admin.denies_writes(topic):
            admin.allow_writes(topic)
    except LinkEngineError as error:
        if error.code != ErrorCode.AUTHORIZATION_ERROR:
            raise
        log.info("topic.not_opened", topic=topic, code=error.code)


def log_ranges(address: ClusterAddress, topic: str, *, closed: bool = True) -> tuple[LogRange, ...]:
    """Return the log range of each partition; raise if a partition has no leader, or a broker does not respond
    (``newest_view``).

    ``closed``: producers are denied and the result is used as final, so it also raises while a leader holds records that its
    followers do not have.
    """
    with closing(Cluster(address)) as cluster:
        view = newest_view(cluster, topic)
        starts, found = _lowest_starts(cluster, topic, view), read_ends(cluster, topic, view)
        if closed:
            _check_replicated(cluster, topic, view, visible=found.ends)
    return tuple(
        LogRange(partition=number, start=starts[number], end=end, stable_end=found.stable[number])
        for number, end in sorted(found.ends.items())
    )


def _lowest_starts(cluster: Cluster, topic: str, view: TopicMetadata) -> dict[int, int]:
    """Return the log starts, each the lower of two responses. That is safe, since log starts only grow.

    If a damaged response had a start that is too high, a restore would delete the topic without an export of the records below
    it.
    """
    first, second = (read_offsets(cluster, topic, view, timestamp=EARLIEST) for _ in range(2))
    return {number: min(start, second[number]) for number, start in first.items()}


def kept_up_to(address: ClusterAddress, topic: str, *, epochs: Mapping[int, int]) -> dict[int, int]:
    """Return, by partition, the offset below which a topic still holds what was read from it under these leader epochs.

    0 if that is unknown; see ``common_end``. Raises if a partition has no leader, or a broker does not respond
    (``newest_view``).
    """
    with closing(Cluster(address)) as cluster:
        return common_end(cluster, topic, newest_view(cluster, topic), epochs=epochs)


def _check_replicated(cluster: Cluster, topic: str, view: TopicMetadata, *, visible: Mapping[int, int]) -> None:
    """Raise if records are beyond the high watermark: with acks=1 they may be acknowledged, but no consumer can read them."""
    for broker, epochs in view.by_leader().items():
        places = {(topic, number): epoch for number, epoch in epochs.items()}
        for (_, number), (error, end) in log_ends(cluster, broker, places).items():
            if error:
                raise BrokerError(error, f"The log end offset of {topic}-{number} cannot be read")
            if end > visible.get(number, end):
                raise UnreplicatedError(topic, number)


def take_over_mirror(takeover: MirrorTakeover) -> MirrorCreated:
    """Make a closed topic a mirror and set a mirror's configs; safe to repeat.

    Raises SIDES_DIVERGED if the topic holds records from the offset of the other side's fence on, or older records than the
    other side ever had (as its mirror it would lose them), or has another id than ``mirror_topic_id``. Raises
    SOURCE_TOPIC_ID_CHANGED if the other side's topic has another id than ``source_topic_id``.
    """
    source, here = ClusterAdmin(takeover.source), ClusterAdmin(takeover.destination)
    topic = observe_source(source, takeover.source_topic, topic_id=takeover.source_topic_id)
    _check_same(here, takeover)
    close_topic(takeover.destination, takeover.mirror_topic)
    _check_beginning(here, takeover)
    write_takeover_markers(takeover.destination, takeover.assignments, ends=dict(takeover.ends), generation=takeover.generation)
    values = read_source_configs(source, takeover.source_topic, include=takeover.sync_include)
    recount = partial(count_partitions, takeover.source, topic.name)
    partitions = follow_partitions(here, takeover.mirror_topic, partitions=topic.partitions, recount=recount)
    sync_configs(here, takeover.mirror_topic, source_configs=values, include=takeover.sync_include)
    log.info("mirror.taken_over", topic=takeover.mirror_topic, ends=takeover.ends)
    return MirrorCreated(
        source_topic_id=topic.topic_id,
        mirror_topic_id=takeover.mirror_topic_id,
        partitions=partitions,
        read_only=True,
        source_configs=values,
    )


def taken_over_before(takeover: MirrorTakeover) -> frozenset[int]:
    """Return the partitions that an earlier attempt has taken over and that were not written to since."""
    return partitions_taken_over(takeover.destination, takeover.assignments, ends=dict(takeover.ends))


def _check_same(here: ClusterAdmin, takeover: MirrorTakeover) -> None:
    """Raise for a topic that was created again: it may be shorter than the copy, and would look like its beginning."""
    if here.describe(takeover.mirror_topic).topic_id == takeover.mirror_topic_id:
        return
    raise LinkEngineError(
        ErrorCode.SIDES_DIVERGED,
        f"Topic {takeover.mirror_topic!r} was deleted and created again. Its records are not those of the other side, so it "
        "cannot become its mirror. Fail over here to make it writable again. Truncate-and-restore then exports its records.",
    )


def _check_beginning(here: ClusterAdmin, takeover: MirrorTakeover) -> None:
    """Raise if the topic begins before the other side: as a mirror it would be trimmed to that start and lose records."""
    if not takeover.begins or not follows_start(takeover.sync_include):
        return
    starts = here.offsets(takeover.mirror_topic, OffsetKind.START)
    older = [(number, starts[number], begin) for number, begin in takeover.begins if starts.get(number, begin) < begin]
    if older:
        partition, start, begin = older[0]
        raise LinkEngineError(
            ErrorCode.SIDES_DIVERGED,
            f"Topic {takeover.mirror_topic!r} holds older records than the other side ever had: partition {partition} begins "
            f"at offset {start}, the other side at {begin}. As its mirror it would lose them. Fail over here to make it "
            "writable. Truncate-and-restore then exports these records.",
        )
