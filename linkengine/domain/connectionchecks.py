"""The checklist of a connection test: each check, its finding, and how to fix a failure. Pure functions.

``linkengine.jobs.connectiontests`` collects the facts; this module turns them into checks in a fixed order. The first failed
check of the connection ends it, and the checks after it are not tested. A check reveals no more about a server than the
engine's own errors: an address outside the permitted networks has the same message whether or not a host is there (ADR 32), and
no IP address to which a name resolves is shown.

The rights of the principal are those that the brokers report for it (KIP-430), after DENY rules. A right that only a part of
the features needs is a warning, not a failure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import BrokerDistance

NAMES_SHOWN = 5
OLDEST = "3.1"


class ConnectStep(StrEnum):
    """The steps of a connection to a broker, in this order. The first step includes the lookup of the name."""

    TCP = "TCP"
    TLS = "TLS"
    PROTOCOL = "PROTOCOL"
    AUTHENTICATION = "AUTHENTICATION"


class ConnectionRole(StrEnum):
    """Role of the cluster in a link; it decides which rights are tested."""

    SOURCE = "SOURCE"
    DESTINATION = "DESTINATION"
    ANY = "ANY"  # a cluster that is registered, and may become both


class CheckStatus(StrEnum):
    """The result of a check."""

    PASSED = "PASSED"
    WARNING = "WARNING"  # a link works, but not with every feature
    FAILED = "FAILED"
    NOT_TESTED = "NOT_TESTED"  # not needed, or an earlier check failed


class ConnectionCheckCode(StrEnum):
    """The checks, in this order."""

    DNS = "DNS"
    TCP = "TCP"
    TLS = "TLS"
    PROTOCOL = "PROTOCOL"
    AUTHENTICATION = "AUTHENTICATION"
    CLUSTER_ID = "CLUSTER_ID"
    VERSION = "VERSION"
    BROKERS = "BROKERS"
    DESCRIBE_TOPICS = "DESCRIBE_TOPICS"
    READ_TOPICS = "READ_TOPICS"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    READ_GROUPS = "READ_GROUPS"
    DESCRIBE_CLUSTER = "DESCRIBE_CLUSTER"
    AUTHORIZER = "AUTHORIZER"
    CREATE_TOPICS = "CREATE_TOPICS"
    ALTER_CLUSTER = "ALTER_CLUSTER"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionCheck:
    """A row of the checklist. ``fix`` is empty if nothing has to be done; ``error_code`` is that of the engine's error."""

    code: ConnectionCheckCode
    status: CheckStatus
    finding: str
    fix: str = ""
    error_code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionAttempt:
    """A connection attempt to a bootstrap server: the steps that it passed, and the error that ended it."""

    server: str
    passed: tuple[ConnectStep, ...] = ()
    error_code: ErrorCode | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Facts that a cluster reports over an authenticated connection. Unknown is None."""

    cluster_id: str
    release: str  # "" if the brokers do not report it
    is_supported: bool  # the brokers support every API version that is needed
    authorizer: bool
    rights: frozenset[str] | None = None  # on the cluster, such as DESCRIBE
    topics: Mapping[str, frozenset[str] | None] = field(default_factory=dict)  # rights by topic, without internal topics
    groups: int | None = None  # number of consumer groups that the principal may see
    unreadable_groups: tuple[str, ...] = ()  # of a sample: their committed offsets may not be read
    groups_error: str = ""  # why the groups are unknown, or their list incomplete


def connection_checks(
    attempts: Sequence[ConnectionAttempt], *, uses_tls: bool, uses_sasl: bool, security_protocol: str
) -> list[ConnectionCheck]:
    """Return the checks from the name to the login; ``attempts`` has one for each bootstrap server."""
    used = {
        ConnectionCheckCode.TLS: "" if uses_tls else f"Not used with {security_protocol}: nothing is encrypted.",
        ConnectionCheckCode.AUTHENTICATION: "" if uses_sasl else f"Not used with {security_protocol}.",
    }
    checks: list[ConnectionCheck] = []
    for code in _CONNECTION:
        if is_failed(checks):
            checks.append(_not_tested(code))
        elif used.get(code):
            checks.append(ConnectionCheck(code=code, status=CheckStatus.NOT_TESTED, finding=used[code]))
        else:
            checks.append(_server_check(code, attempts))
    return checks


def cluster_checks(
    facts: ClusterFacts | None, distances: Sequence[BrokerDistance] | None, *, expected_id: str = "", other_id: str = ""
) -> list[ConnectionCheck]:
    """Return the checks of id, version and brokers. Without ``facts`` nothing was tested, since the connection failed.

    ``expected_id`` is the id that was entered, ``other_id`` that of the other cluster of the link.
    """
    if facts is None:
        return [_not_tested(code) for code in _CLUSTER]
    return [_cluster_id(facts.cluster_id, expected_id, other_id), _version(facts), _brokers(distances)]


def unreadable_cluster(error: LinkEngineError) -> list[ConnectionCheck]:
    """Return the checks of a cluster that accepts the login, but whose metadata cannot be read."""
    first, *others = _CLUSTER
    fix = "Test the connection again. If that fails too, check the load and the release of the brokers."
    failed = ConnectionCheck(code=first, status=CheckStatus.FAILED, finding=error.message, fix=fix, error_code=error.code)
    return [failed, *(_not_tested(code) for code in others)]


def rights_checks(facts: ClusterFacts | None, *, role: ConnectionRole, principal: str) -> list[ConnectionCheck]:
    """Return a check for each right that a link needs on a cluster in this role."""
    codes = _RIGHTS[role]
    if facts is None:
        return [_not_tested(code) for code in codes]
    if not facts.authorizer:
        return [_without_authorizer(code) for code in codes]
    return [_right(code, facts, principal=principal) for code in codes]


def is_failed(checks: Iterable[ConnectionCheck]) -> bool:
    """Return whether a check has failed."""
    return any(check.status is CheckStatus.FAILED for check in checks)


def checks_from_json(rows: Iterable[Mapping[str, str]]) -> tuple[ConnectionCheck, ...]:
    """Return the checks that a worker replied with, or that were stored."""
    return tuple(
        ConnectionCheck(
            code=ConnectionCheckCode(row["code"]),
            status=CheckStatus(row["status"]),
            finding=row["finding"],
            fix=row["fix"],
            error_code=row["error_code"],
        )
        for row in rows
    )


_CONNECTION = (
    ConnectionCheckCode.DNS,
    ConnectionCheckCode.TCP,
    ConnectionCheckCode.TLS,
    ConnectionCheckCode.PROTOCOL,
    ConnectionCheckCode.AUTHENTICATION,
)
_CLUSTER = (ConnectionCheckCode.CLUSTER_ID, ConnectionCheckCode.VERSION, ConnectionCheckCode.BROKERS)
_SOURCE_RIGHTS = (
    ConnectionCheckCode.DESCRIBE_TOPICS,
    ConnectionCheckCode.READ_TOPICS,
    ConnectionCheckCode.DESCRIBE_CONFIGS,
    ConnectionCheckCode.READ_GROUPS,
    ConnectionCheckCode.DESCRIBE_CLUSTER,
)
_DESTINATION_RIGHTS = (
    ConnectionCheckCode.AUTHORIZER,
    ConnectionCheckCode.CREATE_TOPICS,
    ConnectionCheckCode.ALTER_CLUSTER,
    ConnectionCheckCode.DESCRIBE_CLUSTER,
)
_RIGHTS = {
    ConnectionRole.SOURCE: _SOURCE_RIGHTS,
    ConnectionRole.DESTINATION: _DESTINATION_RIGHTS,
    ConnectionRole.ANY: tuple(dict.fromkeys((*_SOURCE_RIGHTS, *_DESTINATION_RIGHTS))),
}
# The order of errors by how specific they are, for servers that fail differently in the same step.
_RANK = (ErrorCode.AUTHENTICATION_ERROR, ErrorCode.MISCONFIGURATION_ERROR, ErrorCode.TIMEOUT_ERROR)
_DONE = {
    ConnectionCheckCode.DNS: "The names resolve, and the addresses are in permitted networks.",
    ConnectionCheckCode.TCP: "The servers accept connections.",
    ConnectionCheckCode.TLS: "The certificates are trusted and valid for the names of the servers.",
    ConnectionCheckCode.PROTOCOL: "The servers respond as Kafka brokers.",
    ConnectionCheckCode.AUTHENTICATION: "The brokers accept the login.",
}
_FIXES = {
    ConnectionCheckCode.DNS: "Correct the host name, or use an address that the worker can resolve and may connect to.",
    ConnectionCheckCode.TCP: "Check the port, the firewall between worker and brokers, and that the brokers are running.",
    ConnectionCheckCode.TLS: "Check that the port is a TLS listener. Enter the CA certificate that signed the brokers' "
    "certificates, and use the host names in them. If the brokers require client certificates, enter certificate and key.",
    ConnectionCheckCode.PROTOCOL: "Check that the port is a listener of Kafka, and choose its security protocol.",
    ConnectionCheckCode.AUTHENTICATION: "Enter user name and password again, and choose the mechanism that the listener "
    "offers. With OAUTHBEARER, check the token endpoint, client ID and secret.",
}
_ALL_TOPICS, _ALL_GROUPS = ("--topic", "*"), ("--group", "*")


def _not_tested(code: ConnectionCheckCode) -> ConnectionCheck:
    finding = "Not tested, because an earlier check failed."
    return ConnectionCheck(code=code, status=CheckStatus.NOT_TESTED, finding=finding)


def _server_check(code: ConnectionCheckCode, attempts: Sequence[ConnectionAttempt]) -> ConnectionCheck:
    reached = [attempt for attempt in attempts if _stage(attempt) >= _CONNECTION.index(code)]
    failed = sorted((attempt for attempt in reached if _fails_at(attempt, code)), key=_rank)
    if not failed:
        return ConnectionCheck(code=code, status=CheckStatus.PASSED, finding=_DONE[code])
    finding, error = failed[0].message, failed[0].error_code or ""
    if len(failed) < len(reached):
        finding = f"{len(failed)} of {len(attempts)} bootstrap servers: {finding} The others are used."
        return ConnectionCheck(code=code, status=CheckStatus.WARNING, finding=finding, fix=_FIXES[code], error_code=error)
    return ConnectionCheck(code=code, status=CheckStatus.FAILED, finding=finding, fix=_FIXES[code], error_code=error)


def _stage(attempt: ConnectionAttempt) -> int:
    """Return the index in ``_CONNECTION`` of the check at which the attempt failed; the number of checks if it did not."""
    if attempt.error_code is None:
        return len(_CONNECTION)
    if not attempt.passed:  # a misconfiguration before the connection is an address that is not permitted
        unresolved = attempt.error_code in (ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, ErrorCode.MISCONFIGURATION_ERROR)
        return _CONNECTION.index(ConnectionCheckCode.DNS if unresolved else ConnectionCheckCode.TCP)
    steps = [step for step in ConnectStep if step not in attempt.passed]
    return _CONNECTION.index(ConnectionCheckCode(steps[0])) if steps else len(_CONNECTION)


def _fails_at(attempt: ConnectionAttempt, code: ConnectionCheckCode) -> bool:
    return _stage(attempt) == _CONNECTION.index(code)


def _rank(attempt: ConnectionAttempt) -> int:
    return _RANK.index(attempt.error_code) if attempt.error_code in _RANK else len(_RANK)


def _cluster_id(found: str, expected: str, other: str) -> ConnectionCheck:
    code = ConnectionCheckCode.CLUSTER_ID
    if expected and found != expected:
        finding = f"The brokers belong to cluster {found}, but {expected} was expected."
        fix = "Correct the bootstrap servers, or enter the ID of the cluster at that address."
        error = ErrorCode.CLUSTER_ID_MISMATCH
        return ConnectionCheck(code=code, status=CheckStatus.FAILED, finding=finding, fix=fix, error_code=error)
    if other and found == other:
        finding = f"The brokers belong to cluster {found}, which is the other cluster of the link as well."
        fix = "Enter the bootstrap servers of another cluster: a link needs two."
        error = ErrorCode.MISCONFIGURATION_ERROR
        return ConnectionCheck(code=code, status=CheckStatus.FAILED, finding=finding, fix=fix, error_code=error)
    return ConnectionCheck(code=code, status=CheckStatus.PASSED, finding=f"Cluster ID {found}.")


def _version(facts: ClusterFacts) -> ConnectionCheck:
    code = ConnectionCheckCode.VERSION
    if not facts.is_supported:
        finding, fix = f"The brokers are older than Kafka {OLDEST}.", f"Upgrade the brokers to Kafka {OLDEST} or newer."
        error = ErrorCode.UNSUPPORTED_VERSION_ERROR
        return ConnectionCheck(code=code, status=CheckStatus.FAILED, finding=finding, fix=fix, error_code=error)
    release = facts.release or f"{OLDEST} or newer; the brokers do not report the exact release"
    return ConnectionCheck(code=code, status=CheckStatus.PASSED, finding=f"Kafka {release}.")


def _brokers(distances: Sequence[BrokerDistance] | None) -> ConnectionCheck:
    """Check the brokers that the cluster advertises: records are read from these, not from the bootstrap servers."""
    code = ConnectionCheckCode.BROKERS
    if distances is None:
        finding = "The addresses that the brokers advertise could not be read."
        return ConnectionCheck(code=code, status=CheckStatus.WARNING, finding=finding, fix="Test the connection again.")
    failed = [distance for distance in distances if distance.error]
    if failed:
        many = f"{len(failed)} of {len(distances)} brokers"
        finding = f"{many} cannot be reached at the addresses that they advertise. {failed[0].error}"
        fix = "Correct advertised.listeners of the brokers, or make these addresses reachable for the worker."
        return ConnectionCheck(code=code, status=CheckStatus.FAILED, finding=finding, fix=fix)
    times = [distance.round_trip_ms for distance in distances if distance.round_trip_ms is not None]
    shortest_and_longest = dict.fromkeys((f"{min(times):,.1f}", f"{max(times):,.1f}")) if times else ()  # once if equal
    trip = f", round trip {' to '.join(shortest_and_longest)} ms" if times else ""
    noun = "broker" if len(distances) == 1 else "brokers"
    return ConnectionCheck(code=code, status=CheckStatus.PASSED, finding=f"{len(distances)} {noun} reachable{trip}.")


def _without_authorizer(code: ConnectionCheckCode) -> ConnectionCheck:
    if code is ConnectionCheckCode.AUTHORIZER:
        finding = "The cluster has no authorizer, so writes to mirror topics cannot be denied."
        fix = "Set authorizer.class.name on the brokers, or make sure that no producer writes to mirror topics."
        return ConnectionCheck(code=code, status=CheckStatus.WARNING, finding=finding, fix=fix)
    finding = "Everything is allowed: the cluster has no authorizer."
    return ConnectionCheck(code=code, status=CheckStatus.PASSED, finding=finding)


def _right(code: ConnectionCheckCode, facts: ClusterFacts, *, principal: str) -> ConnectionCheck:
    if code is ConnectionCheckCode.AUTHORIZER:
        finding = "The cluster has an authorizer: mirror topics can be made read-only."
        return ConnectionCheck(code=code, status=CheckStatus.PASSED, finding=finding)
    if code is ConnectionCheckCode.DESCRIBE_TOPICS:
        return _visible_topics(facts, principal)
    if code in _TOPIC_RIGHTS:
        return _topic_right(code, facts, principal)
    if code is ConnectionCheckCode.READ_GROUPS:
        return _groups(facts, principal)
    return _cluster_right(code, facts, principal)


def _visible_topics(facts: ClusterFacts, principal: str) -> ConnectionCheck:
    code, count = ConnectionCheckCode.DESCRIBE_TOPICS, len(facts.topics)
    if count:
        return ConnectionCheck(code=code, status=CheckStatus.PASSED, finding=f"{_plural(count, 'topic')} visible.")
    finding = "No topic is visible. The cluster has none, or the principal may not describe any."
    fix = acl_command(principal, "Describe", _ALL_TOPICS)
    return ConnectionCheck(code=code, status=CheckStatus.WARNING, finding=finding, fix=fix)


# operation in Kafka's words, operation of kafka-acls, and the use that a topic without the right does not have
_TOPIC_RIGHTS = {
    ConnectionCheckCode.READ_TOPICS: ("READ", "Read", "cannot be mirrored"),
    ConnectionCheckCode.DESCRIBE_CONFIGS: ("DESCRIBE_CONFIGS", "DescribeConfigs", "cannot be mirrored with their configs"),
}
# the same for rights on the cluster
_CLUSTER_RIGHTS = {
    ConnectionCheckCode.DESCRIBE_CLUSTER: (
        "DESCRIBE",
        "Describe",
        "Without it ACLs cannot be read, and only consumer groups that an ACL names are visible.",
    ),
    ConnectionCheckCode.CREATE_TOPICS: (
        "CREATE",
        "Create",
        "Without it mirror topics are created only where an ACL on the topic's name allows it.",
    ),
    ConnectionCheckCode.ALTER_CLUSTER: (
        "ALTER",
        "Alter",
        "Without it mirror topics cannot be made read-only and ACLs cannot be synced, and gaps are filled by transactions.",
    ),
}


def _topic_right(code: ConnectionCheckCode, facts: ClusterFacts, principal: str) -> ConnectionCheck:
    right, operation, consequence = _TOPIC_RIGHTS[code]
    if not facts.topics:
        return ConnectionCheck(code=code, status=CheckStatus.NOT_TESTED, finding="Not tested, because no topic is visible.")
    unknown = [name for name, rights in facts.topics.items() if rights is None]
    if unknown:
        finding = f"Unknown for {_plural(len(unknown), 'topic')}: the brokers do not report the rights on them."
        return ConnectionCheck(code=code, status=CheckStatus.WARNING, finding=finding)
    missing = sorted(name for name, rights in facts.topics.items() if right not in (rights or ()))
    if not missing:
        return ConnectionCheck(code=code, status=CheckStatus.PASSED, finding=f"{right} on all visible topics.")
    status = CheckStatus.FAILED if len(missing) == len(facts.topics) else CheckStatus.WARNING
    finding = (
        f"No {right} on {len(missing):,} of {_plural(len(facts.topics), 'topic')}, which {consequence}: {_listed(missing)}."
    )
    fix = acl_command(principal, operation, ("--topic", missing[0]) if len(missing) == 1 else _ALL_TOPICS)
    error = ErrorCode.AUTHORIZATION_ERROR
    return ConnectionCheck(code=code, status=status, finding=finding, fix=fix, error_code=error)


def _groups(facts: ClusterFacts, principal: str) -> ConnectionCheck:
    code = ConnectionCheckCode.READ_GROUPS
    fix = acl_command(principal, "Describe", _ALL_GROUPS)
    if facts.groups is None or facts.groups_error:
        known = (
            "The consumer groups are unknown" if facts.groups is None else f"At least {_plural(facts.groups, 'consumer group')}"
        )
        finding = f"{known}: {facts.groups_error} Needed for consumer offset sync."
        return ConnectionCheck(code=code, status=CheckStatus.WARNING, finding=finding, fix=fix)
    if facts.unreadable_groups:
        finding = (
            f"The committed offsets of {_plural(len(facts.unreadable_groups), 'consumer group')} may not be read: "
            f"{_listed(facts.unreadable_groups)}. Needed for consumer offset sync."
        )
        error = ErrorCode.AUTHORIZATION_ERROR
        return ConnectionCheck(code=code, status=CheckStatus.WARNING, finding=finding, fix=fix, error_code=error)
    if not facts.groups:
        finding = "No consumer group is visible. The cluster has none, or the principal may not describe any."
        return ConnectionCheck(code=code, status=CheckStatus.WARNING, finding=finding, fix=fix)
    finding = f"{_plural(facts.groups, 'consumer group')} visible."
    return ConnectionCheck(code=code, status=CheckStatus.PASSED, finding=finding)


def _cluster_right(code: ConnectionCheckCode, facts: ClusterFacts, principal: str) -> ConnectionCheck:
    right, operation, consequence = _CLUSTER_RIGHTS[code]
    if facts.rights is None:
        finding = f"Unknown: the brokers do not report the rights on the cluster. {consequence}"
        return ConnectionCheck(code=code, status=CheckStatus.WARNING, finding=finding)
    if right in facts.rights:
        return ConnectionCheck(code=code, status=CheckStatus.PASSED, finding=f"{right} on the cluster.")
    finding, fix = f"No {right} on the cluster. {consequence}", acl_command(principal, operation, ("--cluster",))
    error = ErrorCode.AUTHORIZATION_ERROR
    return ConnectionCheck(code=code, status=CheckStatus.WARNING, finding=finding, fix=fix, error_code=error)


def acl_command(principal: str, operation: str, resource: Sequence[str]) -> str:
    """Return the command of Kafka's own tool that grants an operation to a principal."""
    words = ["--allow-principal", f"User:{principal}", "--operation", operation, *resource]
    return f"Run kafka-acls.sh --bootstrap-server … --add {shlex.join(words)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
