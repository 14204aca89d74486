"""Errors shown to users: each has a stable code and a message that says what happened, why, and what to do.

Codes follow the enums of Confluent's Kafka REST v3 (``link_error``, transition ``error_code``, ``mirror_topic_error``) where
such a code exists; additional codes are named in the same manner. Anticipated failures are raised as LinkEngineError. Any other
exception is a bug and is not converted.
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
    MIRROR_EXISTS_ERROR = "MIRROR_EXISTS_ERROR"  # the name belongs to a mirror, which must not be deleted for another topic
    INVALID_TOPIC = "INVALID_TOPIC"
    INVALID_REQUEST_ERROR = "INVALID_REQUEST_ERROR"
    POLICY_VIOLATION_ERROR = "POLICY_VIOLATION_ERROR"
    TOPIC_DELETION_DISABLED = "TOPIC_DELETION_DISABLED"  # delete.topic.enable=false on the cluster
    SECURITY_DISABLED_ERROR = "SECURITY_DISABLED_ERROR"
    UNSUPPORTED_VERSION_ERROR = "UNSUPPORTED_VERSION_ERROR"  # the brokers are too old for a request
    DESTINATION_UNAVAILABLE = "DESTINATION_UNAVAILABLE"
    NOT_ENOUGH_REPLICAS_ERROR = "NOT_ENOUGH_REPLICAS_ERROR"  # a topic's followers are down or too slow
    MALFORMED_RESPONSE_ERROR = "MALFORMED_RESPONSE_ERROR"  # not a valid response of Kafka, or of a token endpoint
    INTERNAL_ERROR = "INTERNAL_ERROR"
    # what a promotion waits for
    WAITING_FOR_LAG = "WAITING_FOR_LAG"
    WAITING_FOR_CONFIGS = "WAITING_FOR_CONFIGS"
    WAITING_FOR_PARTITIONS = "WAITING_FOR_PARTITIONS"
    WAITING_FOR_GROUPS = "WAITING_FOR_GROUPS"
    CONSUMER_GROUP_IN_USE_ERROR = "CONSUMER_GROUP_IN_USE_ERROR"
    # what a reversal or a restore waits for
    WAITING_FOR_TRANSACTIONS = "WAITING_FOR_TRANSACTIONS"
    WAITING_FOR_OTHER_SIDE = "WAITING_FOR_OTHER_SIDE"
    REMOTE_LINK_NOT_FOUND_ERROR = "REMOTE_LINK_NOT_FOUND_ERROR"
    REMOTE_MIRROR_NOT_FOUND_ERROR = "REMOTE_MIRROR_NOT_FOUND_ERROR"
    SIDES_DIVERGED = "SIDES_DIVERGED"  # each side holds records that the other lacks
    # permanent errors of a mirror
    SOURCE_TOPIC_MAY_BE_DELETED = "SOURCE_TOPIC_MAY_BE_DELETED"
    SOURCE_TOPIC_ID_CHANGED = "SOURCE_TOPIC_ID_CHANGED"
    SOURCE_PARTITIONS_DECREASED = "SOURCE_PARTITIONS_DECREASED"
    UNEXPECTED_TRUNCATION = "UNEXPECTED_TRUNCATION"  # the source's log ends before the mirror's
    UNSUPPORTED_MESSAGE_FORMAT = "UNSUPPORTED_MESSAGE_FORMAT"
    CORRUPT_RECORDS = "CORRUPT_RECORDS"  # their checksum is wrong, repeatedly
    RECORDS_TOO_LARGE = "RECORDS_TOO_LARGE"  # decompressed records exceed the memory limit
    KEYLESS_RECORDS = "KEYLESS_RECORDS"  # a compacted mirror refuses them; its policy is changed until they are copied
    FOREIGN_WRITE = "FOREIGN_WRITE"  # another producer appended to the mirror
    MARKER_OVERRUN = "MARKER_OVERRUN"  # a gap fill arrived late and took the offset of a record
    TIMESTAMPS_REPLACED = "TIMESTAMPS_REPLACED"  # the mirror topic was switched to LogAppendTime while it was copied to
    MIRROR_TOPIC_MISSING = "MIRROR_TOPIC_MISSING"  # the mirror topic was deleted
    MIRROR_WAS_STOPPED = "MIRROR_WAS_STOPPED"  # its topic holds the fence of a stop that the database does not have
    ILLEGAL_STATE = "ILLEGAL_STATE"


# Wrong credentials, missing rights, another cluster: a retry cannot succeed before a user has acted.
NEEDS_OPERATOR = frozenset(
    {
        ErrorCode.AUTHENTICATION_ERROR,
        ErrorCode.AUTHORIZATION_ERROR,
        ErrorCode.CLUSTER_ID_MISMATCH,
        ErrorCode.MISCONFIGURATION_ERROR,
    }
)

# Conditions that a promotion, reversal or restore waits for; these are not errors.
WAITING = frozenset(code for code in ErrorCode if code.startswith("WAITING_FOR_"))


class LinkEngineError(Exception):
    """An anticipated failure: ``code`` for programs, ``message`` (what, why, what to do) for users."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        # errors of Celery tasks are pickled; the constructor's arguments are not in ``args``
        return _restored, (type(self), self.args, self.__dict__)


class TruncationError(LinkEngineError):
    """The source has lost records that were copied; ``kept``: all records below this offset are still there, 0 if unknown."""

    def __init__(self, message: str, *, kept: int = 0) -> None:
        super().__init__(ErrorCode.UNEXPECTED_TRUNCATION, message)
        self.kept = kept


class IllegalTransitionError(LinkEngineError):
    """The transition table has no such edge; the message lists the operations that are allowed."""

    def __init__(self, *, state: StrEnum, event: StrEnum, allowed: Iterable[StrEnum]) -> None:
        names = ", ".join(allowed) or "nothing"
        super().__init__(ErrorCode.ILLEGAL_STATE, f"Cannot {event} a mirror topic in state {state}. Allowed now: {names}.")
        self.state = state
        self.event = event


def _restored(kind: type[LinkEngineError], arguments: tuple[object, ...], fields: dict[str, object]) -> LinkEngineError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error
