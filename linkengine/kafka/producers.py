"""What a leader remembers of our producer id: epoch, last sequence, coordinator epoch (DescribeProducers, KIP-664)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DescribeProducersRequest, DescribeProducersResponse

from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import TopicPartition, by_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """Our producer on one partition; all -1 where the leader remembers none (never written, or expired)."""

    epoch: int = -1
    last_sequence: int = -1
    coordinator_epoch: int = -1


def describe_producers(
    cluster: Cluster, broker: int, producer_ids: Mapping[TopicPartition, int], *, timeout_s: float | None = None
) -> dict[TopicPartition, tuple[int, ProducerState]]:
    """Answer (error, state of the given producer id) per partition; the broker has to lead them. Needs READ on the topics."""

    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeProducersRequest.API_KEY, highest=0)
        topics = [
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=list(group))
            for name, group in by_topic(producer_ids).items()
        ]
        return DescribeProducersRequest(version=version, topics=topics)

    def read(answer: Any) -> dict[TopicPartition, tuple[int, ProducerState]]:
        found = {
            (topic.name, one.partition_index): (one.error_code, _ours(one, producer_ids[topic.name, one.partition_index]))
            for topic in answer.topics
            for one in topic.partitions
        }
        return {place: found[place] for place in producer_ids}

    return cluster.call(broker, build, response=DescribeProducersResponse, read=read, timeout_s=timeout_s)


def _ours(partition: Any, producer_id: int) -> ProducerState:
    for one in partition.active_producers or ():  # null beside an error
        if one.producer_id == producer_id:
            return ProducerState(
                epoch=one.producer_epoch, last_sequence=one.last_sequence, coordinator_epoch=one.coordinator_epoch
            )
    return ProducerState()
