"""Log start and log end of partitions: ListOffsets, OffsetForLeaderEpoch, DeleteRecords. Blocking; many partitions per call.

A response that leaves out a requested partition is malformed: a broker returns an error code for it instead.
ListOffsets returns the high watermark (or the last stable offset). Only OffsetForLeaderEpoch of the current epoch returns the
**log end offset** (KIP-101, KIP-320), because a replica id of -2 may see offsets beyond the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.protocol.admin import DeleteRecordsRequest, DeleteRecordsResponse
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection

TopicPartition = tuple[str, int]

EARLIEST = -2
LATEST = -1
EARLIEST_LOCAL = -4  # local log start; older records are in remote storage (KIP-405)
_LOCAL_SINCE = 8
_DEBUG_REPLICA = -2
_CONSUMER = -1
_DELETE_TIMEOUT_MS = 10_000


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
