"""Read the cleanup policy of a topic from a broker. Blocking."""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection

_TOPIC = 2
_POLICY = "cleanup.policy"


def is_compacted(cluster: Cluster, broker: int, topic: str) -> bool:
    """Return whether the topic is compacted, so that records may be missing in the log; True also if that may not be read."""

    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeConfigsRequest.API_KEY, highest=4, lowest=1)
        wanted = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=topic, configuration_keys=[_POLICY]
        )
        return DescribeConfigsRequest(version=version, resources=[wanted])

    def read(response: Any) -> bool:
        (found,) = response.results
        values = [config.value or "" for config in found.configs if config.name == _POLICY]
        return bool(found.error_code) or not values or "compact" in values[0]

    return cluster.call(broker, build, response=DescribeConfigsResponse, read=read)
