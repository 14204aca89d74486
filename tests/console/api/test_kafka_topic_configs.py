"""REST API of topic configs: list, set, reset, and configs that a mirror syncs from its source."""

from typing import Any

import pytest

from console.models import AuditEvent, ClusterLink
from tests.console.api.actors import DESTINATION, Rest
from tests.console.api.brokers import SmallCluster

pytestmark = pytest.mark.django_db


def test_configs_are_listed_and_shown(owner: Rest, topics: str) -> None:
    listed = owner.get(f"{topics}/plain/configs").json()
    shown = owner.get(f"{topics}/plain/configs/retention.ms").json()

    here = f"http://testserver{topics}/plain/configs/retention.ms"
    assert listed["kind"] == "KafkaTopicConfigList"
    assert listed["data"] == [shown]
    assert shown == {
        "kind": "KafkaTopicConfig",
        "metadata": {"self": here, "resource_name": f"crn:///kafka={DESTINATION}/topic=plain/config=retention.ms"},
        "cluster_id": DESTINATION,
        "topic_name": "plain",
        "name": "retention.ms",
        "value": "1000",
        "is_default": False,
        "is_read_only": False,
        "is_sensitive": False,
        "source": "DYNAMIC_TOPIC_CONFIG",
        "synonyms": [{"name": "retention.ms", "value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"}],
    }


def test_an_unknown_config_or_topic_is_404(owner: Rest, topics: str) -> None:
    assert owner.get(f"{topics}/plain/configs/none").json()["error_code"] == 404
    assert owner.get(f"{topics}/none/configs").json()["error_code"] == 40401
    assert owner.put(f"{topics}/none/configs/retention.ms", {"value": "1"}).json()["error_code"] == 40401


def test_configs_are_set_and_reset(owner: Rest, topics: str, cluster: SmallCluster) -> None:
    batch = {
        "data": [
            {"name": "a", "value": "1"},
            {"name": "b", "operation": "DELETE"},
            {"name": "c", "value": "3", "operation": "SET"},
        ]
    }
    assert owner.post(f"{topics}/plain/configs:alter", batch).status_code == 204
    assert owner.post(f"{topics}/plain/configs:alter", {**batch, "validate_only": True}).status_code == 204
    assert owner.put(f"{topics}/plain/configs/a", {"value": "2"}).status_code == 204
    assert owner.delete(f"{topics}/plain/configs/a").status_code == 204

    changes = [(requested["values"], requested["deletions"], requested["validate_only"]) for _, requested in cluster.queries]
    assert changes == [
        ({"a": "1", "c": "3"}, ["b"], False),
        ({"a": "1", "c": "3"}, ["b"], True),
        ({"a": "2"}, [], False),
        ({}, ["a"], False),
    ]
    assert AuditEvent.objects.filter(action="AlterTopicConfigs", result="SUCCESS").count() == 3


@pytest.mark.parametrize(
    "data",
    [
        [{"name": "a", "operation": "APPEND"}],
        [{"name": "a", "value": "1"}, {"name": "a", "value": "1"}],
        [{"name": "a"}],
        [{"name": "a", "operation": "SET", "value": None}],
    ],
)
def test_an_invalid_batch_is_refused(owner: Rest, topics: str, data: Any, cluster: SmallCluster) -> None:
    assert owner.post(f"{topics}/plain/configs:alter", {"data": data}).json()["error_code"] == 40002
    assert not cluster.queries


def test_a_request_without_a_value_resets_nothing(owner: Rest, topics: str, cluster: SmallCluster) -> None:
    for forgotten in ({}, {"valeu": "1"}):
        assert owner.put(f"{topics}/plain/configs/a", forgotten).status_code == 422
    assert not cluster.queries

    assert owner.put(f"{topics}/plain/configs/a", {"value": None}).status_code == 204
    assert [requested["deletions"] for _, requested in cluster.queries] == [["a"]]


@pytest.mark.parametrize("name", ["retention.ms", "cleanup.policy", "compression.type", "max.message.bytes"])
def test_synced_configs_of_a_mirror_cannot_be_changed(owner: Rest, topics: str, make_mirror: Any, name: str) -> None:
    make_mirror("plain")

    response = owner.put(f"{topics}/plain/configs/{name}", {"value": "1"})

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert name in response.json()["message"]


def test_configs_that_a_mirror_does_not_sync_can_be_changed(
    owner: Rest, topics: str, link: ClusterLink, make_mirror: Any
) -> None:
    make_mirror("plain")
    link.configs.create(name="topic.config.sync.include", value="retention.bytes")

    assert owner.put(f"{topics}/plain/configs/min.insync.replicas", {"value": "1"}).status_code == 204
    assert owner.put(f"{topics}/plain/configs/retention.ms", {"value": "1"}).status_code == 204
