"""Requests about topics that librdkafka lacks: configs by key (KIP-133) and deletion by topic id (KIP-516). Blocking."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

from kafka.protocol.admin import DeleteTopicsRequest, DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResponse

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import ConfigChange
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.admin_topics import carries
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.protocol import TOPIC_GONE, BrokerError, KafkaCode

# --- configs by key ------------------------------------------------------------------------------------------------------
# DescribeConfigs (KIP-133, KIP-226). The admin client reads all configs, about forty per topic, which for a thousand topics
# keeps a broker busy for seconds.


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


# --- deletion by id ------------------------------------------------------------------------------------------------------
# DeleteTopics version 6: a delayed request can never delete a new topic of the same name. A cluster with
# ``delete.topic.enable=false`` deletes no topics. The controller decides by its own setting, while only brokers show theirs. So
# the brokers' setting is a forecast; the refusal of the request (TOPIC_DELETION_DISABLED) is authoritative.


_BY_ID = 6
_TIMEOUT_MS = 20_000
_BROKER = 4  # the type of a resource
_SETTING = "delete.topic.enable"


def deletes_topics(address: ClusterAddress) -> bool | None:
    """Return whether the cluster deletes topics, by the setting of its brokers; None if no broker shows it.

    Needs DESCRIBE_CONFIGS on the cluster; a request per broker. False only if every responding broker has it disabled.
    """
    with closing(Cluster(address)) as cluster:
        cluster.topics([])  # learns the brokers
        found = [_setting(cluster, broker) for broker in cluster.brokers()]
    known = {value for value in found if value is not None}
    return True in known if known else None


def _setting(cluster: Cluster, broker: int) -> bool | None:
    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeConfigsRequest.API_KEY, highest=4, lowest=1)
        wanted = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(broker), configuration_keys=[_SETTING]
        )
        return DescribeConfigsRequest(version=version, resources=[wanted], include_synonyms=False, include_documentation=False)

    try:
        return cluster.call(broker, build, response=DescribeConfigsResponse, read=_read_setting)
    except LinkEngineError:  # a broker that is down does not count
        return None


def _read_setting(response: Any) -> bool | None:
    (result,) = response.results
    return next((entry.value == "true" for entry in result.configs if entry.name == _SETTING), None)


def delete_by_id(address: ClusterAddress, topic_id: str, *, check_owner: Callable[[], None] = lambda: None) -> bool:
    """Delete the topic; return False if it was gone already.

    ``check_owner`` is called directly before the request is sent and raises if the topic must no longer be deleted.
    """
    wanted = uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=" * (-len(topic_id) % 4)))

    def build(connection: Connection) -> Any:
        check_owner()
        version = connection.version_for(DeleteTopicsRequest.API_KEY, highest=_BY_ID, lowest=_BY_ID)
        state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=wanted)
        return DeleteTopicsRequest(version=version, topics=[state], timeout_ms=_TIMEOUT_MS)

    cluster = Cluster(address)
    try:
        cluster.topics([])  # learns the brokers; each forwards the request to the controller
        error: int = cluster.call(
            cluster.brokers()[0],
            build,
            response=DeleteTopicsResponse,
            read=lambda response: response.responses[0].error_code,
            timeout_s=_TIMEOUT_MS / 1000 + 1,
        )
    finally:
        cluster.close()
    if error and error not in TOPIC_GONE:
        raise BrokerError(error, f"The topic with id {topic_id} cannot be deleted")
    return not error
