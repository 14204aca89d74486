"""The task that compares a record, on real clusters: its reply is encrypted and has the fields that REST writes."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest

from console.models import ClusterLink, MirrorTopic
from console.models.fields import unseal
from console.queue import dispatch
from console.redis import redis_client
from console.tasks.mirrors import compare_record
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import MirrorState
from tests.console.api.brokers import compared, side
from tests.console.conftest import NOW
from tests.linkengine.copyjob.copying import copy_all, create_pair, producer_for

pytestmark = pytest.mark.kafka


def test_reply_is_encrypted_and_has_both_sides(
    link: ClusterLink, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    clusters = source_cluster, destination_cluster
    create_pair(clusters, topic_name)
    producer = producer_for(source_cluster)
    producer.produce(topic_name, key="key", value="a-secret-value", headers=[("name", b"a-secret-header")])
    producer.flush()
    copy_all(clusters, topic_name)
    dated = {"state_since": NOW, "created_at": NOW}
    mirror = MirrorTopic.objects.create(link=link, name=topic_name, source_topic=topic_name, state=MirrorState.ACTIVE, **dated)
    place = {"mirror_pk": mirror.pk, "partition": 0, "offset": 0, "timestamp_ms": None}

    compare_record(reply_to="reply", **place)
    in_redis = json.dumps(redis_client().lrange("reply", 0, -1))
    response = dispatch.wait_for_reply("reply", timeout_s=5)
    mirror.delete()
    compare_record(reply_to="reply", **place)
    refused = dispatch.wait_for_reply("reply", timeout_s=5)

    assert "secret" not in in_redis
    assert response is not None
    found, example = unseal(response["result"]), unseal(compared(side(b"x"), side(b"x")))
    assert fields_of(found) == fields_of(example)
    assert (found["source"]["presence"], found["differing"]) == ("RECORD", [])
    assert b64decode(found["mirror"]["record"]["value"]["base64"]) == b"a-secret-value"
    assert refused is not None
    assert refused["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION_ERROR"


def fields_of(value: object) -> object:
    """Return the names of all fields, at every level."""
    if isinstance(value, dict):
        return {name: fields_of(item) for name, item in value.items() if name not in ("key", "leader_epoch")} | {"": set(value)}
    return [fields_of(item) for item in value] if isinstance(value, list) else None
