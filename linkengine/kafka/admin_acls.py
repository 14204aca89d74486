"""ACLs of a cluster: the two that guard a mirror topic, and all others. Functions over an AdminSession.

A mirror topic is guarded by DENY WRITE while it mirrors, and by DENY READ while its head is seeded. Both are literal rules for
``User:*`` and every host. In Kafka, DENY overrides every ALLOW but does not apply to super users, so the link's own principal
must be a super user. Creating an existing rule and deleting a missing rule both succeed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse

from linkengine.domain.acls import Acl
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import AclRule
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession, kafka_error
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.preflight import first_connection

# --- guards, and reading all ACLs ----------------------------------------------------------------------------------------
# librdkafka returns a refused DescribeAcls as an empty list. If that list were taken as true, a source that no longer lets the
# link's principal see its ACLs would appear to have none, and all synced ACLs would be removed from the destination. So an
# empty list counts only after the broker has confirmed it.


_ANY_USER = "User:*"
_ANY_HOST = "*"
_ALL: Any = None  # the client's value for "any name", in spite of its type hints
_ALL_ACLS = AclBindingFilter(
    ResourceType.ANY, _ALL, ResourcePatternType.ANY, _ALL, _ALL, AclOperation.ANY, AclPermissionType.ANY
)
_Wire = TypeVar("_Wire", AclBinding, AclBindingFilter)
_PER_REQUEST = 500
AGREE_S, AGREE_POLL_S = 5.0, 0.05  # brokers apply an ACL change at different times, within a fraction of a second
_VERSIONS = (1, 2)


def deny(session: AdminSession, topic: str, operation: AclOperation) -> None:
    """Deny the operation on the topic to all principals except super users. Idempotent."""
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        _ANY_USER,
        _ANY_HOST,
        operation,
        AclPermissionType.DENY,
    )
    what = f"deny {operation.name} on topic {topic!r}"
    session.all(lambda client: client.create_acls([binding], request_timeout=REQUEST_TIMEOUT_S), what=what)


def allow(session: AdminSession, topics: Sequence[str], operation: AclOperation) -> dict[str, LinkEngineError]:
    """Delete the rule of ``deny`` from topics; other rules stay. Return refusals by topic.

    Idempotent, also without an authorizer.
    """
    refused: dict[str, LinkEngineError] = {}
    for first in range(0, len(topics), _PER_REQUEST):
        rules = [_filter(topic, operation) for topic in topics[first : first + _PER_REQUEST]]
        _, failures = session.settle(partial(_delete, rules), what=f"remove DENY {operation.name} on {len(rules)} topics")
        for rule, error in failures.items():
            if error.code() != KafkaError.SECURITY_DISABLED:
                refused[rule.name] = kafka_error(error, what=f"remove DENY {operation.name} on topic {rule.name!r}")
    return refused


def _delete(rules: list[AclBindingFilter], client: AdminClient) -> dict[AclBindingFilter, Future[Any]]:
    return client.delete_acls(rules, request_timeout=REQUEST_TIMEOUT_S)


def denied_topics(session: AdminSession, topics: Sequence[str], operation: AclOperation) -> frozenset[str]:
    """Return those of the topics that have the rule of ``deny``; none without an authorizer."""
    if not topics:
        return frozenset()
    rules = session.call(
        lambda client: client.describe_acls(
            _filter(topics[0] if len(topics) == 1 else None, operation), request_timeout=REQUEST_TIMEOUT_S
        ),
        what=f"list the topics on which {operation.name} is denied",
    )
    return frozenset(rule.name for rule in rules) & frozenset(topics)


def denies(session: AdminSession, topic: str, operation: AclOperation) -> bool:
    """Return whether the rule of ``deny`` exists; False without an authorizer."""
    rule = _filter(topic, operation)
    return bool(
        session.call(
            lambda client: client.describe_acls(rule, request_timeout=REQUEST_TIMEOUT_S),
            what=f"read the ACLs of topic {topic!r}",
        )
    )


def is_absent(session: AdminSession, topic: str, operation: AclOperation) -> bool:
    """Return True if the rule of ``deny`` certainly does not exist; False if ACLs may not be read."""
    try:
        return not describe_bindings(session, _filter(topic, operation), what=f"read the ACLs of topic {topic!r}")
    except LinkEngineError:
        return False


def _filter(topic: str | None, operation: AclOperation) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.TOPIC,
        topic,  # type: ignore[arg-type]  # None means any topic; the client's type hints leave that out
        ResourcePatternType.LITERAL,
        _ANY_USER,
        _ANY_HOST,
        operation,
        AclPermissionType.DENY,
    )


def describe(session: AdminSession) -> set[Acl]:
    """Return every ACL of the cluster; raise AUTHORIZATION_ERROR without DESCRIBE on the cluster."""
    return {_acl(binding) for binding in describe_bindings(session, _ALL_ACLS, what="read the ACLs of the cluster")}


def describe_bindings(session: AdminSession, rule: AclBindingFilter, *, what: str) -> list[AclBinding]:
    """Return the ACLs that a filter matches; raise if the principal may not read them.

    An ACL may be created, or the right to read ACLs granted, between the two requests (``is_empty``): both are then repeated.
    """
    deadline = time.monotonic() + AGREE_S
    while True:
        found: list[AclBinding] = session.call(
            lambda client: client.describe_acls(rule, request_timeout=REQUEST_TIMEOUT_S), what=what
        )
        if found or is_empty(session.address, rule, what=what):
            return found
        if time.monotonic() > deadline:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, f"Failed to {what}: brokers contradict each other. Try again.")
        time.sleep(AGREE_POLL_S)


def create(session: AdminSession, acls: Sequence[Acl]) -> dict[Acl, LinkEngineError]:
    """Create ACLs, including existing ACLs; return the refusals."""
    wire = {_binding(AclBinding, acl): acl for acl in acls}
    if not wire:
        return {}
    _, failures = session.settle(
        lambda client: client.create_acls(list(wire), request_timeout=REQUEST_TIMEOUT_S), what="create ACLs"
    )
    return {wire[binding]: kafka_error(error, what=f"create the ACL {wire[binding]}") for binding, error in failures.items()}


def delete(session: AdminSession, acls: Sequence[Acl]) -> dict[Acl, LinkEngineError]:
    """Delete exactly these ACLs, including missing ACLs; return the refusals."""
    wire = {_binding(AclBindingFilter, acl): acl for acl in acls}
    if not wire:
        return {}
    _, failures = session.settle(
        lambda client: client.delete_acls(list(wire), request_timeout=REQUEST_TIMEOUT_S), what="delete ACLs"
    )
    return {wire[rule]: kafka_error(error, what=f"delete the ACL {wire[rule]}") for rule, error in failures.items()}


def describe_by_broker(address: ClusterAddress) -> list[set[Acl]]:
    """Return the ACLs that each broker shows; raise LinkEngineError if a broker refuses, or if a silent broker may have others.

    A broker that was cut off from the controllers shows old ACLs for as long as it is cut off.
    """
    with closing(Cluster(address)) as cluster:
        cluster.survey().check_complete("ACLs have been changed")
        responses = [cluster.call(broker, _all_acls, response=DescribeAclsResponse, read=_read) for broker in cluster.brokers()]
    refused = next((error_code for error_code, _ in responses if error_code), 0)
    if refused:
        raise kafka_error(KafkaError(refused), what="read the ACLs of the cluster")
    return [set(acls) for _, acls in responses]


def _all_acls(connection: Connection) -> Any:
    lowest, highest = _VERSIONS
    version = connection.version_for(DescribeAclsRequest.API_KEY, highest=highest, lowest=lowest)
    return _describe_request(_ALL_ACLS, version=version)


def _read(response: Any) -> tuple[int, list[Acl]]:
    return response.error_code, [
        Acl(
            resource_type="CLUSTER"
            if resource.resource_type == ResourceType.BROKER.value
            else _name(ResourceType, resource.resource_type),
            resource_name=resource.resource_name,
            pattern_type=_name(ResourcePatternType, resource.pattern_type),
            principal=acl.principal,
            host=acl.host,
            operation=_name(AclOperation, acl.operation),
            permission=_name(AclPermissionType, acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    ]


def _name(kind: Any, number: int) -> str:
    """Return librdkafka's name of a number; it lacks some of Kafka's."""
    return str(kind(number).name) if number in [member.value for member in kind] else "UNKNOWN"


def _acl(binding: Any) -> Acl:
    return Acl(
        resource_type="CLUSTER" if binding.restype is ResourceType.BROKER else binding.restype.name,
        resource_name=binding.name,
        pattern_type=binding.resource_pattern_type.name,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation.name,
        permission=binding.permission_type.name,
    )


def _binding(kind: type[_Wire], acl: Acl) -> _Wire:
    return kind(
        ResourceType["BROKER" if acl.resource_type == "CLUSTER" else acl.resource_type],
        acl.resource_name,
        ResourcePatternType[acl.pattern_type],
        acl.principal,
        acl.host,
        AclOperation[acl.operation],
        AclPermissionType[acl.permission],
    )


def is_empty(address: ClusterAddress, rule: Any, *, what: str) -> bool:
    """Return True if no ACL matches the AclBindingFilter; raise if the broker refuses. ``what`` completes "Failed to …"."""
    lowest, highest = _VERSIONS
    with first_connection(address) as connection:
        version = connection.version_for(DescribeAclsRequest.API_KEY, highest=highest, lowest=lowest)
        request = _describe_request(rule, version=version)
        error_code, found = connection.request(
            request, response=DescribeAclsResponse, read=lambda response: (response.error_code, bool(response.resources))
        )
    if error_code:
        raise kafka_error(KafkaError(error_code), what=what)
    return not found


def _describe_request(rule: Any, *, version: int) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        version=version,
        resource_type_filter=rule.restype.value,
        resource_name_filter=rule.name,
        pattern_type_filter=rule.resource_pattern_type.value,
        principal_filter=rule.principal,
        host_filter=rule.host,
        operation=rule.operation.value,
        permission_type=rule.permission_type.value,
    )


# --- any ACL, with Kafka's own names -------------------------------------------------------------------------------------
# List, create and delete, as the REST API does.


_CLUSTER = "CLUSTER"  # librdkafka calls the same number BROKER
_ANY = "ANY"
_Word = TypeVar("_Word", bound=Enum)


def matching(session: AdminSession, wanted: AclRule) -> list[AclRule]:
    """Return the ACLs that a filter matches; raise SECURITY_DISABLED_ERROR or AUTHORIZATION_ERROR if they cannot be read."""
    return sorted(
        (_rule(binding) for binding in describe_bindings(session, _rule_filter(wanted), what="list ACLs")), key=_order
    )


def create_rules(session: AdminSession, rules: Iterable[AclRule]) -> None:
    """Create ACLs; existing ACLs stay."""
    bindings = [_rule_binding(rule) for rule in rules]
    session.all(lambda client: client.create_acls(bindings, request_timeout=REQUEST_TIMEOUT_S), what="create ACLs")


def delete_rules(session: AdminSession, wanted: AclRule) -> list[AclRule]:
    """Delete the ACLs that a filter matches; return them."""
    found = session.all(
        lambda client: client.delete_acls([_rule_filter(wanted)], request_timeout=REQUEST_TIMEOUT_S), what="delete ACLs"
    )
    return sorted((_rule(binding) for deleted in found.values() for binding in deleted), key=_order)


def _rule_binding(rule: AclRule) -> AclBinding:
    for word in (rule.resource_type, rule.pattern_type, rule.operation, rule.permission):
        if word in (_ANY, "MATCH", "UNKNOWN"):
            raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, f"{word} is allowed in filters only. Set an exact value.")
    return AclBinding(*_fields(rule))


def _rule_filter(rule: AclRule) -> AclBindingFilter:
    return AclBindingFilter(*_fields(rule))


def _fields(rule: AclRule) -> tuple[Any, ...]:
    kind = "BROKER" if rule.resource_type == _CLUSTER else rule.resource_type
    return (
        _word(ResourceType, kind, shown=rule.resource_type),
        rule.resource_name,
        _word(ResourcePatternType, rule.pattern_type),
        rule.principal,
        rule.host,
        _word(AclOperation, rule.operation),
        _word(AclPermissionType, rule.permission),
    )


def _word(kind: type[_Word], name: str, *, shown: str = "") -> _Word:
    try:
        found = kind[name]
    except KeyError:
        found = kind["UNKNOWN"]
    if found.name == "UNKNOWN":
        raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, f"{shown or name} is not supported in ACLs.")
    return found


def _rule(found: Any) -> AclRule:
    return AclRule(
        resource_type=_CLUSTER if found.restype.name == "BROKER" else found.restype.name,
        resource_name=found.name,
        pattern_type=found.resource_pattern_type.name,
        principal=found.principal,
        host=found.host,
        operation=found.operation.name,
        permission=found.permission_type.name,
    )


def _order(rule: AclRule) -> tuple[str, ...]:
    return rule.resource_type, rule.resource_name or "", rule.principal or "", rule.operation, rule.permission, rule.host or ""
