"""Delete a topic by its id (DeleteTopics version 6, KIP-516): a late request can never hit a new topic of the same name."""

from __future__ import annotations

import base64
import uuid
from typing import Any

from kafka.protocol.admin import DeleteTopicsRequest, DeleteTopicsResponse

from linkengine.domain.addresses import ClusterAddress
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import TOPIC_GONE, BrokerError
from linkengine.kafka.connection import Connection

_BY_ID = 6
_TIMEOUT_MS = 20_000


def delete_by_id(address: ClusterAddress, topic_id: str) -> bool:
    """Delete the topic; answer False if it is gone already."""
    wanted = uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=" * (-len(topic_id) % 4)))

    def build(connection: Connection) -> Any:
        version = connection.version_for(DeleteTopicsRequest.API_KEY, highest=_BY_ID, lowest=_BY_ID)
        one = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=wanted)
        return DeleteTopicsRequest(version=version, topics=[one], timeout_ms=_TIMEOUT_MS)

    cluster = Cluster(address)
    try:
        cluster.topics([])  # learns the brokers; each hands the request to the controller
        error: int = cluster.call(
            cluster.brokers()[0],
            build,
            response=DeleteTopicsResponse,
            read=lambda answer: answer.responses[0].error_code,
            timeout_s=_TIMEOUT_MS / 1000 + 1,
        )
    finally:
        cluster.close()
    if error and error not in TOPIC_GONE:
        raise BrokerError(error, f"The topic with id {topic_id} cannot be deleted")
    return not error
