"""Tasks that read from real clusters: checks, probes, lists of topics."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from console.models import Cluster, ClusterLink, MirrorTopic, SourceTopic
from console.models.fields import seal, unseal
from console.queue import dispatch
from console.tasks.clusters import check_connection, list_source, probe_address, probe_cluster, probe_clusters, refresh_topics
from console.tasks.links import check_link, probe_link
from console.tasks.mirrors import check_mirror
from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from linkengine.domain.clusterviews import listing_from_json
from linkengine.domain.connectionchecks import checks_from_json
from linkengine.domain.states import LinkState
from tests.console.conftest import NOW
from tests.console.workflows.conftest import MakeTopic

pytestmark = pytest.mark.kafka


def response_of(task: Any, **kwargs: Any) -> dict[str, Any]:
    task(reply_to="reply", **kwargs)
    response = dispatch.wait_for_reply("reply", timeout_s=5)
    assert response is not None
    return response


def test_a_link_is_checked_before_it_is_stored(source: Cluster, destination: Cluster) -> None:
    sealed = seal({"source": source.properties, "destination": destination.properties})

    fine = response_of(check_link, sealed=sealed, source_cluster_id=source.cluster_id)
    wrong = response_of(check_link, sealed=sealed, source_cluster_id="another")

    assert fine["result"]["cluster_id"] == source.cluster_id
    assert wrong["error"]["code"] == "CLUSTER_ID_MISMATCH"


def test_a_mirror_is_checked_before_it_is_stored(link: ClusterLink, make_topic: MakeTopic) -> None:
    topic = make_topic()
    options: dict[str, Any] = {"link_id": link.pk, "replication_factor": None, "configs": {}}

    fine = response_of(check_mirror, source_topic=topic, mirror_topic=topic, **options)
    unknown = response_of(check_mirror, source_topic="no-such-topic", mirror_topic="no-such-topic", **options)

    assert fine["result"]["partitions"] == 2
    assert unknown["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION_ERROR"


@pytest.mark.parametrize("mode", ["DESTINATION", "SOURCE"])
def test_first_probe_chooses_the_gap_filler_on_the_side_with_mirrors(
    link: ClusterLink, destination: Cluster, destination_cluster: KafkaCluster, mode: str
) -> None:
    """A link that was created with validate_link=false; its principal at the destination may use transactions only."""
    destination.properties = destination_cluster.client_properties("app")
    destination.save()
    ClusterLink.objects.update(mode=mode)
    if mode == "SOURCE":
        inbound_side(link)

    probe_link(link_id=link.pk)

    link.refresh_from_db()
    assert link.probed_at is not None
    assert link.gap_filler == ("transactions" if mode == "DESTINATION" else "markers")


def test_gap_filler_stays_once_a_mirror_is_set_up_or_the_link_was_probed(
    link: ClusterLink, destination: Cluster, destination_cluster: KafkaCluster
) -> None:
    destination.properties = destination_cluster.client_properties("app")
    destination.save()
    dated = {"state_since": NOW, "created_at": NOW}
    mirror = MirrorTopic.objects.create(link=link, name="a", source_topic="a", num_partitions=1, **dated)
    probe_link(link_id=link.pk)
    mirror.delete()

    probe_link(link_id=link.pk)

    link.refresh_from_db()
    assert (link.state, link.gap_filler) == (LinkState.ACTIVE, "markers")


def test_destination_that_is_unavailable_at_the_first_probe_is_probed_again(link: ClusterLink, destination: Cluster) -> None:
    reached = dict(destination.properties)
    destination.properties = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "security.protocol": "PLAINTEXT"}
    destination.save()
    probe_link(link_id=link.pk)
    link.refresh_from_db()
    assert (link.state, link.error_code, link.probed_at) == (LinkState.UNAVAILABLE, "DESTINATION_UNAVAILABLE", None)

    destination.properties = reached
    destination.save()
    probe_link(link_id=link.pk)

    link.refresh_from_db()
    assert link.state == LinkState.ACTIVE
    assert link.probed_at is not None


def inbound_side(link: ClusterLink) -> ClusterLink:
    """Create the destination side of a link of mode SOURCE."""
    assert link.source is not None
    return ClusterLink.objects.create(
        name=link.name,
        destination=link.source,
        source=link.destination,
        source_cluster_id=link.destination.cluster_id,
        connection_mode="INBOUND",
        properties={},
        state_since=NOW,
        created_at=NOW,
    )


def test_an_address_is_probed(source: Cluster) -> None:
    response = response_of(probe_address, sealed=seal(source.properties))

    assert response["result"]["cluster_id"] == source.cluster_id
    assert response["result"]["authorizer"] is True


def test_registered_clusters_are_probed(source: Cluster, sent: list[tuple[str, dict[str, Any]]]) -> None:
    probe_clusters()
    assert sent == [("probe_cluster", {"cluster_pk": source.pk})]

    probe_cluster(cluster_pk=source.pk)
    probe_cluster(cluster_pk=source.pk)
    probe_cluster(cluster_pk=0)

    source.refresh_from_db()
    assert (source.brokers, source.error_code) == (1, "")
    assert source.probed_at is not None


def test_wrong_password_fails_the_link_until_it_is_corrected(link: ClusterLink, source_cluster: KafkaCluster) -> None:
    good = link.properties
    wrong = good["sasl.jaas.config"].replace(source_cluster.users["admin"], "wrong")
    ClusterLink.objects.filter(pk=link.pk).update(properties={**good, "sasl.jaas.config": wrong})

    probe_link(link_id=link.pk)
    row = ClusterLink.objects.get()
    assert (row.state, row.error_code) == (LinkState.FAILED, "AUTHENTICATION_ERROR")

    ClusterLink.objects.filter(pk=link.pk).update(properties=good)
    probe_link(link_id=link.pk)
    row = ClusterLink.objects.get()
    assert (row.state, row.error_code, row.error_message) == (LinkState.ACTIVE, "", "")


@pytest.fixture
def mute_port() -> Iterator[int]:
    """A port that accepts connections and never sends anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("server", "state", "code"),
    [
        ("no-such-host.invalid:9092", LinkState.UNAVAILABLE, "UNRESOLVABLE_BOOTSTRAP_ERROR"),
        ("127.0.0.1:9", LinkState.UNAVAILABLE, "BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR"),
        ("127.0.0.1:mute", LinkState.UNAVAILABLE, "TIMEOUT_ERROR"),
    ],
)
def test_each_reason_for_an_unreachable_source_has_its_own_code(
    link: ClusterLink, mute_port: int, server: str, state: LinkState, code: str
) -> None:
    properties = {**link.properties, "bootstrap.servers": server.replace("mute", str(mute_port))}
    ClusterLink.objects.update(properties=properties)

    probe_link(link_id=link.pk)

    row = ClusterLink.objects.get()
    assert (row.state, row.error_code) == (state, code)
    assert row.error_message


