"""The checklist of a connection test against real brokers, and the lists of a source."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
import trustme
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
from devcluster.ports import LOOPBACK, free_port
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.connectionchecks import CheckStatus, ConnectionCheck, ConnectionCheckCode, ConnectionRole
from linkengine.domain.errors import ErrorCode
from linkengine.jobs import connectiontests
from linkengine.jobs.connectiontests import principal_of

pytestmark = pytest.mark.kafka

Code, Status = ConnectionCheckCode, CheckStatus
OTHER = "127.0.0.2"  # also loopback
PATIENCE_S = 60


def checklist(address: ClusterAddress, *, role: ConnectionRole = ConnectionRole.ANY, **ids: str) -> dict[str, ConnectionCheck]:
    return {check.code: check for check in jobs.check_connection(address, role=role, **ids)}


def first_failed(checks: dict[str, ConnectionCheck]) -> ConnectionCheck:
    return next(check for check in checks.values() if check.status is Status.FAILED)


def test_accessible_cluster_passes_in_the_order_of_the_checks(
    source: ClusterAddress, source_cluster: KafkaCluster, source_topic: str
) -> None:
    checks = checklist(source, expected_cluster_id=source_cluster.cluster_id)

    assert list(checks) == list(ConnectionCheckCode)
    assert Status.FAILED not in {check.status for check in checks.values()}
    assert checks[Code.TLS].status is Status.NOT_TESTED
    assert source_cluster.cluster_id in checks[Code.CLUSTER_ID].finding
    assert "Kafka" in checks[Code.VERSION].finding
    assert "reachable" in checks[Code.BROKERS].finding
    assert checks[Code.READ_TOPICS].status is Status.PASSED, source_topic


def test_each_failure_is_found_at_its_check(source: ClusterAddress) -> None:
    nowhere = replace(source, bootstrap_servers=f"{LOOPBACK}:{free_port()}")
    failures = {
        Code.DNS: replace(source, bootstrap_servers="nowhere.invalid:9092"),
        Code.TCP: nowhere,
        Code.TLS: replace(source, security_protocol="SASL_SSL"),
        Code.AUTHENTICATION: replace(source, sasl_password="not-the-password"),
    }

    for code, address in failures.items():
        check = first_failed(checklist(address))
        assert check.code is code
        assert check.fix
        assert "not-the-password" not in check.finding


def test_another_cluster_than_expected_fails_and_its_rights_are_not_shown(source: ClusterAddress) -> None:
    checks = checklist(source, expected_cluster_id="another")

    assert first_failed(checks).code is Code.CLUSTER_ID
    assert checks[Code.READ_TOPICS].status is Status.NOT_TESTED


def test_principal_without_rights_gets_the_commands_that_grant_them(
    source_cluster: KafkaCluster, source: ClusterAddress, source_topic: str
) -> None:
    """The principal "app" of the fixture's clusters; READ on the topic is denied to it.

    Earlier tests may have left other topics that it may not read, so the finding may name those before it names this topic.
    """
    app = address_from_properties(source_cluster.client_properties("app"))
    admin = AdminClient(source_cluster.client("admin"))
    place = (ResourceType.TOPIC, source_topic, ResourcePatternType.LITERAL, "User:app", "*", AclOperation.READ)
    admin.create_acls([AclBinding(*place, AclPermissionType.DENY)])
    try:
        deadline = time.monotonic() + PATIENCE_S
        check = checklist(app)[Code.READ_TOPICS]
        while source_topic not in check.finding and time.monotonic() < deadline:  # brokers apply ACLs with a delay
            check = checklist(app)[Code.READ_TOPICS]
    finally:
        for done in admin.delete_acls([AclBindingFilter(*place, AclPermissionType.DENY)]).values():
            done.result(30)

    assert check.status in (Status.WARNING, Status.FAILED)
    assert source_topic in check.finding
    assert "--allow-principal User:app --operation Read" in check.fix


def test_commands_name_the_principal_that_brokers_use() -> None:
    issued = trustme.CA().issue_cert(common_name="link", organization_name="Skyways", organization_unit_name="Kafka")
    certificate = issued.cert_chain_pems[0].bytes().decode()
    mutual = ClusterAddress(
        bootstrap_servers="far.example:9093",
        security_protocol="SSL",
        ssl_certificate_pem=certificate,
    )
    scram = replace(mutual, security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="app")

    assert principal_of(mutual) == "CN=link,OU=Kafka,O=Skyways"
    assert principal_of(replace(mutual, ssl_certificate_pem="not a certificate")) == "<subject of the client certificate>"
    assert principal_of(replace(mutual, ssl_certificate_pem="")) == "ANONYMOUS"
    assert principal_of(scram) == "app"
    assert principal_of(replace(scram, sasl_mechanism="OAUTHBEARER")) == "<subject of the token>"


def test_tls_check_passes_with_the_authority_and_fails_without(make_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = make_cluster(security="SASL_SSL")
    authority = cluster.certificates.authority.read_text()
    address = replace(address_from_properties(cluster.client_properties("link")), ssl_ca_pem=authority)

    assert checklist(address)[Code.TLS].status is Status.PASSED
    assert first_failed(checklist(replace(address, ssl_ca_pem=""))).code is Code.TLS


def test_server_that_is_not_permitted_has_one_message_and_nothing_is_connected_to(source: ClusterAddress) -> None:
    """The message must depend neither on what listens at the address nor on the other servers (ADR 32)."""
    with closing(socket.create_server((OTHER, 0))) as listener:
        listener.settimeout(0.3)
        denied = replace(source, denied_networks=(f"{OTHER}/32",))
        open_port, closed_port = listener.getsockname()[1], free_port()
        found = []
        for port in (open_port, closed_port):
            checks = checklist(replace(denied, bootstrap_servers=f"{source.bootstrap_servers},{OTHER}:{port}"))
            found.append(first_failed(checks))
            assert [check.status for check in checks.values()].count(Status.NOT_TESTED) == len(checks) - 1
        with pytest.raises(TimeoutError):
            listener.accept()

    assert {check.code for check in found} == {Code.DNS}
    assert {check.error_code for check in found} == {ErrorCode.MISCONFIGURATION_ERROR}
    assert len({check.finding.replace(str(open_port), "").replace(str(closed_port), "") for check in found}) == 1


def test_source_is_listed_with_topics_groups_and_acls(source: ClusterAddress, source_topic: str) -> None:
    listing = jobs.list_source(source)

    assert listing.topics is not None
    assert source_topic in [topic.name for topic in listing.topics]
    assert listing.groups is not None
    assert listing.acls is not None
    assert (listing.errors, listing.cut) == ({}, ())


def test_lists_with_too_much_text_are_cut_off_and_named(
    source: ClusterAddress, source_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectiontests, "MOST_CHARACTERS", 0)

    listing = jobs.list_source(source)

    assert listing.topics == (), source_topic
    assert "topics" in listing.cut


def test_unreachable_source_has_unknown_lists_with_the_reason(source: ClusterAddress) -> None:
    listing = jobs.list_source(replace(source, bootstrap_servers=f"{LOOPBACK}:{free_port()}"))

    assert (listing.topics, listing.groups, listing.acls) == (None, None, None)
    assert set(listing.errors) == {"topics", "groups", "acls"}
