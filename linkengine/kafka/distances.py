"""Measure the round trip to the brokers of a cluster and the socket buffer that limits a connection over it. Blocking.

A connection carries at most ``buffer / round trip`` bytes per second. The buffer is the smaller of what the broker may send
unacknowledged (``socket.send.buffer.bytes``, 102,400 by default, which Linux doubles for its bookkeeping) and what this machine
may receive unread (the last number of ``net.ipv4.tcp_rmem``, the limit of Linux's receive buffer autotuning). Measured from the
machine that runs this.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.distances import LONG_MS, BrokerDistance
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection, as_it_is

MOST_BROKERS = 24  # measured at the same time, since a user waits for the result
ROUNDS = 3  # requests per broker; the fastest counts, since a busy broker is not a distant broker
_SEND_BUFFER = "socket.send.buffer.bytes"
_BROKER = 4  # of Kafka's ConfigResource.Type
_RECEIVE_LIMITS = Path("/proc/sys/net/ipv4/tcp_rmem")


def measure_distances(address: ClusterAddress) -> tuple[BrokerDistance, ...]:
    """Return the round trip to each broker in the metadata, ordered by broker id; at most ``MOST_BROKERS`` brokers.

    A broker that cannot be reached has the reason in ``error``. Raises if no broker returns the metadata.
    """
    cluster = Cluster(address)
    try:
        cluster.topics([])
        brokers = sorted(cluster.brokers())[:MOST_BROKERS]
        with ThreadPoolExecutor(MOST_BROKERS, thread_name_prefix="distance") as threads:
            return tuple(threads.map(lambda broker: _measure(cluster, broker), brokers))
    finally:
        cluster.close()


def _measure(cluster: Cluster, broker: int) -> BrokerDistance:
    host, port = cluster.endpoint(broker)
    try:
        connection = cluster.open(broker)
    except LinkEngineError as error:
        return BrokerDistance(broker=broker, address=f"{host}:{port}", error=error.message)
    try:
        for _ in range(ROUNDS):
            version = connection.version_for(MetadataRequest.API_KEY, highest=9)
            connection.request(MetadataRequest(version=version, topics=[]), response=MetadataResponse, read=as_it_is)
        round_trip_ms = (connection.round_trip_s or 0.0) * 1000
        is_long = round_trip_ms >= LONG_MS
        return BrokerDistance(
            broker=broker,
            address=f"{host}:{port}",
            round_trip_ms=round(round_trip_ms, 1),
            send_buffer_bytes=_send_buffer(connection, broker) if is_long else None,
            receive_buffer_bytes=_receive_buffer() if is_long else None,
        )
    except LinkEngineError as error:
        return BrokerDistance(broker=broker, address=f"{host}:{port}", error=error.message)
    finally:
        connection.close()


def _send_buffer(connection: Connection, broker: int) -> int | None:
    """Return the broker's setting; None if the link's principal may not read it (DESCRIBE_CONFIGS on the cluster)."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    resources = [resource(resource_type=_BROKER, resource_name=str(broker), configuration_keys=[_SEND_BUFFER])]
    version = connection.version_for(DescribeConfigsRequest.API_KEY, highest=4, lowest=1)
    request = DescribeConfigsRequest(version=version, resources=resources, include_synonyms=False, include_documentation=False)
    return connection.request(request, response=DescribeConfigsResponse, read=_read_send_buffer)


def _read_send_buffer(response: Any) -> int | None:
    values = [config.value for result in response.results for config in result.configs or () if config.name == _SEND_BUFFER]
    return int(values[0]) if values and values[0] else None


def _receive_buffer() -> int | None:
    try:
        return int(_RECEIVE_LIMITS.read_text().split()[2])
    except (OSError, IndexError, ValueError):
        return None