def test_address_of_another_cluster_is_an_error(link: ClusterLink) -> None:
    ClusterLink.objects.update(source_cluster_id="another")

    probe_link(link_id=link.pk)

    assert ClusterLink.objects.get().error_code == "CLUSTER_ID_MISMATCH"


def test_topics_are_listed_and_deleted_ones_removed(link: ClusterLink, make_topic: MakeTopic) -> None:
    topic = make_topic()
    SourceTopic.objects.create(link=link, name="gone", partitions=1, seen_at=link.created_at)

    for _ in range(2):
        refresh_topics(link_id=link.pk)
        refresh_topics(cluster_pk=link.source_id)

    names = set(SourceTopic.objects.filter(link=link).values_list("name", flat=True))
    assert topic in names
    assert "gone" not in names
    assert SourceTopic.objects.filter(cluster=link.source, name=topic).get().partitions == 2
    assert ClusterLink.objects.get().topics_at is not None


def test_refresh_without_an_id_lists_everything(link: ClusterLink, sent: list[tuple[str, dict[str, Any]]]) -> None:
    refresh_topics()

    assert {tuple(kwargs) for _, kwargs in sent} == {("cluster_pk",), ("link_id",)}
    assert len(sent) == 3


def test_connection_test_replies_with_the_checklist_and_lists_reply_sealed(source: Cluster) -> None:
    sealed = seal(source.properties)

    checks = response_of(
        check_connection, sealed=sealed, role="SOURCE", expected_cluster_id=source.cluster_id, other_cluster_id=""
    )["result"]
    listed = response_of(list_source, sealed=sealed)["result"]

    assert checks_from_json(checks)[-1].code == "DESCRIBE_CLUSTER"
    assert "FAILED" not in {check["status"] for check in checks}
    assert "topics" not in listed
    assert listing_from_json(unseal(listed)).errors == {}
