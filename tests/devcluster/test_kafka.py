"""A development cluster: who can connect, what each user may do, and that killed brokers restart with their data."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from devcluster.access import create_acls
from devcluster.kafka import KafkaCluster
from tests.conftest import MakeCluster

pytestmark = pytest.mark.kafka
TIMEOUT_S = 60


def create_topic(cluster: KafkaCluster, topic: str, *, user: str = "admin", replicas: int = 1) -> None:
    admin = AdminClient(cluster.client(user))
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=replicas)])[topic].result(TIMEOUT_S)


def produce(cluster: KafkaCluster, topic: str, value: bytes, *, user: str = "app") -> KafkaError | None:
    """Return the delivery error of a record, or None if it was written."""
    errors: list[KafkaError | None] = []
    producer = Producer({**cluster.client(user), "message.timeout.ms": TIMEOUT_S * 1000})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return errors[0]


def read_record(cluster: KafkaCluster, topic: str, *, user: str = "app") -> bytes | None:
    consumer = Consumer({**cluster.client(user), "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    record = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert record is not None
    assert record.error() is None
    return record.value()


def is_refused(settings: dict[str, Any]) -> bool:
    """Return whether a client with these settings gets no metadata although the broker is up."""
    try:
        AdminClient(settings).list_topics(timeout=3)
    except KafkaException:
        return True
    return False


def test_a_cluster_starts_with_its_planned_id(source_cluster: KafkaCluster) -> None:
    metadata = AdminClient(source_cluster.client("admin")).list_topics(timeout=TIMEOUT_S)

    assert metadata.cluster_id == source_cluster.cluster_id
    assert set(metadata.brokers) == {0}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_a_known_user_authenticates_with_every_mechanism(source_cluster: KafkaCluster, mechanism: str) -> None:
    assert not is_refused(source_cluster.client("app", mechanism=mechanism))


def test_a_client_without_credentials_is_refused(source_cluster: KafkaCluster) -> None:
    assert is_refused({"bootstrap.servers": source_cluster.bootstrap})


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_client_with_a_wrong_password_is_refused(source_cluster: KafkaCluster, mechanism: str) -> None:
    assert is_refused({**source_cluster.client("app", mechanism=mechanism), "sasl.password": "wrong"})


def test_the_brokers_own_user_cannot_be_used_by_clients(source_cluster: KafkaCluster) -> None:
    for mechanism in ("SCRAM-SHA-512", "PLAIN"):
        assert is_refused(source_cluster.client("broker", mechanism=mechanism))


def test_an_ordinary_client_creates_writes_and_reads_a_topic(source_cluster: KafkaCluster, topic_name: str) -> None:
    create_topic(source_cluster, topic_name, user="app")

    assert produce(source_cluster, topic_name, b"hello") is None
    assert read_record(source_cluster, topic_name) == b"hello"


def test_an_ordinary_client_cannot_delete_a_topic(source_cluster: KafkaCluster, topic_name: str) -> None:
    create_topic(source_cluster, topic_name)
    app = AdminClient(source_cluster.client("app"))

    with pytest.raises(KafkaException) as refusal:
        app.delete_topics([topic_name])[topic_name].result(TIMEOUT_S)

    assert refusal.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_deny_acl_refuses_the_ordinary_client_but_not_the_link(source_cluster: KafkaCluster, topic_name: str) -> None:
    create_topic(source_cluster, topic_name)
    deny = AclBinding(
        ResourceType.TOPIC, topic_name, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.WRITE, AclPermissionType.DENY
    )
    create_acls(AdminClient(source_cluster.client("admin")), [deny])

    refused = produce(source_cluster, topic_name, b"no")

    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produce(source_cluster, topic_name, b"yes", user="link") is None


def test_a_frozen_or_killed_broker_keeps_its_address_and_data(make_cluster: MakeCluster, topic_name: str) -> None:
    cluster = make_cluster(security="PLAINTEXT")
    create_topic(cluster, topic_name)
    cluster.pause()
    assert is_refused(cluster.client("app"))
    cluster.resume()
    assert produce(cluster, topic_name, b"kept") is None
    address = cluster.bootstrap

    cluster.kill()
    assert is_refused(cluster.client("app"))
    cluster.restart()

    assert cluster.bootstrap == address
    assert read_record(cluster, topic_name) == b"kept"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A cluster of three brokers with encrypted listeners, where `link` has no rights."""
    with KafkaCluster(
        "guarded",
        directory=tmp_path_factory.mktemp("guarded"),
        brokers=3,
        heap="256m",
        security="SASL_SSL",
        extra={"super.users": "User:admin;User:broker"},
    ) as cluster:
        yield cluster


def test_a_user_without_acls_reads_nothing(guarded: KafkaCluster, topic_name: str) -> None:
    create_topic(guarded, topic_name)

    topic = AdminClient(guarded.client("link")).list_topics(topic_name, timeout=TIMEOUT_S).topics[topic_name]

    assert topic.error is not None
    assert topic.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_an_encrypted_listener_requires_the_clusters_certificate_authority(guarded: KafkaCluster, topic_name: str) -> None:
    create_topic(guarded, topic_name)
    without_authority = {key: value for key, value in guarded.client("app").items() if key != "ssl.ca.location"}

    assert produce(guarded, topic_name, b"secret") is None
    assert is_refused(without_authority)


def test_three_brokers_elect_another_leader_when_the_leader_is_killed(guarded: KafkaCluster, topic_name: str) -> None:
    create_topic(guarded, topic_name, replicas=3)
    assert produce(guarded, topic_name, b"before") is None
    admin = AdminClient(guarded.client("admin"))
    leader = admin.list_topics(topic_name, timeout=TIMEOUT_S).topics[topic_name].partitions[0].leader

    guarded.kill(leader)

    deadline = time.monotonic() + 60
    while admin.list_topics(topic_name, timeout=TIMEOUT_S).topics[topic_name].partitions[0].leader in (leader, -1):
        assert time.monotonic() < deadline, "no other leader within a minute"
        time.sleep(0.2)
    assert produce(guarded, topic_name, b"after") is None


def test_an_authorizer_without_named_users_is_refused_before_files_are_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with pytest.raises(ValueError, match="named users"):
        KafkaCluster("odd", security="PLAINTEXT", authorizer=True)

    assert list(tmp_path.iterdir()) == []
