"""Read single configs of topics: DescribeConfigs with keys (KIP-133, KIP-226). Blocking.

The admin client reads all configs, about forty per topic, which for a thousand topics keeps a broker busy for seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

from linkengine.domain.configs import ConfigChange
from linkengine.kafka.admin_topics import carries
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, KafkaCode
from linkengine.kafka.connection import Connection

PER_REQUEST = 500
_TOPIC, _OWN = 2, 1  # the type of a resource; the source of a value that was set on the topic itself
_UNKNOWN = (KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaCode.UNKNOWN_TOPIC_ID)
_HIDDEN = (KafkaCode.TOPIC_AUTHORIZATION_FAILED, KafkaCode.CLUSTER_AUTHORIZATION_FAILED)
_TOPIC = 2
_POLICY = "cleanup.policy"


def not_shown(cluster: Cluster, changes: Mapping[str, ConfigChange]) -> dict[str, ConfigChange]:
    """Return the changes that the queried broker does not show yet; a request per 500 topics."""
    left: dict[str, ConfigChange] = {}
    rest = iter(changes.items())
    while batch := dict(islice(rest, PER_REQUEST)):
        present, hidden = _own(cluster, {topic: [*change.values, *change.deletions] for topic, change in batch.items()})
        readable = {topic: change for topic, change in batch.items() if topic not in hidden}  # hidden: waiting shows nothing
        left |= {topic: change for topic, change in readable.items() if not carries(present.get(topic, {}), change)}
    return left


def _own(cluster: Cluster, wanted: Mapping[str, Iterable[str]]) -> tuple[dict[str, dict[str, str]], set[str]]:
    """Return which of these configs are set on the topics themselves, and the topics whose configs may not be read."""

    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeConfigsRequest.API_KEY, highest=4, lowest=1)
        resources = [
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=_TOPIC, resource_name=topic, configuration_keys=list(names)
            )
            for topic, names in wanted.items()
        ]
        return DescribeConfigsRequest(version=version, resources=resources, include_synonyms=False, include_documentation=False)

    return cluster.call_any(build, response=DescribeConfigsResponse, read=_read_own)


def _read_own(response: Any) -> tuple[dict[str, dict[str, str]], set[str]]:
    found: dict[str, dict[str, str]] = {}
    hidden: set[str] = set()
    for topic in response.results:
        if topic.error_code in _HIDDEN:
            hidden.add(topic.resource_name)
        elif topic.error_code and topic.error_code not in _UNKNOWN:
            raise BrokerError(topic.error_code, f"The configs of topic {topic.resource_name!r} cannot be read")
        elif not topic.error_code:
            own = (entry for entry in topic.configs if entry.config_source == _OWN and entry.value is not None)
            found[topic.resource_name] = {entry.name: entry.value for entry in own}
    return found, hidden


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
