"""Check that a topic is closed to producers on every broker. Brokers apply an ACL change with a delay, each at its own time.

DescribeAcls (KIP-140) is served by the authorizer of the broker that receives it, which also authorizes Produce requests.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse

from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.connection import Connection

_TOPIC, _LITERAL, _WRITE, _DENY = 2, 3, 4, 2  # Kafka's numbers for resource type, pattern type, operation, permission
_ANY_USER = "User:*"


def brokers_that_let_write(cluster: Cluster, topic: str) -> list[int]:
    """Return the brokers on which DENY WRITE for all users is not in force yet; raise LinkEngineError if a broker is silent."""
    cluster.newest_topics([topic])  # learns all brokers
    return [broker for broker in cluster.brokers() if not _denies(cluster, broker, topic)]


def _denies(cluster: Cluster, broker: int, topic: str) -> bool:
    def build(connection: Connection) -> Any:
        return DescribeAclsRequest(
            version=connection.version_for(DescribeAclsRequest.API_KEY, highest=2, lowest=1),
            resource_type_filter=_TOPIC,
            resource_name_filter=topic,
            pattern_type_filter=_LITERAL,
            principal_filter=_ANY_USER,
            host_filter=None,
            operation=_WRITE,
            permission_type=_DENY,
        )

    error_code, found = cluster.call(
        broker, build, response=DescribeAclsResponse, read=lambda response: (response.error_code, bool(response.resources))
    )
    if error_code:
        raise BrokerError(error_code, f"Broker {broker} does not return the ACLs of topic {topic!r}")
    return bool(found)
