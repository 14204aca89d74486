"""Maps exceptions to HTTP status, ``error_code`` and message, and renders them as error responses.

The codes are those of Confluent's REST proxy:

===========  =====================================================================
error_code   meaning
===========  =====================================================================
400          a parameter or the body cannot be parsed
422          a required field of the body is missing
40002        Kafka or a rule of this product refuses the request
40035        the brokers are too old for the request
40101        authentication failed
40301        the actor lacks a role
404          cluster, link, mirror, consumer group or endpoint not found
40401        topic not found
40402        partition not found
40403        a cluster returned UNKNOWN_TOPIC_OR_PARTITION
42901        too many requests or failed attempts
500          unexpected error
50002        a cluster failed
50003        a cluster timed out; a retry may succeed
50302        a part of the service is unavailable
===========  =====================================================================

Error responses are always JSON. For an unexpected error they contain nothing but the request id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from console.errors import ConsoleError, from_engine
from console.http import errors as http_errors
from console.http.errors import rest_status
from linkengine.domain.errors import LinkEngineError

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Status, code and message of an error response."""

    status: int
    error_code: int
    message: str


_STATUS_CODES = {401: 40101, 403: 40301, 429: 42901}
_NO_ENDPOINT = "HTTP 404 Not Found"


class UnreadableError(exceptions.APIException):
    """A parameter or body that cannot be parsed."""

    status_code = 400
    default_code = "unreadable"


class TooLargeError(exceptions.APIException):
    """A request body above the size limit."""

    status_code = 413
    default_code = "too_large"
    default_detail = "The request body is too large. At most 1 MiB is allowed."


class TooManyAttemptsError(exceptions.APIException):
    """Too many failed attempts; ``wait`` is the number of seconds until the next attempt."""

    status_code = 429
    default_code = "too_many_attempts"

    def __init__(self, wait: int) -> None:
        """Create the error with the seconds to wait."""
        self.wait = wait
        super().__init__(
            "This attempt was refused, because too many attempts with API keys failed from this address. Check key and secret, "
            f"then retry in {wait} seconds."
        )


def failure_response(error: Exception, context: dict[str, Any]) -> Response:
    """Return the error response for an exception of a view; unexpected errors are logged with a traceback and get 500."""
    set_rollback()
    failure = failure_of(error)
    if failure.status == 500:
        _logger.error("request_failed", exc_info=error, view=type(context.get("view")).__name__)
    outage = http_errors.outage_of(error)
    if outage is not None:
        _logger.warning("database.unavailable", outage=outage, view=type(context.get("view")).__name__)
    response = envelope(failure)
    header = getattr(error, "auth_header", None)
    if failure.status == 401 and header:
        response["WWW-Authenticate"] = header
    wait = http_errors.RETRY_AFTER_S if outage else getattr(error, "wait", None)
    if wait is not None:
        response["Retry-After"] = str(int(wait))
    return response


def envelope(failure: Failure) -> Response:
    return Response({"error_code": failure.error_code, "message": failure.message}, status=failure.status)


def failure_of(error: Exception) -> Failure:
    """Return status, code and message for an exception; details of unexpected exceptions are not revealed."""
    if isinstance(error, LinkEngineError):
        error = from_engine(error)
    outage = http_errors.outage_of(error)
    if outage is not None:
        return Failure(status=503, error_code=50302, message=http_errors.sentence(outage))
    if isinstance(error, ConsoleError):
        status, code = rest_status(code=error.code, kind=error.kind)
        return Failure(status=status, error_code=code, message=error.message)
    if isinstance(error, Http404 | exceptions.NotFound):
        return Failure(status=404, error_code=404, message=_NO_ENDPOINT)
    if isinstance(error, PermissionDenied):
        return Failure(status=403, error_code=40301, message="Request is not authorized")
    if isinstance(error, exceptions.APIException):
        return _framework_failure(error)
    return Failure(status=500, error_code=500, message="Internal Server Error. Search the log for the response's X-Request-ID.")


def _framework_failure(error: exceptions.APIException) -> Failure:
    if isinstance(error, exceptions.ValidationError):
        return _validation_failure(error)
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        return Failure(status=401, error_code=40101, message="Authentication failed")
    status = error.status_code
    return Failure(status=status, error_code=_STATUS_CODES.get(status, status), message=str(error.detail))


def _validation_failure(error: exceptions.ValidationError) -> Failure:
    """Return 400 for a field of the wrong type, and 422 if the only problem is missing fields."""
    problems = _flatten(error.get_full_details())
    missing = bool(problems) and all(code == "required" for _, code, _ in problems)
    status = 422 if missing else 400
    message = " ".join(f"{where}: {text}" if where else text for where, _, text in problems)
    return Failure(status=status, error_code=status, message=message)


def _flatten(details: Any, where: str = "") -> list[tuple[str, str, str]]:
    """Return (field, code, message) for each error of a nested report; list items are named like ``configs[0].name``."""
    if isinstance(details, dict) and set(details) == {"message", "code"} and isinstance(details["code"], str):
        return [(where, details["code"], str(details["message"]))]
    if isinstance(details, dict):
        found = [_flatten(value, _join(where, key)) for key, value in details.items()]
    else:
        found = [_flatten(value, where) for value in details]
    return [problem for problems in found for problem in problems]


def _join(where: str, key: object) -> str:
    if key == "non_field_errors":
        return where
    if isinstance(key, int) or re.fullmatch(r"\d+", str(key)):
        return f"{where}[{key}]"
    return f"{where}.{key}" if where else str(key)
