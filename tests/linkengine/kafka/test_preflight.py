from collections.abc import Callable
from dataclasses import replace

import pytest

from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from linkengine.domain.addresses import ClusterAddress, address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.preflight import check_reachable

pytestmark = pytest.mark.kafka


def refusal(address: ClusterAddress) -> LinkEngineError:
    """Answer why the cluster cannot be probed; listing its topics must fail for the same reason."""
    with pytest.raises(LinkEngineError) as probed:
        ClusterAdmin(address).probe()
    with pytest.raises(LinkEngineError) as listed:
        ClusterAdmin(address).topics()
    assert listed.value.code is probed.value.code
    return probed.value


def test_a_name_that_does_not_resolve_is_named(source: ClusterAddress) -> None:
    error = refusal(replace(source, bootstrap_servers="nowhere.invalid:9092"))

    assert error.code is ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR
    assert "nowhere.invalid" in error.message


def test_a_port_where_nobody_listens_is_named(source: ClusterAddress) -> None:
    port = free_port()

    error = refusal(replace(source, bootstrap_servers=f"127.0.0.1:{port}"))

    assert error.code is ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR
    assert str(port) in error.message


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_a_wrong_password_is_an_authentication_error_that_names_the_user_only(source: ClusterAddress, mechanism: str) -> None:
    error = refusal(replace(source, sasl_mechanism=mechanism, sasl_password="not-the-password"))

    assert error.code is ErrorCode.AUTHENTICATION_ERROR
    assert "'link'" in error.message
    assert "not-the-password" not in error.message


def test_a_call_that_fails_for_credentials_says_what_it_was_about(source: ClusterAddress) -> None:
    with pytest.raises(LinkEngineError) as refused:
        ClusterAdmin(replace(source, sasl_password="not-the-password")).describe("orders")

    assert refused.value.message.startswith("Failed to describe topic 'orders' due to authentication issues.")


def test_tls_to_a_listener_without_tls_is_told(source: ClusterAddress) -> None:
    error = refusal(replace(source, security_protocol="SASL_SSL"))

    assert error.code in {ErrorCode.AUTHENTICATION_ERROR, ErrorCode.MISCONFIGURATION_ERROR}
    assert "TLS" in error.message


def test_no_login_at_a_listener_that_wants_one_points_at_the_protocol(source: ClusterAddress) -> None:
    error = refusal(replace(source, security_protocol="PLAINTEXT"))

    assert "security.protocol" in error.message


def test_a_certificate_that_is_no_pem_is_a_misconfiguration(source: ClusterAddress) -> None:
    error = refusal(replace(source, security_protocol="SASL_SSL", ssl_ca_pem="no pem"))

    assert error.code is ErrorCode.MISCONFIGURATION_ERROR


def test_one_good_server_among_bad_ones_is_enough(source: ClusterAddress) -> None:
    servers = f"nowhere.invalid:9092,127.0.0.1:{free_port()},{source.bootstrap_servers}"

    check_reachable(replace(source, bootstrap_servers=servers))


def test_of_several_failures_the_most_telling_one_is_told(source: ClusterAddress) -> None:
    servers = f"nowhere.invalid:9092,127.0.0.1:{free_port()},{source.bootstrap_servers}"

    error = refusal(replace(source, bootstrap_servers=servers, sasl_password="wrong"))

    assert error.code is ErrorCode.AUTHENTICATION_ERROR


def test_over_tls_the_cluster_is_reached_with_its_authority_and_refused_without(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    cluster = make_cluster(security="SASL_SSL")
    authority = cluster.certificates.authority.read_text()
    address = replace(address_from_properties(cluster.client_properties("link")), ssl_ca_pem=authority)

    assert ClusterAdmin(address).probe().cluster_id == cluster.cluster_id
    assert ClusterAdmin(address).topics() == []
    assert refusal(replace(address, ssl_ca_pem="")).code is ErrorCode.AUTHENTICATION_ERROR
    assert refusal(replace(address, sasl_password="wrong")).code is ErrorCode.AUTHENTICATION_ERROR
