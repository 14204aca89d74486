"""Topologies of links: chains, a fan-out, an aggregation with prefixes, and source-initiated links."""

from __future__ import annotations

import pytest

from console.actors import SYSTEM
from console.links import pairs
from console.links.actions import LinkConfigChange, alter_configs, delete_link
from console.models import Cluster, ClusterLink, Environment, MirrorTopic, VerifyRun
from console.reconciling import plans
from console.tasks.links import probe_link
from console.tasks.mirrors import setup_mirror, verify_mirror
from console.verification.actions import start_verify
from console.workflows import verifying
from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import LinkState, MirrorEvent, MirrorState
from tests.conftest import MakeCluster
from tests.console.conftest import NOW
from tests.console.workflows.conftest import MakeTopic, register
from tests.console.workflows.kills import phases
from tests.console.workflows.reversal import Drive, fresh, records, request_operation, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier")]
S = MirrorState
MISSING_SIDE = "REMOTE_LINK_NOT_FOUND_ERROR"


def link_to(here: Cluster, there: Cluster, name: str, **fields: object) -> ClusterLink:
    """Create a link between two clusters."""
    values = {"properties": there.properties, **fields}
    dated = {"state_since": NOW, "created_at": NOW}
    return ClusterLink.objects.create(
        name=name, destination=here, source=there, source_cluster_id=there.cluster_id, created_by="owner", **dated, **values
    )


def mirror_on(link: ClusterLink, source_topic: str) -> MirrorTopic:
    """Create a mirror and set it up."""
    dated = {"state_since": NOW, "created_at": NOW}
    row = MirrorTopic.objects.create(link=link, name=link.prefix + source_topic, source_topic=source_topic, **dated)
    setup_mirror(mirror_id=row.pk)
    return row


