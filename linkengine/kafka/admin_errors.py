"""Translate librdkafka errors to LinkEngineError: a stable code, what failed, why, what to do.

An error code above 0 is the broker's. A code below 0 is librdkafka's own and means that no broker responded; the caller then
finds the reason with ``preflight``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from confluent_kafka import KafkaError

from linkengine.domain.errors import ErrorCode, LinkEngineError


class LocalCode(IntEnum):
    """librdkafka's own errors (``rd_kafka_resp_err_t`` below 0) that admin calls can end with."""

    TRANSPORT = -195
    RESOLVE = -193
    ALL_BROKERS_DOWN = -187
    INVALID_ARG = -186
    TIMED_OUT = -185
    SSL = -181
    AUTHENTICATION = -169
    TIMED_OUT_QUEUE = -166
    UNSUPPORTED_FEATURE = -165
    DESTROY_BROKER = -137  # the cluster dropped the broker during the request


NO_ANSWER: frozenset[int] = frozenset(LocalCode) - {LocalCode.INVALID_ARG, LocalCode.UNSUPPORTED_FEATURE}
_RIGHTS = "Give the link's principal on this cluster the right (ACL) or make it a super user."
_CODES: Mapping[int, tuple[ErrorCode, str]] = MappingProxyType(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART: (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR,
            "Check the name, and that the principal may DESCRIBE the topic.",
        ),
        KafkaError.UNKNOWN_TOPIC_ID: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "The topic was deleted or created again."),
        KafkaError.TOPIC_ALREADY_EXISTS: (ErrorCode.TOPIC_EXISTS_ERROR, "Delete it or choose another name."),
        KafkaError.TOPIC_EXCEPTION: (ErrorCode.INVALID_TOPIC, ""),
        KafkaError.TOPIC_AUTHORIZATION_FAILED: (ErrorCode.AUTHORIZATION_ERROR, _RIGHTS),
        KafkaError.CLUSTER_AUTHORIZATION_FAILED: (ErrorCode.AUTHORIZATION_ERROR, _RIGHTS),
        KafkaError.GROUP_AUTHORIZATION_FAILED: (ErrorCode.AUTHORIZATION_ERROR, _RIGHTS),
        KafkaError.SECURITY_DISABLED: (ErrorCode.SECURITY_DISABLED_ERROR, "Set authorizer.class.name on the brokers."),
        KafkaError.SASL_AUTHENTICATION_FAILED: (ErrorCode.AUTHENTICATION_ERROR, "Correct sasl.jaas.config of the link."),
        KafkaError.POLICY_VIOLATION: (ErrorCode.POLICY_VIOLATION_ERROR, "A policy of the cluster forbids it."),
        KafkaError.TOPIC_DELETION_DISABLED: (
            ErrorCode.TOPIC_DELETION_DISABLED,
            "Set delete.topic.enable=true on the brokers and controllers, then delete it again.",
        ),
        KafkaError.INVALID_CONFIG: (ErrorCode.INVALID_REQUEST_ERROR, "Correct the configs."),
        KafkaError.INVALID_REQUEST: (ErrorCode.INVALID_REQUEST_ERROR, ""),
        KafkaError.INVALID_PARTITIONS: (ErrorCode.INVALID_REQUEST_ERROR, ""),
        KafkaError.INVALID_REPLICATION_FACTOR: (
            ErrorCode.INVALID_REQUEST_ERROR,
            "Choose a replication factor the number of brokers allows.",
        ),
        KafkaError.UNSUPPORTED_VERSION: (ErrorCode.UNSUPPORTED_VERSION_ERROR, "The brokers are too old for this request."),
        LocalCode.UNSUPPORTED_FEATURE: (ErrorCode.UNSUPPORTED_VERSION_ERROR, "The brokers are too old for this request."),
        LocalCode.INVALID_ARG: (ErrorCode.MISCONFIGURATION_ERROR, "Correct the link's settings."),
        KafkaError.LEADER_NOT_AVAILABLE: (ErrorCode.TIMEOUT_ERROR, "A partition has no leader at present; try again."),
        KafkaError.NOT_LEADER_FOR_PARTITION: (ErrorCode.TIMEOUT_ERROR, "A leader has moved; try again."),
        KafkaError.NOT_COORDINATOR: (ErrorCode.TIMEOUT_ERROR, "The group's coordinator has moved; try again."),
        KafkaError.COORDINATOR_NOT_AVAILABLE: (ErrorCode.TIMEOUT_ERROR, "The group has no coordinator at present; try again."),
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS: (ErrorCode.TIMEOUT_ERROR, "The group's coordinator is starting; try again."),
        KafkaError.NOT_CONTROLLER: (ErrorCode.TIMEOUT_ERROR, "The controller has moved; try again."),
        KafkaError.REQUEST_TIMED_OUT: (ErrorCode.TIMEOUT_ERROR, "The brokers are slow or lack replicas; try again."),
    }
)


def translated(error: KafkaError, *, what: str) -> LinkEngineError:
    """Return the LinkEngineError for a broker's refusal of ``what`` (such as "describe topic 'x'")."""
    code, advice = _CODES.get(error.code(), (ErrorCode.INTERNAL_ERROR, ""))
    if error.code() in NO_ANSWER:
        code, advice = (
            ErrorCode.TIMEOUT_ERROR,
            "The brokers accepted a connection but did not respond to this request; try again.",
        )
    reason = str(error.str()).removeprefix("Broker: ").rstrip(".")
    return LinkEngineError(code, f"Failed to {what}: {reason}. {advice}".rstrip())


def refused(error: LinkEngineError, *, what: str) -> LinkEngineError:
    """Return the error of a failed login to a cluster, worded as the failure of ``what``."""
    cause = " due to authentication issues" if error.code is ErrorCode.AUTHENTICATION_ERROR else ""
    return LinkEngineError(error.code, f"Failed to {what}{cause}. {error.message}")
