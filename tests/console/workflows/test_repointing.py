"""A running link is changed to another address of its source, and to another cluster."""

from __future__ import annotations

import pytest

from console.actors import SYSTEM
from console.links.actions import LinkConfigChange, alter_configs
from console.models import Cluster, ClusterLink, MirrorTopic
from console.tasks.mirrors import setup_mirror
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import LinkState, MirrorState
from tests.console.conftest import NOW
from tests.console.workflows.reversal import Drive, records, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier")]
S = MirrorState


def point(link: ClusterLink, properties: dict[str, str]) -> None:
    """Change how the link reaches its source, as a user does."""
    changes = [LinkConfigChange(name=name, value=value) for name, value in properties.items()]
    alter_configs(link=ClusterLink.objects.get(pk=link.pk), changes=changes, by=SYSTEM, now=NOW)


def test_link_follows_a_new_address_and_refuses_another_cluster(
    new_mirror: MirrorTopic,
    destination: Cluster,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
) -> None:
    """The other cluster is the destination: it has a topic of this name and accepts the credentials; only its id differs."""
    link, topic = new_mirror.link, new_mirror.name
    right = dict(link.properties)
    setup_mirror(mirror_id=new_mirror.pk)
    drive(lambda: len(records(destination_cluster, topic)) == 200)

    point(link, {**right, "bootstrap.servers": right["bootstrap.servers"].replace("127.0.0.1", "localhost")})
    assert write(source_cluster, topic, "by another address") == [None]
    drive(lambda: len(records(destination_cluster, topic)) == 201)

    point(link, dict(destination.properties))
    drive(lambda: states(new_mirror) == [S.LINK_FAILED])
    drive(lambda: ClusterLink.objects.get().state == LinkState.FAILED)
    row = ClusterLink.objects.get()
    assert row.error_code == "CLUSTER_ID_MISMATCH"
    assert destination.cluster_id in row.error_message
    assert write(source_cluster, topic, "while it was wrong") == [None]

    point(link, right)
    drive(lambda: len(records(destination_cluster, topic)) == 202)
    drive(lambda: states(new_mirror) == [S.ACTIVE])
    assert records(destination_cluster, topic) == records(source_cluster, topic)
