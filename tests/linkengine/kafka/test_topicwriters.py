"""Transactional producers of topics, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from devcluster.access import create_acls
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.clusterviews import TransactionalWriters
from linkengine.kafka.producers import transactional_writers
from tests.linkengine.copyjob.copying import create_topic

pytestmark = pytest.mark.kafka
NONE = TransactionalWriters(ids=(), open_ids=(), unnamed_open=0, complete=True)


def begin(cluster: KafkaCluster, transactional_id: str, *topics: str) -> Producer:
    """Write to partition 1 of topics in a transaction that stays open."""
    producer = Producer({**cluster.client("admin"), "transactional.id": transactional_id})
    producer.init_transactions()
    producer.begin_transaction()
    for topic in topics:
        producer.produce(topic, b"value", partition=1)
    assert producer.flush(30) == 0
    return producer


@pytest.fixture
def app(source_cluster: KafkaCluster) -> Iterator[ClusterAddress]:
    """Yield the address of a principal with rights on topics, and none on transactional ids."""
    admin = AdminClient(source_cluster.client("admin"))
    kind, literal, deny = ResourceType.TRANSACTIONAL_ID, ResourcePatternType.LITERAL, AclPermissionType.DENY
    rule = AclBinding(kind, "*", literal, "User:app", "*", AclOperation.DESCRIBE, deny)
    create_acls(admin, [rule])
    yield address_from_properties(source_cluster.client_properties("app"))
    for deleted in admin.delete_acls(
        [AclBindingFilter(kind, "*", literal, "User:app", "*", AclOperation.DESCRIBE, deny)]
    ).values():
        deleted.result(30)


def test_transactional_ids_that_write_to_a_topic_are_listed(
    source_cluster: KafkaCluster, source: ClusterAddress, topic_name: str, app: ClusterAddress
) -> None:
    used, unused, missing = topic_name, f"{topic_name}-unused", f"{topic_name}-missing"
    for name in (used, unused):
        create_topic(source_cluster, name, partitions=2)
    closed, opened, own = f"closed-{topic_name}", f"open-{topic_name}", f"clusterlink-{topic_name}"
    with ExitStack() as ended:
        for name in (closed, own):
            begin(source_cluster, name, used).commit_transaction()
        ended.callback(begin(source_cluster, opened, used).abort_transaction)
        ended.callback(begin(source_cluster, f"elsewhere-{topic_name}").abort_transaction)

        found = transactional_writers(source, [used, unused, missing])
        hidden = transactional_writers(app, [used, unused])

    writers = TransactionalWriters(ids=(closed, opened), open_ids=(opened,), unnamed_open=0, complete=True)
    assert found == {used: writers, unused: NONE}
    assert hidden == {used: TransactionalWriters(ids=(), open_ids=(), unnamed_open=1, complete=False), unused: NONE}


def test_an_idempotent_producer_is_not_a_transactional_one(
    source_cluster: KafkaCluster, source: ClusterAddress, topic_name: str, app: ClusterAddress
) -> None:
    create_topic(source_cluster, topic_name, partitions=2)
    producer = Producer({**source_cluster.client("admin"), "enable.idempotence": True})
    producer.produce(topic_name, b"value")
    assert producer.flush(30) == 0

    assert transactional_writers(source, [topic_name]) == {topic_name: NONE}
    assert not transactional_writers(app, [topic_name])[topic_name].complete


def test_a_refused_login_gives_no_writers_instead_of_an_error(source_cluster: KafkaCluster) -> None:
    properties = source_cluster.client_properties("app", mechanism="PLAIN")
    wrong = {name: value.replace('password="', 'password="x') for name, value in properties.items()}

    assert jobs.transactional_writers(address_from_properties(wrong), ["any"]) == {}
