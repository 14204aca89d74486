"""REST errors that real brokers cause. The tasks run in this process; their results pass through Redis as usual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from console.celery import app
from console.models import Cluster, ClusterLink, Environment
from console.tasks import __all__ as task_modules
from devcluster.kafka import KafkaCluster
from tests.conftest import MakeCluster
from tests.console.api.actors import NOW, Rest
from tests.topics import create_topics

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
Register = Callable[..., str]


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    """Run tasks immediately in this process; importing ``console.tasks`` registers them."""
    assert redis_url
    assert task_modules

    def run(name: str, *, kwargs: dict[str, Any], **_: Any) -> None:
        app.tasks[name](**kwargs)

    monkeypatch.setattr(app, "send_task", run)


@pytest.fixture
def registered(environment: Environment) -> Register:
    """Return a function that registers a running cluster, with a principal and a password, and returns its path."""

    def register(cluster: KafkaCluster, *, user: str = "admin", password: str = "") -> str:
        properties = cluster.client_properties(user)
        if password:
            properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace(cluster.users[user], password)
        fields = {"bootstrap_servers": cluster.bootstrap, "properties": properties, "created_at": NOW}
        Cluster.objects.create(environment=environment, name="Real", cluster_id=cluster.cluster_id, **fields)
        return f"/kafka/v3/clusters/{cluster.cluster_id}"

    return register


@pytest.fixture
def topic(destination_admin: AdminClient, topic_name: str) -> str:
    """An ordinary topic with a single partition."""
    create_topics(destination_admin, NewTopic(topic_name, 1, 1))
    return topic_name


def refusal(response: Any) -> tuple[int, int]:
    """Return status and code of an error response; check that it has a message."""
    assert response["Content-Type"] == "application/json"
    assert "message" in response.json(), response.content
    return response.status_code, response.json()["error_code"]


def test_unknown_and_existing_resources_have_their_codes(
    owner: Rest, registered: Register, topic: str, destination_cluster: KafkaCluster, source_cluster: KafkaCluster
) -> None:
    here = registered(destination_cluster)
    properties = source_cluster.client_properties("link")
    dated = {"state_since": NOW, "created_at": NOW, "source_cluster_id": source_cluster.cluster_id}
    ClusterLink.objects.create(name="real", destination=Cluster.objects.get(), properties=properties, **dated)

    assert owner.get(f"{here}/topics/{topic}/partitions/0").json()["partition_id"] == 0
    assert refusal(owner.get(f"{here}/topics/{topic}/partitions/99")) == (404, 40402)
    assert refusal(owner.get(f"{here}/topics/{topic}-none")) == (404, 40401)
    assert refusal(owner.post(f"{here}/links/real/mirrors", {"source_topic_name": f"{topic}-none"})) == (404, 40403)
    assert refusal(owner.get(f"{here}/links/none")) == (404, 404)
    assert refusal(owner.post(f"{here}/topics", {"topic_name": topic})) == (400, 40002)
    large = {"topic_name": topic, "configs": [{"name": "retention.ms", "value": "1" * (1 << 20)}]}
    assert refusal(owner.post(f"{here}/topics", large)) == (413, 413)


def test_a_principal_without_acls_gets_403(
    owner: Rest, registered: Register, topic: str, destination_cluster: KafkaCluster, destination_admin: AdminClient
) -> None:
    """The principal may only read and create topics."""
    here = registered(destination_cluster, user="app")

    assert refusal(owner.get(f"{here}/acls")) == (403, 40301)
    assert refusal(owner.delete(f"{here}/topics/{topic}")) == (403, 40301)
    rights = owner.get(f"{here}/topics/{topic}?include_authorized_operations=true").json()["authorized_operations"]
    assert rights == ["CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"]
    assert topic in destination_admin.list_topics(timeout=20).topics


def test_a_wrong_stored_password_of_a_cluster_is_500(
    owner: Rest, registered: Register, topic: str, destination_cluster: KafkaCluster
) -> None:
    here = registered(destination_cluster, password="c0ffee-is-not-it")

    response = owner.get(f"{here}/topics/{topic}")

    assert refusal(response) == (500, 50002)
    assert "c0ffee" not in response.content.decode()
    assert refusal(Rest(owner.key, "wrong").get(f"{here}/topics/{topic}")) == (401, 40101)


def test_a_stopped_broker_is_unavailable(owner: Rest, registered: Register, make_cluster: MakeCluster, topic_name: str) -> None:
    own = make_cluster()
    here = registered(own)
    own.kill()

    for path in ("topics", "consumer-groups"):  # through librdkafka, and on the wire
        assert refusal(owner.get(f"{here}/{path}")) == (503, 50302), path
    assert refusal(owner.post(f"{here}/topics", {"topic_name": topic_name})) == (503, 50302)
