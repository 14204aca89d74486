"""Write records that librdkafka's binding cannot write, with header names that are not UTF-8. One at a time, blocking.

Writes without a producer id: a lost response is an error, and the caller must check the log. Produce version 9, by topic name.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from linkengine.batches.exact import Record
from linkengine.batches.records import encode_records
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.connection import Connection
from linkengine.kafka.produce import BY_NAME

TIMEOUT_MS = 30_000
_ALL_IN_SYNC = -1


class OddWriter:
    """Connections to the leaders of a topic, opened when they are needed."""

    def __init__(self, address: ClusterAddress, topic: str) -> None:
        """Store the address; connections are opened on demand."""
        self._cluster, self._topic = Cluster(address), topic
        self._connections: dict[int, Connection] = {}

    def append(self, partition: int, record: Record) -> None:
        """Append a record to a partition; raise LinkEngineError if it is not acknowledged."""
        batch = encode_records([record], codec=0)
        entry = ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=self._topic, partition_data=[entry])
        connection = self._connect(partition)
        connection.version_for(ProduceRequest.API_KEY, highest=BY_NAME, lowest=BY_NAME)
        request = ProduceRequest(version=BY_NAME, acks=_ALL_IN_SYNC, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        error = connection.request(request, response=ProduceResponse, read=_read_error)
        if error:
            raise BrokerError(error, f"A record cannot be written to {self._topic}-{partition}")

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._cluster.close()

    def _connect(self, partition: int) -> Connection:
        view = self._cluster.newest_topics([self._topic])[self._topic]
        leader = view.partitions.get(partition)
        if leader is None or leader.broker < 0:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, f"Partition {partition} of topic {self._topic!r} has no leader.")
        if leader.broker not in self._connections:
            self._connections[leader.broker] = self._cluster.open(leader.broker)
        return self._connections[leader.broker]


def _read_error(response: Any) -> int:
    code: int = response.responses[0].partition_responses[0].error_code
    return code
