"""HTTP statuses of the console's errors: of pages, and of REST with ``error_code``, which is that of Confluent's REST proxy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from console.errors import BROKER_TIMEOUT

TOPIC_NOT_FOUND, PARTITION_NOT_FOUND = "TOPIC_NOT_FOUND", "PARTITION_NOT_FOUND"
# kind of a ConsoleError -> status
PAGE_STATUS: Mapping[str, int] = MappingProxyType(
    {
        "bad_request": 400,
        "invalid": 422,
        "conflict": 409,
        "denied": 403,
        "not_found": 404,
        "unavailable": 503,
        "broker_failed": 500,
    }
)
# kind of a ConsoleError -> (status, error_code)
REST_STATUS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "bad_request": (400, 40002),
        "invalid": (400, 40002),
        "conflict": (400, 40002),  # Confluent's interface has no 409
        "denied": (403, 40301),
        "not_found": (404, 404),
        "unavailable": (503, 50302),
        "broker_failed": (500, 50002),
    }
)
_REST_CODES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        TOPIC_NOT_FOUND: (404, 40401),
        PARTITION_NOT_FOUND: (404, 40402),
        "UNKNOWN_TOPIC_OR_PARTITION_ERROR": (404, 40403),
        "UNSUPPORTED_VERSION_ERROR": (400, 40035),
        BROKER_TIMEOUT: (500, 50003),  # retriable
    }
)


def rest_status(*, code: str, kind: str) -> tuple[int, int]:
    """Return status and ``error_code`` of the REST response for an error."""
    return _REST_CODES.get(code, REST_STATUS[kind])
