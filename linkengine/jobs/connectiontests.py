"""Test the connection to a cluster, and list what a source has. Nothing is written to the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cryptography import x509

from linkengine.domain.addresses import OAUTH, ClusterAddress
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.connectionchecks import (
    ClusterFacts,
    ConnectionCheck,
    ConnectionCheckCode,
    ConnectionRole,
    cluster_checks,
    connection_checks,
    is_failed,
    rights_checks,
    unreadable_cluster,
)
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorability import Topic
from linkengine.domain.plans import BrokerDistance
from linkengine.domain.sourcelistings import ACLS, GROUPS, MOST_CHARACTERS, MOST_LISTED, TOPICS, SourceListing
from linkengine.jobs.syncing import list_acls
from linkengine.kafka import connection_facts
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.brokers import measure_distances

_Row = TypeVar("_Row")


def check_connection(
    address: ClusterAddress, *, role: ConnectionRole, expected_cluster_id: str = "", other_cluster_id: str = ""
) -> list[ConnectionCheck]:
    """Return the checklist of a connection: name, TCP, TLS, login, cluster, version, brokers, and each right that is needed.

    A check that fails is a row of the result, not an exception. Takes a few seconds, up to about 20 s if brokers are silent.
    """
    attempts = connection_facts.attempts(address)
    checks = connection_checks(
        attempts, uses_tls=address.uses_tls, uses_sasl=address.uses_sasl, security_protocol=address.security_protocol
    )
    facts: ClusterFacts | None = None
    distances: tuple[BrokerDistance, ...] | None = None
    if not is_failed(checks):
        try:
            facts = connection_facts.cluster_facts(address, attempts)
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
            Topic(name=topic.name, internal=topic.internal, is_mirror=has_mirror_configs(topic.configs)) for topic in topics
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
