"""Errors that actions and queries raise: a message for people and a code for programs. Independent of HTTP.

REST and pages map ``kind`` to a status in a single place each. ``code`` is a constant of ``linkengine.domain.errors``, or
of the console for errors that the engine does not have.
"""

from __future__ import annotations

from typing import ClassVar

from linkengine.domain.errors import ErrorCode, IllegalTransitionError, LinkEngineError


class ConsoleError(Exception):
    """An expected refusal: ``code`` for programs, ``message`` (what, why, what to do) for people, ``field`` for forms."""

    kind: ClassVar[str] = "bad_request"

    def __init__(self, message: str, *, code: str = "", field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.kind.upper()
        self.field = field


class BadRequestError(ConsoleError):
    """Kafka or this product does not allow it."""

    kind = "bad_request"


class InvalidInputError(ConsoleError):
    """A value is missing, malformed or out of its range; ``field`` names it."""

    kind = "invalid"


class NotFoundError(ConsoleError):
    """It does not exist, or the caller may not see it."""

    kind = "not_found"


class DeniedError(ConsoleError):
    """The caller's roles do not allow it; the message names a role that does."""

    kind = "denied"


class ConflictError(ConsoleError):
    """The current state does not allow it; the message says what it allows."""

    kind = "conflict"


class UnavailableError(ConsoleError):
    """A required service is not available; a later attempt may succeed."""

    kind = "unavailable"


class BrokerFailedError(ConsoleError):
    """A cluster returned an error that neither the caller nor the console can correct."""

    kind = "broker_failed"


CLUSTER_AWAY = "BROKER_UNAVAILABLE"
BROKER_TIMEOUT = "BROKER_TIMEOUT"  # a retry may help
_AWAY = {
    ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR,
    ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
    ErrorCode.DESTINATION_UNAVAILABLE,
}
_INVALID = {ErrorCode.INVALID_TOPIC, ErrorCode.MISCONFIGURATION_ERROR, ErrorCode.INVALID_REQUEST_ERROR}
_UNAVAILABLE = {ErrorCode.DESTINATION_UNAVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS_ERROR}


def from_engine(error: LinkEngineError, *, field: str | None = None) -> ConsoleError:
    """Return the console's error for an error of the engine, with the same code and message."""
    if isinstance(error, IllegalTransitionError) or error.code == ErrorCode.ILLEGAL_STATE:
        kind: type[ConsoleError] = ConflictError
    elif error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR:
        kind = NotFoundError
    elif error.code in _UNAVAILABLE:
        kind = UnavailableError
    else:
        kind = InvalidInputError if field and error.code in _INVALID else BadRequestError
    return kind(error.message, code=error.code, field=field)


def from_cluster(error: LinkEngineError) -> ConsoleError:
    """Return the console's error for an error of a live query on a registered cluster, with the engine's message."""
    if error.code in _AWAY:
        return UnavailableError(error.message, code=CLUSTER_AWAY)
    if error.code == ErrorCode.TIMEOUT_ERROR:
        return BrokerFailedError(error.message, code=BROKER_TIMEOUT)
    if error.code in (ErrorCode.AUTHENTICATION_ERROR, ErrorCode.INTERNAL_ERROR):
        return BrokerFailedError(error.message, code=error.code)
    if error.code == ErrorCode.AUTHORIZATION_ERROR:
        return DeniedError(error.message, code=error.code)
    return from_engine(error)
