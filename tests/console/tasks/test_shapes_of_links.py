"""Shapes that links make: a chain, a fan-out, an aggregation with prefixes, and a link that its source began."""

from __future__ import annotations

import pytest

from console.models import Cluster, ClusterLink, MirrorTopic
from console.tasks import looking, mirrors
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import LinkState, MirrorState
from tests.console.conftest import NOW
from tests.console.tasks.conftest import MakeTopic
from tests.console.tasks.reversal import Drive, records, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.usefixtures("copier")]
S = MirrorState


def link_to(here: Cluster, there: Cluster, name: str, **fields: object) -> ClusterLink:
    """Make a link from one cluster to another."""
    values = {"properties": there.properties, **fields}
    dated = {"state_since": NOW, "created_at": NOW}
    return ClusterLink.objects.create(
        name=name, destination=here, source=there, source_cluster_id=there.cluster_id, created_by="owner", **dated, **values
    )


def mirror_on(link: ClusterLink, source_topic: str) -> MirrorTopic:
    """Make a mirror and set it up."""
    dated = {"state_since": NOW, "created_at": NOW}
    row = MirrorTopic.objects.create(link=link, name=link.prefix + source_topic, source_topic=source_topic, **dated)
    mirrors.setup_mirror(mirror_id=row.pk)
    return row


def test_a_chain_and_a_fan_out_hold_the_same_records_at_the_same_offsets(
    source: Cluster,
    destination: Cluster,
    make_topic: MakeTopic,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
) -> None:
    """A to B, and from B back to A under other names, twice: B's mirror is a source itself, of two links."""
    topic = make_topic()
    first = mirror_on(link_to(destination, source, "first"), topic)
    second = mirror_on(link_to(source, destination, "second", prefix="west."), topic)
    third = mirror_on(link_to(source, destination, "third", prefix="east."), topic)
    assert write(source_cluster, topic, "one more") == [None]

    drive(lambda: all(len(records(source_cluster, one.name)) == 201 for one in (second, third)))

    assert states(first, second, third) == [S.ACTIVE] * 3
    original = records(source_cluster, topic)
    assert records(destination_cluster, topic) == original
    assert records(source_cluster, second.name) == records(source_cluster, third.name) == original


def test_a_link_begun_at_the_source_works_when_both_sides_exist(
    source: Cluster, destination: Cluster, make_topic: MakeTopic, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    topic = make_topic()
    inbound = link_to(destination, source, "pushed", connection_mode="INBOUND", properties={})
    looking.probe_link(link_id=inbound.pk)
    inbound.refresh_from_db()
    assert (inbound.state, inbound.error_code) == (LinkState.FAILED, "REMOTE_LINK_NOT_FOUND_ERROR")
    assert "link.mode=SOURCE" in inbound.error_message

    begun = link_to(source, destination, "pushed", mode="SOURCE")
    for one in (inbound, begun):
        looking.probe_link(link_id=one.pk)
    mirror_on(inbound, topic)
    drive(lambda: len(records(destination_cluster, topic)) == 200)

    assert set(ClusterLink.objects.values_list("state", flat=True)) == {LinkState.ACTIVE}
