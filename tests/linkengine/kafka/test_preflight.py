from collections.abc import Callable
from dataclasses import replace

import pytest

from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.preflight import check_reachable

pytestmark = pytest.mark.kafka


def refusal(address: ClusterAddress) -> LinkEngineError:
    """Return the error of probing the cluster; listing its topics must fail with the same code."""
    with pytest.raises(LinkEngineError) as probed:
        ClusterAdmin(address).probe()
    with pytest.raises(LinkEngineError) as listed:
        ClusterAdmin(address).topics()
    assert listed.value.code is probed.value.code
    return probed.value


def test_the_error_names_a_host_that_does_not_resolve(source: ClusterAddress) -> None:
    error = refusal(replace(source, bootstrap_servers="nowhere.invalid:9092"))

    assert error.code is ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR
    assert "nowhere.invalid" in error.message


def test_the_error_names_a_closed_port(source: ClusterAddress) -> None:
    port = free_port()

    error = refusal(replace(source, bootstrap_servers=f"127.0.0.1:{port}"))

    assert error.code is ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR
    assert str(port) in error.message


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_a_wrong_password_is_an_authentication_error_without_the_password(source: ClusterAddress, mechanism: str) -> None:
    error = refusal(replace(source, sasl_mechanism=mechanism, sasl_password="not-the-password"))

    assert error.code is ErrorCode.AUTHENTICATION_ERROR
    assert "'link'" in error.message
    assert "not-the-password" not in error.message


def test_an_authentication_error_names_the_failed_call(source: ClusterAddress) -> None:
    with pytest.raises(LinkEngineError) as refused:
        ClusterAdmin(replace(source, sasl_password="not-the-password")).describe("orders")

    assert refused.value.message.startswith("Failed to describe topic 'orders' due to authentication issues.")


def test_the_error_of_tls_to_a_listener_without_tls_names_tls(source: ClusterAddress) -> None:
    error = refusal(replace(source, security_protocol="SASL_SSL"))

    assert error.code in {ErrorCode.AUTHENTICATION_ERROR, ErrorCode.MISCONFIGURATION_ERROR}
    assert "TLS" in error.message


def test_the_error_of_a_missing_login_names_security_protocol(source: ClusterAddress) -> None:
    error = refusal(replace(source, security_protocol="PLAINTEXT"))

    assert "security.protocol" in error.message


def test_an_invalid_pem_is_a_misconfiguration(source: ClusterAddress) -> None:
    error = refusal(replace(source, security_protocol="SASL_SSL", ssl_ca_pem="no pem"))

    assert error.code is ErrorCode.MISCONFIGURATION_ERROR


def test_a_single_reachable_bootstrap_server_is_enough(source: ClusterAddress) -> None:
    servers = f"nowhere.invalid:9092,127.0.0.1:{free_port()},{source.bootstrap_servers}"

    check_reachable(replace(source, bootstrap_servers=servers))


def test_the_most_specific_of_several_failures_is_raised(source: ClusterAddress) -> None:
    servers = f"nowhere.invalid:9092,127.0.0.1:{free_port()},{source.bootstrap_servers}"

    error = refusal(replace(source, bootstrap_servers=servers, sasl_password="wrong"))

    assert error.code is ErrorCode.AUTHENTICATION_ERROR


def test_tls_requires_the_clusters_certificate_authority(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    cluster = make_cluster(security="SASL_SSL")
    authority = cluster.certificates.authority.read_text()
    address = replace(address_from_properties(cluster.client_properties("link")), ssl_ca_pem=authority)

    assert ClusterAdmin(address).probe().cluster_id == cluster.cluster_id
    assert ClusterAdmin(address).topics() == []
    assert refusal(replace(address, ssl_ca_pem="")).code is ErrorCode.AUTHENTICATION_ERROR
    assert refusal(replace(address, sasl_password="wrong")).code is ErrorCode.AUTHENTICATION_ERROR
