"""The whole product while the source is unavailable, refuses requests, or has lost its topic: states, errors and recovery."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from console.models import ClusterLink, LinkConfig, MirrorTopic, StateTransition
from console.tasks.mirrors import setup_mirror
from devcluster.kafka import KafkaCluster
from linkengine.domain.acls import Acl
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.workflows.reversal import Drive, fresh, records, request_operation, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900), pytest.mark.usefixtures("copier")]
S, E = MirrorState, MirrorEvent
RETRY_TIMEOUT = "cluster.link.retry.timeout.ms"


@pytest.fixture
def source_cluster(make_cluster: Callable[..., KafkaCluster]) -> KafkaCluster:
    """A source cluster of this test, which it may stop."""
    return make_cluster("source")


@pytest.fixture
def source_admin(source_cluster: KafkaCluster) -> AdminClient:
    """An administrator of the source cluster."""
    return AdminClient(source_cluster.client("admin"))


def test_mirror_waits_for_its_source_and_fails_if_a_refusal_or_deletion_lasts_and_recovers(
    new_mirror: MirrorTopic,
    source_cluster: KafkaCluster,
    source_admin: AdminClient,
    destination_cluster: KafkaCluster,
    drive: Drive,
) -> None:
    topic, there = new_mirror.name, ClusterAdmin(address_from_properties(source_cluster.client_properties("admin")))
    ClusterLink.objects.update(properties=source_cluster.client_properties("app"))
    setup_mirror(mirror_id=new_mirror.pk)
    drive(lambda: len(records(destination_cluster, topic)) == 200)

    source_cluster.kill()
    drive(lambda: states(new_mirror) == [S.SOURCE_UNAVAILABLE] and fresh(new_mirror).retry_count > 2)
    source_cluster.restart()
    assert write(source_cluster, topic, "after the outage") == [None]
    drive(lambda: states(new_mirror) == [S.ACTIVE] and len(records(destination_cluster, topic)) == 201)
    assert (fresh(new_mirror).prior_state, fresh(new_mirror).retry_count) == (S.SOURCE_UNAVAILABLE, 0)

    no_reading = Acl(
        resource_type="TOPIC",
        resource_name=topic,
        pattern_type="LITERAL",
        principal="User:app",
        host="*",
        operation="READ",
        permission="DENY",
    )
    LinkConfig.objects.create(link_id=new_mirror.link_id, name=RETRY_TIMEOUT, value="2000")
    assert there.create_acls([no_reading]) == {}
    assert write(source_cluster, topic, "while it is refused", user="admin") == [None]
    drive(lambda: states(new_mirror) == [S.FAILED])
    assert fresh(new_mirror).error_code == "AUTHORIZATION_ERROR"
    assert fresh(new_mirror).retry_count > 0
    LinkConfig.objects.filter(name=RETRY_TIMEOUT).delete()

    assert there.delete_acls([no_reading]) == {}
    request_operation(new_mirror, E.RECOVER)
    drive(lambda: states(new_mirror) == [S.ACTIVE] and len(records(destination_cluster, topic)) == 202)
    mirrored = records(destination_cluster, topic)
    assert records(source_cluster, topic) == mirrored

    LinkConfig.objects.create(link_id=new_mirror.link_id, name=RETRY_TIMEOUT, value="4000")
    source_admin.delete_topics([topic])[topic].result(30)
    drive(lambda: states(new_mirror) == [S.SOURCE_UNAVAILABLE])
    drive(lambda: states(new_mirror) == [S.FAILED])
    assert fresh(new_mirror).error_code == "SOURCE_TOPIC_MAY_BE_DELETED"
    assert records(destination_cluster, topic) == mirrored

    events = list(StateTransition.objects.order_by("pk").values_list("event", flat=True))
    assert [event for event in events if event not in ("link-broken", "link-healed")] == [
        "setup-done",
        "source-lost",
        "source-back",
        "fatal",
        "recover",
        "source-lost",
        "fatal",
    ]
