"""Test a connection step by step, and collect what the cluster reports about itself and the principal. Blocking.

Nothing is written. Names and addresses are checked against the permitted networks before the first connection: if any of the
bootstrap servers is not permitted, none is connected to.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import Any

from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from linkengine.domain.addresses import ClusterAddress, Server, parse_servers
from linkengine.domain.connectionchecks import Attempt, ClusterFacts, ConnectStep
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.connection import connect
from linkengine.kafka.preflight import MAX_SERVERS, broker_facts
from linkengine.kafka.security import NotPermittedError, check_names

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


def attempts(address: ClusterAddress) -> list[Attempt]:
    """Connect to the first bootstrap servers at the same time, log in, and return how far each attempt got."""
    servers = parse_servers(address.bootstrap_servers)[:MAX_SERVERS]
    try:
        check_names([(server.host, server.port) for server in servers], address=address)
    except NotPermittedError as error:
        return [Attempt(server="", error_code=error.code, message=error.message)]
    with ThreadPoolExecutor(MAX_SERVERS, thread_name_prefix="test-connection") as threads:
        return list(threads.map(lambda server: _attempt(server, address), servers))


def _attempt(server: Server, address: ClusterAddress) -> Attempt:
    passed: list[ConnectStep] = []
    try:
        connect(server.host, server.port, address=address, passed=passed.append).close()
    except LinkEngineError as error:
        return Attempt(server=str(server), passed=tuple(passed), error_code=error.code, message=error.message)
    return Attempt(server=str(server), passed=tuple(passed))


def cluster_facts(address: ClusterAddress, found: Sequence[Attempt]) -> ClusterFacts:
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
