"""Log starts, log ends and offsets of many partitions per call: ListOffsets, OffsetForLeaderEpoch, DeleteRecords. Blocking.

Three ways: requests to a broker for the partitions that it leads, the newest leaders for decisions on which records depend,
and an admin client for the rest.

A response that leaves out a requested partition is malformed: a broker returns an error code for it instead.
ListOffsets returns the high watermark (or the last stable offset). Only OffsetForLeaderEpoch of the current epoch returns the
**log end offset** (KIP-101, KIP-320), because a replica id of -2 may see offsets beyond the high watermark.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as AdminPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec
from kafka.protocol.admin import DeleteRecordsRequest, DeleteRecordsResponse
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TopicPartition
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession, login_error
from linkengine.kafka.admin_topics import LAG_POLL_S, LAG_S, names
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.protocol import TOPIC_GONE, BrokerError
from linkengine.kafka.topicviews import Survey, TopicMetadata

EARLIEST = -2
LATEST = -1
EARLIEST_LOCAL = -4  # local log start; older records are in remote storage (KIP-405)
_LOCAL_SINCE = 8
_DEBUG_REPLICA = -2
_CONSUMER = -1
_DELETE_TIMEOUT_MS = 10_000


# --- from the broker that leads the partitions ---------------------------------------------------------------------------


def log_ends(
    cluster: Cluster, broker: int, epochs: Mapping[TopicPartition, int], *, timeout_s: float | None = None
) -> dict[TopicPartition, tuple[int, int]]:
    """Return (error, log end offset) per partition from its leader; ``epochs`` are the current leader epochs.

    The leader returns FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if its own epoch is different.
    """
    Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

    def build(connection: Connection) -> Any:
        version = connection.version_for(OffsetForLeaderEpochRequest.API_KEY, highest=4, lowest=3)
        topics = [
            Topic(
                topic=name,
                partitions=[
                    Topic.OffsetForLeaderPartition(partition=number, current_leader_epoch=epoch, leader_epoch=epoch)
                    for number, epoch in group.items()
                ],
            )
            for name, group in by_topic(epochs).items()
        ]
        return OffsetForLeaderEpochRequest(version=version, replica_id=_DEBUG_REPLICA, topics=topics)

    def read(response: Any) -> dict[TopicPartition, tuple[int, int]]:
        found = {
            (topic.topic, partition.partition): (partition.error_code, partition.end_offset)
            for topic in response.topics
            for partition in topic.partitions
        }
        return {place: found[place] for place in epochs}

    return cluster.call(broker, build, response=OffsetForLeaderEpochResponse, read=read, timeout_s=timeout_s)


def epoch_ends(
    cluster: Cluster, broker: int, requested: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int, int]]:
    """Return, per partition, (error, epoch, end): the newest epoch with records up to the requested epoch, and its end offset.

    ``requested`` has (current leader epoch, requested epoch). Epoch and end are -1 if the leader has no such epoch (KIP-101).
    """
    Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

    def build(connection: Connection) -> Any:
        version = connection.version_for(OffsetForLeaderEpochRequest.API_KEY, highest=4, lowest=3)
        topics: dict[str, list[Any]] = {}
        for (name, number), (current, epoch) in requested.items():
            wanted = Topic.OffsetForLeaderPartition(partition=number, current_leader_epoch=current, leader_epoch=epoch)
            topics.setdefault(name, []).append(wanted)
        chosen = [Topic(topic=name, partitions=group) for name, group in topics.items()]
        return OffsetForLeaderEpochRequest(version=version, replica_id=_CONSUMER, topics=chosen)

    def read(response: Any) -> dict[TopicPartition, tuple[int, int, int]]:
        found = {
            (topic.topic, partition.partition): (partition.error_code, partition.leader_epoch, partition.end_offset)
            for topic in response.topics
            for partition in topic.partitions
        }
        return {place: found[place] for place in requested}

    return cluster.call(broker, build, response=OffsetForLeaderEpochResponse, read=read)


def list_offsets(
    cluster: Cluster, broker: int, partitions: Iterable[TopicPartition], *, timestamp: int, read_committed: bool = False
) -> dict[TopicPartition, tuple[int, int]]:
    """Return (error, offset) per partition: EARLIEST, LATEST (high watermark or last stable offset), or by timestamp.

    EARLIEST_LOCAL is EARLIEST if the broker is too old for remote storage.
    """
    wanted = dict.fromkeys(partitions, 0)
    Topic = ListOffsetsRequest.ListOffsetsTopic

    def build(connection: Connection) -> Any:
        version = connection.version_for(
            ListOffsetsRequest.API_KEY, highest=_LOCAL_SINCE if timestamp == EARLIEST_LOCAL else 6, lowest=4
        )
        moment = EARLIEST if timestamp == EARLIEST_LOCAL and version < _LOCAL_SINCE else timestamp
        topics = [
            Topic(
                name=name,
                partitions=[
                    Topic.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=moment)
                    for number in group
                ],
            )
            for name, group in by_topic(wanted).items()
        ]
        return ListOffsetsRequest(version=version, replica_id=_CONSUMER, isolation_level=int(read_committed), topics=topics)

    def read(response: Any) -> dict[TopicPartition, tuple[int, int]]:
        found = {
            (topic.name, partition.partition_index): (partition.error_code, partition.offset)
            for topic in response.topics
            for partition in topic.partitions
        }
        return {place: found[place] for place in wanted}

    return cluster.call(broker, build, response=ListOffsetsResponse, read=read)


def log_starts(cluster: Cluster, broker: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return (error, log start offset) per partition, from two requests: the lower offset, and the first error if there is one.

    Log starts only grow, and Kafka's protocol has no checksum over them. Records before a start count as gone, so a start that
    was damaged in transit would lose records.
    """
    places = list(partitions)
    first, second = (list_offsets(cluster, broker, places, timestamp=EARLIEST) for _ in range(2))
    return {place: (first[place][0] or second[place][0], min(first[place][1], second[place][1])) for place in places}


