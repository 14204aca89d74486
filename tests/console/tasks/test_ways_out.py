"""A mirror in any error state can be failed over and deleted, on real clusters and without the source."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from console.actions import transitions
from console.actors import ENGINE
from console.models import ClusterLink, MirrorTopic
from console.tasks import mirrors
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW
from tests.console.tasks.reversal import Drive, fresh, request_operation, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier")]
S, E = MirrorState, MirrorEvent
NOWHERE = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (E.SOURCE_LOST, S.SOURCE_UNAVAILABLE),
        (E.LINK_BROKEN, S.LINK_FAILED),
        (E.FATAL, S.FAILED),
        (E.PROMOTE, S.PENDING_STOPPED),  # permanently: the lag cannot drain
    ],
)
def test_mirror_in_an_error_state_can_be_failed_over_or_deleted(
    event: E, state: S, new_mirror: MirrorTopic, destination_cluster: KafkaCluster, destination_admin: AdminClient, drive: Drive
) -> None:
    dated = {"state": S.PENDING_SETUP, "state_since": NOW, "created_at": NOW}
    topic = new_mirror.name
    other = MirrorTopic.objects.create(link=new_mirror.link, name=f"{topic}-other", source_topic=topic, **dated)
    for mirror in (new_mirror, other):
        mirrors.setup_mirror(mirror_id=mirror.pk)
        facts = {"stop_reason": "promote"} if event is E.PROMOTE else {}
        transitions.apply_event(mirror=fresh(mirror), event=event, by=ENGINE, now=NOW, **facts)
    ClusterLink.objects.update(properties=NOWHERE)
    assert states(new_mirror, other) == [state, state]
    assert write(destination_cluster, topic, "too early") != [None]

    request_operation(new_mirror, E.FAILOVER)
    request_operation(other, E.DELETE)
    drive(lambda: states(new_mirror) == [S.STOPPED] and not MirrorTopic.objects.filter(pk=other.pk).exists())

    assert write(destination_cluster, topic, "open") == [None]
    assert other.name not in destination_admin.list_topics(timeout=20).topics
