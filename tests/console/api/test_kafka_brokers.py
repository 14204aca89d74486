"""REST API of brokers: configs, replicas, reassignments; and every URL in a response exists."""

from __future__ import annotations

from typing import Any

import pytest

from console.models import Cluster, RoleBinding
from tests.console.api.actors import DESTINATION, Rest
from tests.console.api.brokers import SmallCluster

pytestmark = pytest.mark.django_db
BASE = f"/kafka/v3/clusters/{DESTINATION}"
HOST = "http://testserver"


@pytest.fixture(autouse=True)
def there(destination: Cluster, cluster: SmallCluster) -> SmallCluster:
    return cluster


def test_a_broker_is_shown_with_the_exact_envelope(owner: Rest) -> None:
    here = f"{HOST}{BASE}/brokers/1"

    shown = owner.get(f"{BASE}/brokers/1").json()

    assert shown == {
        "kind": "KafkaBroker",
        "metadata": {"self": here, "resource_name": f"crn:///kafka={DESTINATION}/broker=1"},
        "cluster_id": DESTINATION,
        "broker_id": 1,
        "host": "one.example",
        "port": 9092,
        "rack": None,
        "configs": {"related": f"{here}/configs"},
        "partition_replicas": {"related": f"{here}/partition-replicas"},
    }
    listed = owner.get(f"{BASE}/brokers").json()
    assert (listed["kind"], listed["data"][0], len(listed["data"])) == ("KafkaBrokerList", shown, 2)


def test_configs_of_a_broker_and_of_all_brokers_are_listed(owner: Rest, cluster: SmallCluster) -> None:
    config = owner.get(f"{BASE}/brokers/1/configs/retention.ms").json()
    assert (config["kind"], config["broker_id"], config["value"]) == ("KafkaBrokerConfig", 1, "1000")
    assert owner.get(f"{BASE}/brokers/1/configs").json()["data"] == [config]
    dynamic = owner.get(f"{BASE}/broker-configs").json()
    assert (dynamic["kind"], dynamic["data"][0]["config_type"]) == ("KafkaClusterConfigList", "BROKER")
    assert [requested for question, requested in cluster.queries if question == "broker_configs"] == [
        {"broker": 1},
        {"broker": 1},
        {},
    ]


def test_partition_reassignments_are_listed(owner: Rest) -> None:
    every = owner.get(f"{BASE}/topics/-/partitions/-/reassignment").json()
    assert every["kind"] == "KafkaReassignmentList"
    assert [(row["topic_name"], row["adding_replicas"], row["removing_replicas"]) for row in every["data"]] == [
        ("plain", [3], [1])
    ]
    assert owner.get(f"{BASE}/topics/plain/partitions/-/reassignment").json()["data"] == every["data"]
    assert owner.get(f"{BASE}/topics/plain/partitions/0/reassignment").json() == every["data"][0]


@pytest.mark.parametrize(
    "path",
    [
        "brokers/7",
        "brokers/7/configs",
        "brokers/7/partition-replicas",
        "brokers/1/configs/no.such",
        "topics/plain/partitions/1/reassignment",
        "topics/plain/partitions/0/replicas/7",
        "broker-configs/no.such",
        "consumer-groups/readers/consumers/nobody",
        "consumer-groups/readers/consumers/c-1/assignments/plain/partitions/9",
        "consumer-groups/readers/lags/plain/partitions/9",
    ],
)
def test_unknown_resources_of_a_cluster_are_404(owner: Rest, path: str) -> None:
    assert owner.get(f"{BASE}/{path}").status_code == 404


def test_a_role_on_a_topic_does_not_show_brokers(reader: Rest, destination: Cluster) -> None:
    RoleBinding.objects.update(environment=None, cluster=destination, resource_type="Topic", resource_name="other")

    assert reader.get(f"{BASE}/brokers").status_code == 403
    assert reader.get(f"{BASE}/topics/-/partitions/-/reassignment").json()["data"] == []


def test_every_url_in_a_response_exists(owner: Rest) -> None:
    """Follow all URLs from the cluster on, each once."""
    waiting, seen = [BASE], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        response = owner.get(path)
        assert response.status_code == 200 or path.endswith("/reassignment"), (path, response.content)
        if response.status_code == 200:
            waiting += [url.removeprefix(HOST) for url in _urls(response.json())]
    assert len(seen) > 20


def _urls(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value[name] for name in ("related", "self") if isinstance(value.get(name), str)]
        return [*own, *(url for child in value.values() for url in _urls(child))]
    return [url for child in value for url in _urls(child)] if isinstance(value, list) else []
