"""Delete a topic by its id (DeleteTopics version 6, KIP-516): a delayed request can never delete a new topic of the same name.

A cluster with ``delete.topic.enable=false`` deletes no topics. The controller decides by its own setting, while only brokers
show theirs. So the brokers' setting is a forecast; the refusal of the request (TOPIC_DELETION_DISABLED) is authoritative.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

from kafka.protocol.admin import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import TOPIC_GONE, BrokerError
from linkengine.kafka.connection import Connection

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


def delete_by_id(address: ClusterAddress, topic_id: str, *, check_ours: Callable[[], None] = lambda: None) -> bool:
    """Delete the topic; return False if it was gone already.

    ``check_ours`` is called directly before the request is sent and raises if the topic must not be deleted any more.
    """
    wanted = uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=" * (-len(topic_id) % 4)))

    def build(connection: Connection) -> Any:
        check_ours()
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
