"""Read a leader's state of a producer id: epoch, last sequence, coordinator epoch (DescribeProducers, KIP-664)."""

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
    """The state of a producer id on a partition; all -1 if the leader has none (never written, or expired)."""

    epoch: int = -1
    last_sequence: int = -1
    coordinator_epoch: int = -1


def describe_producers(
    cluster: Cluster, broker: int, producer_ids: Mapping[TopicPartition, int], *, timeout_s: float | None = None
) -> dict[TopicPartition, tuple[int, ProducerState]]:
    """Return (error, state of the given producer id) per partition; ``broker`` must lead them. Needs READ on the topics."""

    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeProducersRequest.API_KEY, highest=0)
        topics = [
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=list(group))
            for name, group in by_topic(producer_ids).items()
        ]
        return DescribeProducersRequest(version=version, topics=topics)

    def read(response: Any) -> dict[TopicPartition, tuple[int, ProducerState]]:
        found = {
            (topic.name, partition.partition_index): (
                partition.error_code,
                _state_of(partition, producer_ids[topic.name, partition.partition_index]),
            )
            for topic in response.topics
            for partition in topic.partitions
        }
        return {place: found[place] for place in producer_ids}

    return cluster.call(broker, build, response=DescribeProducersResponse, read=read, timeout_s=timeout_s)


def _state_of(partition: Any, producer_id: int) -> ProducerState:
    for producer in partition.active_producers or ():  # null if there is an error
        if producer.producer_id == producer_id:
            return ProducerState(
                epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                coordinator_epoch=producer.coordinator_epoch,
            )
    return ProducerState()
