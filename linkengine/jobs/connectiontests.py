"""Test the connection to a cluster, and list what a source has. Nothing is written to the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import Any, TypeVar

from cryptography import x509
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from linkengine.domain.addresses import OAUTH, ClusterAddress, Server, parse_servers
from linkengine.domain.clusterviews import ACLS, GROUPS, MOST_CHARACTERS, MOST_LISTED, TOPICS, SourceListing
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.connectionchecks import (
    ClusterFacts,
    ConnectionAttempt,
    ConnectionCheck,
    ConnectionCheckCode,
    ConnectionRole,
    ConnectStep,
    cluster_checks,
    connection_checks,
    is_failed,
    rights_checks,
    unreadable_cluster,
)
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorability import ListedTopic
from linkengine.domain.plans import BrokerDistance
from linkengine.jobs.syncing import list_acls
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.connection import connect
from linkengine.kafka.preflight import MAX_SERVERS, broker_facts
from linkengine.kafka.security import NotPermittedError, check_names
from linkengine.kafka.views import measure_distances

_Row = TypeVar("_Row")


def check_connection(
    address: ClusterAddress, *, role: ConnectionRole, expected_cluster_id: str = "", other_cluster_id: str = ""
) -> list[ConnectionCheck]:
    """Return the checklist of a connection: name, TCP, TLS, login, cluster, version, brokers, and each right that is needed.

    A check that fails is a row of the result, not an exception. Takes a few seconds, up to about 20 s if brokers are silent.
    """
    attempts = try_servers(address)
    checks = connection_checks(
        attempts, uses_tls=address.uses_tls, uses_sasl=address.uses_sasl, security_protocol=address.security_protocol
    )
    facts: ClusterFacts | None = None
    distances: tuple[BrokerDistance, ...] | None = None
    if not is_failed(checks):
        try:
            facts = cluster_facts(address, attempts)
        except LinkEngineError as error:
            return [*checks, *unreadable_cluster(error), *rights_checks(None, role=role, principal="")]
        distances = _distances(address)
    checks += cluster_checks(facts, distances, expected_id=expected_cluster_id, other_id=other_cluster_id)
    mistaken = any(check.code is ConnectionCheckCode.CLUSTER_ID and is_failed([check]) for check in checks)
    return checks + rights_checks(None if mistaken else facts, role=role, principal=principal_of(address))


def principal_of(address: ClusterAddress) -> str:
    """Return the principal that brokers use by default, for the commands that grant rights; a placeholder if it is unknown."""
    if address.uses_sasl:
        return "<subject of the token>" if address.sasl_mechanism == OAUTH else address.sasl_username
    if not address.ssl_certificate_pem:
        return "ANONYMOUS"
    try:
        return x509.load_pem_x509_certificate(address.ssl_certificate_pem.encode()).subject.rfc4514_string()
    except ValueError:
        return "<subject of the client certificate>"


def _distances(address: ClusterAddress) -> tuple[BrokerDistance, ...] | None:
    try:
        return measure_distances(address)
    except LinkEngineError:
        return None


def list_source(address: ClusterAddress) -> SourceListing:
    """List topics, consumer groups and ACLs of a cluster. A list that may not be read is None, with the reason."""
    admin = ClusterAdmin(address)
    errors: dict[str, str] = {}
    topics = _tried(TOPICS, admin.topics, errors)
    found = _tried(GROUPS, admin.groups, errors)
    acls = _tried(ACLS, lambda: list_acls(admin), errors)
    if found is not None and found[1]:
        errors[GROUPS] = found[1]
    names = None
    if topics is not None:
        names = [
            ListedTopic(name=topic.name, internal=topic.internal, is_mirror=has_mirror_configs(topic.configs))
            for topic in topics
        ]
    groups = None if found is None else sorted(found[0].values(), key=lambda group: group.name)
    cut: list[str] = []
    return SourceListing(
        topics=_first(TOPICS, names, lambda topic: topic.name, cut),
        groups=_first(GROUPS, groups, lambda group: group.name, cut),
        acls=_first(ACLS, None if acls is None else sorted(acls), str, cut),
        errors=errors,
        cut=tuple(cut),
    )


def _tried(kind: str, read: Callable[[], _Row], errors: dict[str, str]) -> _Row | None:
    try:
        return read()
    except LinkEngineError as error:
        errors[kind] = error.message
        return None


def _first(kind: str, rows: Sequence[_Row] | None, text: Callable[[_Row], str], cut: list[str]) -> tuple[_Row, ...] | None:
    """Return the rows that a listing may have; add its name to ``cut`` if there are more. Names of groups may be huge."""
    if rows is None:
        return None
    kept, characters = 0, 0
    for row in rows[:MOST_LISTED]:
        characters += len(text(row))
        if characters > MOST_CHARACTERS:
            break
        kept += 1
    if kept < len(rows):
        cut.append(kind)
    return tuple(rows[:kept])


# --- steps and facts -----------------------------------------------------------------------------------------------------
# How far connections to the bootstrap servers get, and what the cluster reports about itself and the principal. Names and
# addresses are checked against the permitted networks before the first connection: if any of the bootstrap servers is not
# permitted, none is connected to.


GROUPS_SAMPLED = 50  # whose committed offsets are read; a request has at most 100
_METADATA_VERSION = 9  # the rights on topics and on the cluster are in versions 8 to 10
_METADATA_LOWEST = 8
_FETCH_BY_ID = 13  # since Kafka 3.1
# Codes of Kafka's AclOperation.
_OPERATIONS = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}


def try_servers(address: ClusterAddress) -> list[ConnectionAttempt]:
    """Connect to the first bootstrap servers at the same time, log in, and return how far each attempt got."""
    servers = parse_servers(address.bootstrap_servers)[:MAX_SERVERS]
    try:
        check_names([(server.host, server.port) for server in servers], address=address)
    except NotPermittedError as error:
        return [ConnectionAttempt(server="", error_code=error.code, message=error.message)]
    with ThreadPoolExecutor(MAX_SERVERS, thread_name_prefix="test-connection") as threads:
        return list(threads.map(lambda server: _attempt(server, address), servers))


def _attempt(server: Server, address: ClusterAddress) -> ConnectionAttempt:
    passed: list[ConnectStep] = []
    try:
        connect(server.host, server.port, address=address, passed=passed.append).close()
    except LinkEngineError as error:
        return ConnectionAttempt(server=str(server), passed=tuple(passed), error_code=error.code, message=error.message)
    return ConnectionAttempt(server=str(server), passed=tuple(passed))


def cluster_facts(address: ClusterAddress, found: Sequence[ConnectionAttempt]) -> ClusterFacts:
    """Return what the cluster reports, over a server whose attempt succeeded; raise LinkEngineError if it cannot be read."""
    server = next(attempt.server for attempt in found if attempt.error_code is None)
    (place,) = parse_servers(server)
    with closing(connect(place.host, place.port, address=address)) as connection:
        is_supported = connection.supports(FetchRequest.API_KEY, _FETCH_BY_ID)
        version = connection.version_for(MetadataRequest.API_KEY, highest=_METADATA_VERSION, lowest=_METADATA_LOWEST)
        cluster_id, rights, topics = connection.request(_metadata(version), response=MetadataResponse, read=_read)
    facts = broker_facts(address)
    groups, unreadable, groups_error = _groups(address)
    return ClusterFacts(
        cluster_id=cluster_id,
        release=facts.release,
        is_supported=is_supported,
        authorizer=facts.authorizer,
        rights=rights,
        topics=topics,
        groups=groups,
        unreadable_groups=unreadable,
        groups_error=groups_error,
    )


def _metadata(version: int) -> MetadataRequest:
    return MetadataRequest(
        version=version,
        topics=None,  # all that the principal may describe
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


def _read(response: Any) -> tuple[str, frozenset[str] | None, dict[str, frozenset[str] | None]]:
    topics = {
        topic.name: _names(topic.authorized_operations)
        for topic in response.topics
        if topic.name and not topic.error_code and not topic.is_internal
    }
    return response.cluster_id or "", _names(response.authorized_operations), topics


def _names(codes: Any) -> frozenset[str] | None:
    """Return the names of operations; None if the broker does not report them (only the highest bit is set)."""
    if codes is None or set(codes) == {31}:
        return None
    return frozenset(_OPERATIONS[code] for code in codes if code in _OPERATIONS)


def _groups(address: ClusterAddress) -> tuple[int | None, tuple[str, ...], str]:
    """Return the number of visible groups, those of a sample whose offsets may not be read, and why the list is incomplete."""
    admin = ClusterAdmin(address)
    try:
        groups, incomplete = admin.groups()
        sample = list(islice(sorted(groups), GROUPS_SAMPLED))
        errors = admin.committed(sample)[1] if sample else {}
    except LinkEngineError as error:
        return None, (), error.message
    refused = tuple(name for name, error in errors.items() if error.code is ErrorCode.AUTHORIZATION_ERROR)
    return len(groups), refused, incomplete