def delete_records(
    cluster: Cluster, broker: int, befores: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """Advance log starts; return (error, new log start) per partition."""
    Topic = DeleteRecordsRequest.DeleteRecordsTopic

    def build(connection: Connection) -> Any:
        version = connection.version_for(DeleteRecordsRequest.API_KEY, highest=2, lowest=1)
        topics = [
            Topic(
                name=name,
                partitions=[
                    Topic.DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in group.items()
                ],
            )
            for name, group in by_topic(befores).items()
        ]
        return DeleteRecordsRequest(version=version, topics=topics, timeout_ms=_DELETE_TIMEOUT_MS)

    def read(response: Any) -> dict[TopicPartition, tuple[int, int]]:
        found = {
            (topic.name, partition.partition_index): (partition.error_code, partition.low_watermark)
            for topic in response.topics
            for partition in topic.partitions
        }
        return {place: found[place] for place in befores}

    return cluster.call(broker, build, response=DeleteRecordsResponse, read=read, timeout_s=_DELETE_TIMEOUT_MS / 1000 + 1)


def by_topic(values: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """Return the per-partition values grouped by topic, as requests need them."""
    groups: dict[str, dict[int, int]] = {}
    for (name, number), value in values.items():
        groups.setdefault(name, {})[number] = value
    return groups


# --- offsets from the newest leaders -------------------------------------------------------------------------------------
# For decisions on which records depend. An admin client uses the metadata of the broker it is connected to. A broker that is
# cut off from the controllers names outdated leaders, perhaps itself, whose log ends stand still while producers write to the
# new leaders. So all brokers are queried for the leaders, and the highest leader epochs count.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """The offsets of a topic, by partition."""

    topic_id: str
    stable: dict[int, int]  # last stable offsets
    ends: dict[int, int]  # high watermarks, read after them


def newest_ends(address: ClusterAddress, topic: str) -> TopicEnds:
    """Return the ends; raise if a partition has no leader, or if a silent broker may have newer metadata."""
    with closing(Cluster(address)) as cluster:
        return read_ends(cluster, topic, newest_view(cluster, topic))


def read_ends(cluster: Cluster, topic: str, view: TopicMetadata) -> TopicEnds:
    """Return the ends as the leaders of this view report them; raise if a partition has no leader."""
    stable = read_offsets(cluster, topic, view, timestamp=LATEST, read_committed=True)
    return TopicEnds(topic_id=view.topic_id_text, stable=stable, ends=read_offsets(cluster, topic, view, timestamp=LATEST))


def count_partitions(address: ClusterAddress, topic: str) -> int:
    """Return the partition count of the topic in the newest metadata; raise if a broker is silent."""
    with closing(Cluster(address)) as cluster:
        return len(newest_view(cluster, topic).partitions)


def known_topic_ids(address: ClusterAddress, topic: str) -> frozenset[str]:
    """Return the ids under which any broker has the topic; raise if a broker that does not respond, or refuses, may have it."""
    with closing(Cluster(address)) as cluster:
        survey = _survey(cluster, topic)
    survey.check_complete(f"topic {topic!r} exists")
    known, error = survey.topic_ids[topic], survey.topics[topic].error
    if not known and error and error not in TOPIC_GONE:
        raise BrokerError(error, f"It is unknown whether topic {topic!r} exists")
    return known


def newest_view(cluster: Cluster, topic: str) -> TopicMetadata:
    """Return the topic with its newest leaders; raise if a silent broker may have newer metadata."""
    survey = _survey(cluster, topic)
    view = survey.topics[topic]
    if view.error:
        raise BrokerError(view.error, f"Topic {topic!r} cannot be read")
    survey.check_complete(f"topic {topic!r} has another leader, with more records")
    return view


def _survey(cluster: Cluster, topic: str) -> Survey:
    try:
        return cluster.survey([topic])
    except LinkEngineError as error:
        raise login_error(error, what=f"describe topic {topic!r}") from None


def read_offsets(
    cluster: Cluster, topic: str, view: TopicMetadata, *, timestamp: int, read_committed: bool = False
) -> dict[int, int]:
    """Return the ListOffsets results of the leaders of this view, by partition; raise if a partition has no leader."""
    found: dict[int, int] = {}
    for broker, epochs in view.by_leader().items():
        places = [(topic, partition) for partition in epochs]
        results = list_offsets(cluster, broker, places, timestamp=timestamp, read_committed=read_committed)
        for (_, partition), (error, offset) in results.items():
            if error:
                raise BrokerError(error, f"The offsets of {topic}-{partition} cannot be read")
            found[partition] = offset
    return found


def common_end(cluster: Cluster, topic: str, view: TopicMetadata, *, epochs: Mapping[int, int]) -> dict[int, int]:
    """Return, by partition, up to which offset a topic still holds the records of these leader epochs (KIP-101).

    0 if that is unknown: the leader has no such epoch, or only older epochs. Partitions that the topic does not have are left
    out. Raises if a partition has no leader.
    """
    found: dict[int, int] = {}
    for broker, leaders in view.by_leader().items():
        requested = {(topic, number): (epoch, epochs[number]) for number, epoch in leaders.items() if number in epochs}
        for (_, number), (error, epoch, end) in (epoch_ends(cluster, broker, requested) if requested else {}).items():
            if error:
                raise BrokerError(error, f"The history of {topic}-{number} cannot be read")
            found[number] = end if leaders[number] >= epochs[number] and epoch >= 0 else 0
    return found


# --- by an admin client --------------------------------------------------------------------------------------------------
# All partitions in a single call. Functions over an AdminSession.


NO_SUCH_RECORD = -1  # by timestamp; librdkafka's OFFSET_INVALID, for a partition without a response, is far below


class OffsetKind(StrEnum):
    """The kind of offset to read."""

    START = "start"  # log start
    END = "end"  # high watermark: after the last replicated record
    STABLE_END = "stable-end"  # before the first open transaction


def offsets_of(session: AdminSession, partitions: Iterable[tuple[str, int]], kind: OffsetKind) -> dict[tuple[str, int], int]:
    """Return an offset for each of many partitions, in a single call; partitions without a result now are left out."""
    wanted = list(partitions)
    found = _offsets(session, wanted, kind)
    missing = [place for place in wanted if place not in found]
    if missing:  # librdkafka uses metadata that it caches for minutes, without topics or partitions created since
        names(session)
        found |= _offsets(session, missing, kind)
    return found


def patient_offsets(
    session: AdminSession, partitions: Iterable[tuple[str, int]], kind: OffsetKind
) -> dict[tuple[str, int], int]:
    """Return the same as ``offsets_of``, but retry for LAG_S: the leader of a new partition may not have applied it yet."""
    wanted, deadline = list(partitions), time.monotonic() + LAG_S
    found = offsets_of(session, wanted, kind)
    while len(found) < len(wanted) and time.monotonic() < deadline:
        time.sleep(LAG_POLL_S)
        found = offsets_of(session, wanted, kind)
    return found


def _offsets(session: AdminSession, partitions: Iterable[tuple[str, int]], kind: OffsetKind) -> dict[tuple[str, int], int]:
    spec = OffsetSpec.earliest() if kind is OffsetKind.START else OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {AdminPartition(topic, partition): spec for topic, partition in partitions}
    if not wanted:
        return {}
    stable = IsolationLevel.READ_COMMITTED if kind is OffsetKind.STABLE_END else IsolationLevel.READ_UNCOMMITTED
    found, _ = session.settle(
        lambda client: client.list_offsets(wanted, isolation_level=stable, request_timeout=REQUEST_TIMEOUT_S),
        what="read offsets",
    )
    # a success without an offset was observed: -1001
    return {place: offset for place, offset in _by_place(found).items() if offset >= 0}


def offsets_at(session: AdminSession, partitions: Iterable[tuple[str, int]], timestamp_ms: int) -> dict[tuple[str, int], int]:
    """Return the offset of the first stable record of each partition at or after a timestamp; -1 if there is none."""
    names(session)  # as in ``offsets_of``
    spec = OffsetSpec.for_timestamp(timestamp_ms)
    wanted = {AdminPartition(topic, partition): spec for topic, partition in partitions}
    found = session.all(
        lambda client: client.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=REQUEST_TIMEOUT_S
        ),
        what="read offsets by time",
    )
    found_offsets = _by_place(found)
    for (topic, partition), offset in found_offsets.items():
        if offset < NO_SUCH_RECORD:
            message = f"Partition {partition} of topic {topic!r} returns no offsets by time at present. Try again."
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, message)
    return found_offsets


def trim(session: AdminSession, starts: Mapping[tuple[str, int], int]) -> None:
    """Advance the log start of partitions to the given offsets (DeleteRecords)."""
    wanted = [AdminPartition(topic, partition, offset) for (topic, partition), offset in starts.items()]
    if wanted:
        names(session)  # as in ``offsets_of``
        session.all(
            lambda client: client.delete_records(wanted, request_timeout=REQUEST_TIMEOUT_S), what="delete records of a topic"
        )


def _by_place(found: Mapping[AdminPartition, ListOffsetsResultInfo]) -> dict[tuple[str, int], int]:
    return {(place.topic, place.partition): result.offset for place, result in found.items()}
