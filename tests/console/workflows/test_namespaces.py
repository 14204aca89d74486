"""A reserved namespace on a real cluster: an ordinary client cannot create topics in it until it is released."""

from __future__ import annotations

import secrets

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from console.actors import SYSTEM
from console.clusters.actions import delete_namespace
from console.models import Cluster, Namespace
from console.tasks.clusters import guard_namespace
from devcluster.kafka import KafkaCluster
from tests.console.conftest import NOW
from tests.linkengine.copyjob.copying import wait_for

pytestmark = pytest.mark.kafka


def create(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def test_cluster_denies_topics_in_a_reserved_namespace(destination: Cluster, destination_cluster: KafkaCluster) -> None:
    prefix = f"reserved-{secrets.token_hex(4)}."
    client, admin = AdminClient(destination_cluster.client("app")), AdminClient(destination_cluster.client("admin"))
    row = Namespace.objects.create(cluster=destination, prefix=prefix, reserved=True, created_at=NOW, created_by="test")
    create(client, f"{prefix}before")

    guard_namespace(namespace_id=row.pk)

    row.refresh_from_db()
    assert (row.guarded, row.guard_problem) == (True, "")
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        create(client, f"{prefix}during")
    create(admin, f"{prefix}by-the-link")  # a super user, as the link's principal is

    delete_namespace(namespace=row, by=SYSTEM, now=NOW)
    guard_namespace(namespace_id=row.pk)
    assert not Namespace.objects.exists()
    wait_for(lambda: _may_create(client, f"{prefix}after"))  # brokers apply the deletion of an ACL after a moment


def _may_create(admin: AdminClient, topic: str) -> bool:
    try:
        create(admin, topic)
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED  # noqa: PT017 - any other error is a failure
        return False
    return True
