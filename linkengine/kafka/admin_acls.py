"""The two rules that guard a mirror topic: DENY WRITE while it mirrors, DENY READ while its head is being seeded.

Both are literal, for ``User:*`` and every host; Kafka lets DENY win over every ALLOW but not over super users, so the link's
own principal must be one. Setting a rule that exists and removing one that does not are both fine.
"""

from __future__ import annotations

from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own type hints leave these names out
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from linkengine.kafka.admin_errors import translated
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession

_EVERYBODY = "User:*"
_EVERYWHERE = "*"


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


def denies(session: AdminSession, topic: str, operation: AclOperation) -> bool:
    """Tell whether the rule of ``deny`` is set; False where there is no authorizer."""
    rule = _filter(topic, operation)
    return bool(
        session.one(
            lambda client: client.describe_acls(rule, request_timeout=REQUEST_TIMEOUT_S),
            what=f"read the ACLs of topic {topic!r}",
        )
    )


def _filter(topic: str, operation: AclOperation) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        _EVERYBODY,
        _EVERYWHERE,
        operation,
        AclPermissionType.DENY,
    )
