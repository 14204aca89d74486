"""Find out why a cluster cannot be reached: name, port, TLS or credentials.

librdkafka retries silently and reports little more than "timed out". So before one of its clients is created, and after it has
given up, a plain connection is opened and authenticated. The first bootstrap server that accepts the login is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from linkengine.domain.addresses import ClusterAddress, parse_servers
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.connection import Connection, connect
from linkengine.kafka.security import NotPermittedError, check_names

MAX_SERVERS = 5  # of a long bootstrap list; each takes at most one connect timeout
_METADATA_FEATURE = "metadata.version"
_METADATA_VERSION = 9
_FEATURES_SINCE_VERSION = 3  # of ApiVersions
_ACLS_VERSION = 2
_CLUSTER, _LITERAL, _ANY = 4, 3, 1  # codes of Kafka's ResourceType, PatternType, AclOperation and AclPermissionType
_SECURITY_DISABLED = 54
# Highest metadata.version that a release supports (Kafka's MetadataVersion class): the newest release with that level.
_RELEASES: tuple[tuple[int, str], ...] = (
    (30, "4.3"),
    (28, "4.2"),
    (26, "4.1"),
    (22, "4.0"),
    (21, "3.9"),
    (20, "3.8"),
    (15, "3.7"),
    (12, "3.6"),
    (9, "3.5"),
    (8, "3.4"),
    (1, "3.3"),
)
# The order of error codes by how specific they are, for the case that every server fails differently.
_RANK = (
    ErrorCode.AUTHENTICATION_ERROR,
    ErrorCode.MISCONFIGURATION_ERROR,
    ErrorCode.TIMEOUT_ERROR,
    ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
    ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """Properties of a broker."""

    release: str  # such as "4.3", by the newest metadata.version it supports; "" if unknown
    authorizer: bool  # ACLs are enforced


def check_reachable(address: ClusterAddress) -> None:
    """Connect and authenticate once; raise LinkEngineError with the exact reason if no bootstrap server accepts the login.

    Also raise if a bootstrap server, or a broker that the cluster advertises, may not be connected to: the client that is
    created next (librdkafka, Spark's JVM) connects to all of them without a check.
    """
    with first_connection(address) as connection:
        # A listener that requires SASL responds to unauthenticated clients until their first real request.
        version = connection.version_for(MetadataRequest.API_KEY, highest=_METADATA_VERSION)
        brokers = connection.request(MetadataRequest(version=version, topics=[]), response=MetadataResponse, read=_listeners)
    given = [(host, port) for host, port, _ in parse_servers(address.bootstrap_servers)]
    check_names([*given, *brokers], address=address)


def _listeners(response: Any) -> list[tuple[str, int]]:
    return [(broker.host, broker.port) for broker in response.brokers]


def broker_facts(address: ClusterAddress) -> BrokerFacts:
    """Log in to a broker and return what librdkafka's admin calls do not report."""
    with first_connection(address) as connection:
        return BrokerFacts(release=_release(connection), authorizer=_has_authorizer(connection))


def _release(connection: Connection) -> str:
    request = ApiVersionsRequest(
        version=_FEATURES_SINCE_VERSION, client_software_name="linkengine", client_software_version="1"
    )
    return connection.request(request, response=ApiVersionsResponse, read=_read_release)


def _read_release(response: Any) -> str:
    levels = [feature.max_version for feature in response.supported_features or () if feature.name == _METADATA_FEATURE]
    return next((name for level, name in _RELEASES if levels and level <= levels[0]), "")


def _has_authorizer(connection: Connection) -> bool:
    """Return whether ACLs are enforced. A broker without an authorizer returns SECURITY_DISABLED, which librdkafka drops."""
    version = connection.version_for(DescribeAclsRequest.API_KEY, highest=_ACLS_VERSION, lowest=1)
    request = DescribeAclsRequest(
        version=version,
        resource_type_filter=_CLUSTER,
        resource_name_filter="kafka-cluster",
        pattern_type_filter=_LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    return connection.request(
        request, response=DescribeAclsResponse, read=lambda response: bool(response.error_code != _SECURITY_DISABLED)
    )


@contextmanager
def first_connection(address: ClusterAddress) -> Iterator[Connection]:
    """Yield an authenticated connection to the first bootstrap server that responds; close it afterwards."""
    failures: list[LinkEngineError] = []
    for host, port, _ in parse_servers(address.bootstrap_servers)[:MAX_SERVERS]:
        try:
            connection = connect(host, port, address=address)
        except NotPermittedError:
            raise
        except LinkEngineError as error:
            failures.append(error)
            continue
        try:
            yield connection
        finally:
            connection.close()
        return
    raise min(failures, key=_rank)


def _rank(error: LinkEngineError) -> int:
    return _RANK.index(error.code) if error.code in _RANK else len(_RANK)
