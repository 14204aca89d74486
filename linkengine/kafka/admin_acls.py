"""ACLs of a cluster, and the two rules that guard a mirror topic: DENY WRITE while it mirrors, DENY READ while it is seeded.

Both rules are literal, for ``User:*`` and every host; Kafka lets DENY win over every ALLOW but not over super users, so the
link's own principal must be one. Setting a rule that exists and removing one that does not are both fine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own type hints leave these names out
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from linkengine.domain.aclfilters import Acl
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.acl_refusals import is_empty
from linkengine.kafka.admin_errors import translated
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession

_EVERYBODY = "User:*"
_EVERYWHERE = "*"
_ALL: Any = None  # what the client takes for "any name", whatever its type hints say
_EVERYTHING = AclBindingFilter(
    ResourceType.ANY, _ALL, ResourcePatternType.ANY, _ALL, _ALL, AclOperation.ANY, AclPermissionType.ANY
)
_Wire = TypeVar("_Wire", AclBinding, AclBindingFilter)
_PER_REQUEST = 500
AGREE_S, AGREE_POLL_S = 5.0, 0.05  # brokers follow the controller one after the other, within a fraction of a second


def deny(session: AdminSession, topic: str, operation: AclOperation) -> None:
    """Deny everybody who is no super user the operation on the topic. Idempotent."""
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        _EVERYBODY,
        _EVERYWHERE,
        operation,
        AclPermissionType.DENY,
    )
    what = f"deny {operation.name} on topic {topic!r}"
    session.all(lambda client: client.create_acls([binding], request_timeout=REQUEST_TIMEOUT_S), what=what)


def allow(session: AdminSession, topic: str, operation: AclOperation) -> None:
    """Remove the rule of ``deny``; other rules stay. Idempotent, also where there is no authorizer."""
    what = f"remove DENY {operation.name} on topic {topic!r}"
    rule = _filter(topic, operation)
    _, failures = session.settle(lambda client: client.delete_acls([rule], request_timeout=REQUEST_TIMEOUT_S), what=what)
    for error in failures.values():
        if error.code() != KafkaError.SECURITY_DISABLED:
            raise translated(error, what=what)


def allow_many(session: AdminSession, topics: Sequence[str], operation: AclOperation) -> None:
    """Remove the rule of ``deny`` from many topics; other rules stay. Idempotent."""
    what = f"remove DENY {operation.name} on {len(topics)} topics"
    for first in range(0, len(topics), _PER_REQUEST):
        rules = [_filter(topic, operation) for topic in topics[first : first + _PER_REQUEST]]
        _, failures = session.settle(partial(_delete, rules), what=what)
        for error in failures.values():
            if error.code() != KafkaError.SECURITY_DISABLED:
                raise translated(error, what=what)


def _delete(rules: list[AclBindingFilter], client: AdminClient) -> dict[AclBindingFilter, Future[Any]]:
    return client.delete_acls(rules, request_timeout=REQUEST_TIMEOUT_S)


def denied_topics(session: AdminSession, operation: AclOperation) -> frozenset[str]:
    """List the topics that have the rule of ``deny``; none where there is no authorizer."""
    rules = session.one(
        lambda client: client.describe_acls(_filter(None, operation), request_timeout=REQUEST_TIMEOUT_S),
        what=f"list the topics on which {operation.name} is denied",
    )
    return frozenset(rule.name for rule in rules)


def denies(session: AdminSession, topic: str, operation: AclOperation) -> bool:
    """Tell whether the rule of ``deny`` is set; False where there is no authorizer."""
    rule = _filter(topic, operation)
    return bool(
        session.one(
            lambda client: client.describe_acls(rule, request_timeout=REQUEST_TIMEOUT_S),
            what=f"read the ACLs of topic {topic!r}",
        )
    )


def is_absent(session: AdminSession, topic: str, operation: AclOperation) -> bool:
    """Return whether the rule of ``deny`` is known not to be there; False where ACLs may not be read."""
    try:
        return not shown(session, _filter(topic, operation), what=f"read the ACLs of topic {topic!r}")
    except LinkEngineError:
        return False


def _filter(topic: str | None, operation: AclOperation) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.TOPIC,
        topic,  # type: ignore[arg-type]  # None: any; its own type hints leave that out
        ResourcePatternType.LITERAL,
        _EVERYBODY,
        _EVERYWHERE,
        operation,
        AclPermissionType.DENY,
    )


def describe(session: AdminSession) -> set[Acl]:
    """Read every ACL of the cluster; raise AUTHORIZATION_ERROR without DESCRIBE on the cluster."""
    return {_told(one) for one in shown(session, _EVERYTHING, what="read the ACLs of the cluster")}


def shown(session: AdminSession, rule: AclBindingFilter, *, what: str) -> list[AclBinding]:
    """List the ACLs that a filter matches; raise where the broker does not let us see them.

    Between the two questions an ACL may have been made, or the right to see them given: then both are asked again.
    """
    deadline = time.monotonic() + AGREE_S
    while True:
        found: list[AclBinding] = session.one(
            lambda client: client.describe_acls(rule, request_timeout=REQUEST_TIMEOUT_S), what=what
        )
        if found or is_empty(session.address, rule, what=what):
            return found
        if time.monotonic() > deadline:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, f"Failed to {what}: brokers contradict each other. Try again.")
        time.sleep(AGREE_POLL_S)


def create(session: AdminSession, acls: Sequence[Acl]) -> dict[Acl, LinkEngineError]:
    """Create ACLs, those that exist included; answer the refusals."""
    wire = {_binding(AclBinding, acl): acl for acl in acls}
    if not wire:
        return {}
    _, failures = session.settle(
        lambda client: client.create_acls(list(wire), request_timeout=REQUEST_TIMEOUT_S), what="create ACLs"
    )
    return {wire[one]: translated(error, what=f"create the ACL {wire[one]}") for one, error in failures.items()}


def delete(session: AdminSession, acls: Sequence[Acl]) -> dict[Acl, LinkEngineError]:
    """Delete exactly these ACLs, those that are gone included; answer the refusals."""
    wire = {_binding(AclBindingFilter, acl): acl for acl in acls}
    if not wire:
        return {}
    _, failures = session.settle(
        lambda client: client.delete_acls(list(wire), request_timeout=REQUEST_TIMEOUT_S), what="delete ACLs"
    )
    return {wire[one]: translated(error, what=f"delete the ACL {wire[one]}") for one, error in failures.items()}


def _told(one: Any) -> Acl:
    return Acl(
        resource_type="CLUSTER" if one.restype is ResourceType.BROKER else one.restype.name,
        resource_name=one.name,
        pattern_type=one.resource_pattern_type.name,
        principal=one.principal,
        host=one.host,
        operation=one.operation.name,
        permission=one.permission_type.name,
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