def test_chain_and_fan_out_have_the_same_records_at_the_same_offsets(
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

    drive(lambda: all(len(records(source_cluster, mirror.name)) == 201 for mirror in (second, third)))

    assert states(first, second, third) == [S.ACTIVE] * 3
    original = records(source_cluster, topic)
    assert records(destination_cluster, topic) == original
    assert records(source_cluster, second.name) == records(source_cluster, third.name) == original


def test_source_initiated_link_works_once_both_sides_exist(
    source: Cluster, destination: Cluster, make_topic: MakeTopic, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    topic = make_topic()
    inbound = link_to(destination, source, "pushed", connection_mode="INBOUND", properties={})
    probe_link(link_id=inbound.pk)
    inbound.refresh_from_db()
    assert (inbound.state, inbound.error_code) == (LinkState.FAILED, "REMOTE_LINK_NOT_FOUND_ERROR")
    assert "link.mode=SOURCE" in inbound.error_message

    outbound = link_to(source, destination, "pushed", mode="SOURCE")
    for side in (inbound, outbound):
        probe_link(link_id=side.pk)
    mirror_on(inbound, topic)
    drive(lambda: len(records(destination_cluster, topic)) == 200)

    assert set(ClusterLink.objects.values_list("state", flat=True)) == {LinkState.ACTIVE}


def test_source_initiated_link_uses_the_credentials_of_the_source_side(
    source: Cluster, destination: Cluster, make_topic: MakeTopic, source_cluster: KafkaCluster, drive: Drive
) -> None:
    """``local.*`` configs of the source side are used at the source, not the registered credentials of that cluster."""
    topic = make_topic()
    credentials = source_cluster.client_properties("link")
    security = ("security.protocol", "sasl.mechanism", "sasl.jaas.config")
    local = {f"local.{name}": credentials[name] for name in security}
    inbound = link_to(destination, source, "pushed", connection_mode="INBOUND", properties={})
    outbound = link_to(source, destination, "pushed", mode="SOURCE", properties={**destination.properties, **local})
    mirror = mirror_on(inbound, topic)
    drive(lambda: states(mirror) == [S.ACTIVE])
    assert plans.source_address(ClusterLink.objects.get(pk=inbound.pk)).sasl_username == "link"

    wrong = {
        **outbound.properties,
        "local.sasl.jaas.config": credentials["sasl.jaas.config"].replace('password="', 'password="not-'),
    }
    ClusterLink.objects.filter(pk=outbound.pk).update(properties=wrong)
    probe_link(link_id=inbound.pk)

    row = ClusterLink.objects.get(pk=inbound.pk)
    assert (row.state, row.error_code) == (LinkState.FAILED, "AUTHENTICATION_ERROR")


@pytest.mark.parametrize("paused", [True, False], ids=["paused", "active"])
def test_inbound_link_without_its_source_side_has_no_credentials_and_can_be_failed_over(
    source: Cluster,
    destination: Cluster,
    make_topic: MakeTopic,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    paused: bool,
) -> None:
    """The owner of the source side has lent it ``local.*`` credentials. Those of the registered cluster never replace them."""
    topic = make_topic()
    credentials = source_cluster.client_properties("link")
    local = {f"local.{name}": value for name, value in credentials.items() if name != "bootstrap.servers"}
    inbound = link_to(destination, source, "pushed", connection_mode="INBOUND", properties={})
    outbound = link_to(source, destination, "pushed", mode="SOURCE", properties={**destination.properties, **local})
    mirror = mirror_on(inbound, topic)
    drive(lambda: len(records(destination_cluster, topic)) == 200)

    def row() -> ClusterLink:
        found = plans.load_link(inbound.pk)
        assert found is not None
        return found

    def set_paused(value: str) -> None:
        alter_configs(link=row(), changes=[LinkConfigChange(name="cluster.link.paused", value=value)], by=SYSTEM, now=NOW)

    if paused:
        set_paused("true")
    delete_link(link=outbound, by=SYSTEM, now=NOW)
    assert (row().state, row().error_code) == ((LinkState.PAUSED, "") if paused else (LinkState.FAILED, MISSING_SIDE))

    drive(lambda: phases(mirror) == {PartitionPhase.RELEASED})  # the worker has ended, with the credentials it had
    loaded = fresh(mirror)
    for make in (lambda: plans.setup_of(loaded), lambda: plans.syncs_of([loaded]), lambda: plans.verify_of(loaded)):
        with pytest.raises(LinkEngineError, match="The source side is missing"):
            make()
    run = start_verify(mirror=loaded, by=SYSTEM, now=NOW)
    verify_mirror(run_id=run.pk)
    run.refresh_from_db()
    assert (run.status, run.records_compared) == (VerifyRun.Status.ERROR, None)
    assert "The source side is missing" in run.error_message
    assert [read.problem for read in verifying._canary(loaded)] == [pairs.missing_side(inbound)]
    assert [code for code, _ in verifying._blockers(loaded)] == [MISSING_SIDE]

    if paused:
        set_paused("false")
    assert (row().state, row().error_code) == (LinkState.FAILED, MISSING_SIDE)
    assert write(source_cluster, topic, "not copied") == [None]
    request_operation(mirror, MirrorEvent.FAILOVER)
    drive(lambda: states(mirror) == [S.STOPPED])
    assert write(destination_cluster, topic, "open") == [None]
    assert b"not copied" not in records(destination_cluster, topic).values()


def test_three_clusters_form_a_chain_and_an_aggregation(
    source: Cluster,
    destination: Cluster,
    environment: Environment,
    make_topic: MakeTopic,
    make_cluster: MakeCluster,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
) -> None:
    """A to B to C; and C has the same topic from A and from B, with the links' prefixes."""
    topic, third_cluster = make_topic(), make_cluster("third")
    third = register(environment, "Third", third_cluster)
    middle = mirror_on(link_to(destination, source, "a-to-b"), topic)
    end = mirror_on(link_to(third, destination, "b-to-c"), topic)
    west = mirror_on(link_to(third, source, "a-west", prefix="west."), topic)
    east = mirror_on(link_to(third, destination, "b-east", prefix="east."), topic)
    assert write(source_cluster, topic, "one more") == [None]

    drive(lambda: all(len(records(third_cluster, mirror.name)) == 201 for mirror in (end, west, east)))

    assert states(middle, end, west, east) == [S.ACTIVE] * 4
    original = records(source_cluster, topic)
    assert records(destination_cluster, topic) == original
    assert all(records(third_cluster, mirror.name) == original for mirror in (end, west, east))
    assert {mirror.name for mirror in (end, west, east)} == {topic, f"west.{topic}", f"east.{topic}"}
