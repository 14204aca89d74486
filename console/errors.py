"""What an action or a query may refuse to do, in words for people and codes for machines; knows nothing of HTTP.

REST and pages map ``kind`` to a status in one place each. ``code`` is a stable word of ``linkengine.domain.errors`` where the
engine has one, else one of ours.
"""

from __future__ import annotations

from typing import ClassVar

from linkengine.domain.errors import ErrorCode, IllegalTransitionError, LinkEngineError


class ConsoleError(Exception):
    """An anticipated refusal: ``code`` for machines, ``message`` (what, why, what to do) for people, ``field`` for forms."""

    kind: ClassVar[str] = "bad_request"

    def __init__(self, message: str, *, code: str = "", field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.kind.upper()
        self.field = field


class BadRequestError(ConsoleError):
    """Kafka would refuse it, or this product's rules do."""

    kind = "bad_request"


class InvalidInputError(ConsoleError):
    """A value is missing, malformed or out of its range; ``field`` names it."""

    kind = "invalid"


class NotFoundError(ConsoleError):
    """It is not there, or the asker may not know that it is."""

    kind = "not_found"


class DeniedError(ConsoleError):
    """The asker's roles do not allow it; the message names one that does."""

    kind = "denied"


class ConflictError(ConsoleError):
    """The present state does not allow it; the message says what it allows."""

    kind = "conflict"


class UnavailableError(ConsoleError):
    """Something that must answer does not; trying again later may work."""

    kind = "unavailable"


class BrokerFailedError(ConsoleError):
    """A cluster answered with an error that is neither the asker's nor ours to mend."""

    kind = "broker_failed"


CLUSTER_AWAY = "BROKER_UNAVAILABLE"
BROKER_TIMEOUT = "BROKER_TIMEOUT"  # asking again may help
_AWAY = {
    ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR,
    ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
    ErrorCode.DESTINATION_UNAVAILABLE,
}
_INVALID = {ErrorCode.INVALID_TOPIC, ErrorCode.MISCONFIGURATION_ERROR, ErrorCode.INVALID_REQUEST_ERROR}
_UNAVAILABLE = {ErrorCode.DESTINATION_UNAVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS_ERROR}


def from_engine(error: LinkEngineError, *, field: str | None = None) -> ConsoleError:
    """Turn the engine's error into one of ours, code and message unchanged."""
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
    """Turn what a registered cluster answered to a plain question into one of ours; the message is the engine's."""
    if error.code in _AWAY:
        return UnavailableError(error.message, code=CLUSTER_AWAY)
    if error.code == ErrorCode.TIMEOUT_ERROR:
        return BrokerFailedError(error.message, code=BROKER_TIMEOUT)
    if error.code in (ErrorCode.AUTHENTICATION_ERROR, ErrorCode.INTERNAL_ERROR):
        return BrokerFailedError(error.message, code=error.code)
    if error.code == ErrorCode.AUTHORIZATION_ERROR:
        return DeniedError(error.message, code=error.code)
    return from_engine(error)
