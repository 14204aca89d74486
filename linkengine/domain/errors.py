"""Errors a person may meet: each has a stable code, says what happened, why, and what to do.

Codes follow the enums of Confluent's Kafka REST v3 (``link_error``, transition ``error_code``, ``mirror_topic_error``) where
such a code exists; ours are named in the same manner. Anticipated failures are raised as LinkEngineError, everything else
is a bug and stays an exception of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class ErrorCode(StrEnum):
    """Stable codes; REST, pages and logs show them unchanged."""

    NO_ERROR = "NO_ERROR"
    # link and transition errors
    AUTHENTICATION_ERROR = "AUTHENTICATION_ERROR"
    AUTHORIZATION_ERROR = "AUTHORIZATION_ERROR"
    UNRESOLVABLE_BOOTSTRAP_ERROR = "UNRESOLVABLE_BOOTSTRAP_ERROR"
    BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR = "BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR"
    TIMEOUT_ERROR = "TIMEOUT_ERROR"
    MISCONFIGURATION_ERROR = "MISCONFIGURATION_ERROR"
    CLUSTER_ID_MISMATCH = "CLUSTER_ID_MISMATCH"
    UNKNOWN_TOPIC_OR_PARTITION_ERROR = "UNKNOWN_TOPIC_OR_PARTITION_ERROR"
    TOPIC_EXISTS_ERROR = "TOPIC_EXISTS_ERROR"
    MIRROR_EXISTS_ERROR = "MIRROR_EXISTS_ERROR"  # the name is taken by a mirror, which must not be deleted for another one
    INVALID_TOPIC = "INVALID_TOPIC"
    INVALID_REQUEST_ERROR = "INVALID_REQUEST_ERROR"
    POLICY_VIOLATION_ERROR = "POLICY_VIOLATION_ERROR"
    TOPIC_DELETION_DISABLED = "TOPIC_DELETION_DISABLED"  # delete.topic.enable=false on the cluster
    SECURITY_DISABLED_ERROR = "SECURITY_DISABLED_ERROR"
    UNSUPPORTED_VERSION_ERROR = "UNSUPPORTED_VERSION_ERROR"  # the brokers are too old for a request
    DESTINATION_UNAVAILABLE = "DESTINATION_UNAVAILABLE"
    NOT_ENOUGH_REPLICAS_ERROR = "NOT_ENOUGH_REPLICAS_ERROR"  # a topic's followers are down or too slow
    MALFORMED_RESPONSE_ERROR = "MALFORMED_RESPONSE_ERROR"  # bytes that are no answer of Kafka, or of a token endpoint
    INTERNAL_ERROR = "INTERNAL_ERROR"
    # a promotion says what it waits for
    WAITING_FOR_LAG = "WAITING_FOR_LAG"
    WAITING_FOR_CONFIGS = "WAITING_FOR_CONFIGS"
    WAITING_FOR_PARTITIONS = "WAITING_FOR_PARTITIONS"
    WAITING_FOR_GROUPS = "WAITING_FOR_GROUPS"
    CONSUMER_GROUP_IN_USE_ERROR = "CONSUMER_GROUP_IN_USE_ERROR"
    # a reversal or a restore says what it waits for
    WAITING_FOR_TRANSACTIONS = "WAITING_FOR_TRANSACTIONS"
    WAITING_FOR_OTHER_SIDE = "WAITING_FOR_OTHER_SIDE"
    REMOTE_LINK_NOT_FOUND_ERROR = "REMOTE_LINK_NOT_FOUND_ERROR"
    REMOTE_MIRROR_NOT_FOUND_ERROR = "REMOTE_MIRROR_NOT_FOUND_ERROR"
    SIDES_DIVERGED = "SIDES_DIVERGED"  # both sides hold records the other one lacks
    # permanent errors of a mirror
    SOURCE_TOPIC_MAY_BE_DELETED = "SOURCE_TOPIC_MAY_BE_DELETED"
    SOURCE_TOPIC_ID_CHANGED = "SOURCE_TOPIC_ID_CHANGED"
    SOURCE_PARTITIONS_DECREASED = "SOURCE_PARTITIONS_DECREASED"
    UNEXPECTED_TRUNCATION = "UNEXPECTED_TRUNCATION"  # the source's log ends before the mirror's
    UNSUPPORTED_MESSAGE_FORMAT = "UNSUPPORTED_MESSAGE_FORMAT"
    CORRUPT_RECORDS = "CORRUPT_RECORDS"  # their checksum is wrong, time and again
    RECORDS_TOO_LARGE = "RECORDS_TOO_LARGE"  # compressed records are larger than what is read into memory
    KEYLESS_RECORDS = "KEYLESS_RECORDS"  # a compacted mirror refuses them; its policy is changed until they are copied
    FOREIGN_WRITE = "FOREIGN_WRITE"  # somebody else appended to the mirror
    MARKER_OVERRUN = "MARKER_OVERRUN"  # a gap fill of our own came late and took the place of a record
    TIMESTAMPS_REPLACED = "TIMESTAMPS_REPLACED"  # the mirror topic was switched to LogAppendTime while it was copied to
    MIRROR_TOPIC_MISSING = "MIRROR_TOPIC_MISSING"  # somebody deleted the mirror topic
    MIRROR_WAS_STOPPED = "MIRROR_WAS_STOPPED"  # its topic holds the fence of a stop that nobody remembers
    ILLEGAL_STATE = "ILLEGAL_STATE"


# Wrong credentials, missing rights, another cluster: trying again changes nothing before somebody has acted.
SOMEBODY_HAS_TO_ACT = frozenset(
    {
        ErrorCode.AUTHENTICATION_ERROR,
        ErrorCode.AUTHORIZATION_ERROR,
        ErrorCode.CLUSTER_ID_MISMATCH,
        ErrorCode.MISCONFIGURATION_ERROR,
    }
)


class LinkEngineError(Exception):
    """An anticipated failure: ``code`` for machines, ``message`` (what, why, what to do) for people."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        # a task's error travels to whoever waits for it; the constructor's arguments are not in ``args``
        return _restored, (type(self), self.args, self.__dict__)


class TruncationError(LinkEngineError):
    """The source is not the one any more that was copied; ``kept``: all before this offset is, 0 where nobody knows."""

    def __init__(self, message: str, *, kept: int = 0) -> None:
        super().__init__(ErrorCode.UNEXPECTED_TRUNCATION, message)
        self.kept = kept


class IllegalTransitionError(LinkEngineError):
    """The transition table has no such edge; the message lists what is allowed instead."""

    def __init__(self, *, state: StrEnum, event: StrEnum, allowed: Iterable[StrEnum]) -> None:
        names = ", ".join(allowed) or "nothing"
        super().__init__(ErrorCode.ILLEGAL_STATE, f"Cannot {event} a mirror topic in state {state}. Allowed now: {names}.")
        self.state = state
        self.event = event


def _restored(kind: type[LinkEngineError], arguments: tuple[object, ...], fields: dict[str, object]) -> LinkEngineError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error
