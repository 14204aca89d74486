import time
from dataclasses import replace

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import GapFiller
from linkengine.kafka.admin import ClusterAdmin

pytestmark = pytest.mark.kafka


def nowhere(address: ClusterAddress) -> ClusterAddress:
    """Return the address of a cluster that is down."""
    return replace(address, bootstrap_servers=f"127.0.0.1:{free_port()}")


def test_a_link_between_two_accessible_clusters_passes_the_check(
    source: ClusterAddress, destination: ClusterAddress, source_cluster: KafkaCluster
) -> None:
    probe = jobs.check_link(source=source, destination=destination, expected_source_cluster_id=source_cluster.cluster_id)

    assert probe == replace(jobs.probe_cluster(source), gap_filler=GapFiller.MARKERS)
    assert probe.cluster_id == source_cluster.cluster_id


def test_the_check_of_a_link_measures_distances_on_request(source: ClusterAddress, destination: ClusterAddress) -> None:
    probe = jobs.check_link(source=source, destination=destination, with_distances=True)

    assert probe.distances is not None
    assert [each.broker for each in probe.distances] == [0]


def test_an_unexpected_source_cluster_is_refused_with_both_ids(
    source: ClusterAddress, destination: ClusterAddress, source_cluster: KafkaCluster
) -> None:
    with pytest.raises(LinkEngineError) as refused:
        jobs.check_link(source=source, destination=destination, expected_source_cluster_id="lkc-expected")

    assert refused.value.code is ErrorCode.CLUSTER_ID_MISMATCH
    assert "lkc-expected" in refused.value.message
    assert source_cluster.cluster_id in refused.value.message


def test_a_cluster_cannot_be_linked_with_itself(source: ClusterAddress) -> None:
    with pytest.raises(LinkEngineError, match="same cluster") as refused:
        jobs.check_link(source=source, destination=source)

    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR


def test_a_source_that_refuses_the_connection_fails_the_check_with_its_code(
    source: ClusterAddress, destination: ClusterAddress
) -> None:
    with pytest.raises(LinkEngineError) as down:
        jobs.check_link(source=nowhere(source), destination=destination)
    with pytest.raises(LinkEngineError) as locked:
        jobs.check_link(source=replace(source, sasl_password="wrong"), destination=destination)

    assert down.value.code is ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR
    assert locked.value.code is ErrorCode.AUTHENTICATION_ERROR


def test_an_unreachable_destination_has_another_code_than_an_unreachable_source(
    source: ClusterAddress, destination: ClusterAddress
) -> None:
    with pytest.raises(LinkEngineError) as down:
        jobs.check_link(source=source, destination=nowhere(destination))

    assert down.value.code is ErrorCode.DESTINATION_UNAVAILABLE


def test_gaps_are_filled_by_markers_if_allowed_and_otherwise_by_transactions(
    source: ClusterAddress, destination: ClusterAddress, destination_as_app: ClusterAddress
) -> None:
    assert jobs.check_link(source=source, destination=destination).gap_filler is GapFiller.MARKERS
    assert jobs.check_link(source=source, destination=destination_as_app).gap_filler is GapFiller.TRANSACTIONS


def test_the_source_side_of_a_link_needs_no_gap_filler(source: ClusterAddress, destination: ClusterAddress) -> None:
    probe = jobs.check_link(source=source, destination=destination, fills_gaps=False)

    assert probe == jobs.probe_cluster(source)


def test_a_principal_without_markers_and_transactions_is_refused_with_the_missing_rights(
    source: ClusterAddress, destination_cluster: KafkaCluster, destination_as_app: ClusterAddress
) -> None:
    admin = AdminClient(destination_cluster.client("admin"))
    place = (ResourceType.TRANSACTIONAL_ID, "clusterlink-", ResourcePatternType.PREFIXED, "User:app", "*", AclOperation.WRITE)
    admin.create_acls([AclBinding(*place, AclPermissionType.DENY)])
    try:
        refusals: list[LinkEngineError] = []
        deadline = time.monotonic() + 60
        while not refusals and time.monotonic() < deadline:  # brokers apply the controller's log with a delay
            try:
                jobs.check_link(source=source, destination=destination_as_app)
            except LinkEngineError as error:
                refusals.append(error)
                jobs.check_link(source=source, destination=destination_as_app, fills_gaps=False)
    finally:
        for done in admin.delete_acls([AclBindingFilter(*place, AclPermissionType.DENY)]).values():
            done.result(30)

    assert refusals[0].code is ErrorCode.AUTHORIZATION_ERROR
    assert all(words in refusals[0].message for words in ("ALTER on the cluster is missing", "super.users", "clusterlink-"))


def test_the_topics_of_a_cluster_are_listed(source: ClusterAddress, there: ClusterAdmin, source_topic: str) -> None:
    assert there.describe(source_topic) in jobs.list_topics(source)
