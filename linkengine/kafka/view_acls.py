"""List, create and delete ACLs with Kafka's own names; functions over an AdminSession. Mirror guards are in ``admin_acls``."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own type hints leave these names out
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from linkengine.domain.clusterviews import AclRule
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin_acls import shown
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession

_CLUSTER = "CLUSTER"  # librdkafka calls the same number BROKER
_ANY = "ANY"
_Word = TypeVar("_Word", bound=Enum)


def matching(session: AdminSession, wanted: AclRule) -> list[AclRule]:
    """Return the ACLs that a filter matches; raise SECURITY_DISABLED_ERROR or AUTHORIZATION_ERROR if they cannot be read."""
    return sorted((_rule(binding) for binding in shown(session, _filter(wanted), what="list ACLs")), key=_order)


def create(session: AdminSession, rules: Iterable[AclRule]) -> None:
    """Create ACLs; existing ones stay."""
    bindings = [_binding(rule) for rule in rules]
    session.all(lambda client: client.create_acls(bindings, request_timeout=REQUEST_TIMEOUT_S), what="create ACLs")


def delete(session: AdminSession, wanted: AclRule) -> list[AclRule]:
    """Delete the ACLs that a filter matches; return them."""
    found = session.all(
        lambda client: client.delete_acls([_filter(wanted)], request_timeout=REQUEST_TIMEOUT_S), what="delete ACLs"
    )
    return sorted((_rule(binding) for deleted in found.values() for binding in deleted), key=_order)


def _binding(rule: AclRule) -> AclBinding:
    for word in (rule.resource_type, rule.pattern_type, rule.operation, rule.permission):
        if word in (_ANY, "MATCH", "UNKNOWN"):
            raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, f"{word} is allowed in filters only. Set an exact value.")
    return AclBinding(*_fields(rule))


def _filter(rule: AclRule) -> AclBindingFilter:
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
