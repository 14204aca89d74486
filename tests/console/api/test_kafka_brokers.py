"""Brokers over REST: every address that other answers give is one that answers."""

from __future__ import annotations

from typing import Any

import pytest

from console.models import Cluster, RoleBinding
from tests.console.api.brokers import SmallCluster
from tests.console.api.cast import DESTINATION, Rest

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


def test_configs_of_a_broker_and_of_all_are_shown(owner: Rest, cluster: SmallCluster) -> None:
    one = owner.get(f"{BASE}/brokers/1/configs/retention.ms").json()
    assert (one["kind"], one["broker_id"], one["value"]) == ("KafkaBrokerConfig", 1, "1000")
    assert owner.get(f"{BASE}/brokers/1/configs").json()["data"] == [one]
    whole = owner.get(f"{BASE}/broker-configs").json()
    assert (whole["kind"], whole["data"][0]["config_type"]) == ("KafkaClusterConfigList", "BROKER")
    assert [asked for question, asked in cluster.asked if question == "broker_configs"] == [{"broker": 1}, {"broker": 1}, {}]


def test_partitions_on_their_way_are_listed(owner: Rest) -> None:
    every = owner.get(f"{BASE}/topics/-/partitions/-/reassignment").json()
    assert every["kind"] == "KafkaReassignmentList"
    assert [(one["topic_name"], one["adding_replicas"], one["removing_replicas"]) for one in every["data"]] == [
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
def test_what_is_not_there_is_404(owner: Rest, path: str) -> None:
    assert owner.get(f"{BASE}/{path}").status_code == 404


def test_who_sees_one_topic_sees_no_broker(reader: Rest, destination: Cluster) -> None:
    RoleBinding.objects.update(environment=None, cluster=destination, resource_type="Topic", resource_name="other")

    assert reader.get(f"{BASE}/brokers").status_code == 403
    assert reader.get(f"{BASE}/topics/-/partitions/-/reassignment").json()["data"] == []


def test_every_address_in_an_answer_answers(owner: Rest) -> None:
    """Follow all addresses from the cluster on; each is asked once."""
    waiting, seen = [BASE], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = owner.get(path)
        assert answer.status_code == 200 or path.endswith("/reassignment"), (path, answer.content)
        if answer.status_code == 200:
            waiting += [url.removeprefix(HOST) for url in _addresses(answer.json())]
    assert len(seen) > 20


def _addresses(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value[name] for name in ("related", "self") if isinstance(value.get(name), str)]
        return [*own, *(url for one in value.values() for url in _addresses(one))]
    return [url for one in value for url in _addresses(one)] if isinstance(value, list) else []
