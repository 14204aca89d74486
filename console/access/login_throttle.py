"""Throttles failed sign-ins and API-key attempts.

Attempts are counted per name and address, so that an attack on a name does not lock its owner out elsewhere. IPv6 addresses
count by their first 64 bits, since a client usually has the whole network. The first refusal of an address is audited, and
then once an hour; the log has all of them. An attack must not be able to fill the database.
"""

from __future__ import annotations

import ipaddress
import math
from typing import Any

import structlog
from django.conf import settings

from console import audit
from console.actors import Actor
from console.redis import rate_limit

NOBODY = "not signed in"  # no user can have this name
NOTED_EVERY_MS = 3_600_000
MOST_OF_ADDRESS = 64  # characters that the audit keeps
_log = structlog.get_logger(__name__)


def attempts_at(kind: str, name: str, request: Any) -> str:
    """Return the counter for attempts at a name from the request's address; without ``name`` all attempts from there."""
    return f"{kind}:{name}:{_place(_address(request))}"


def attempts_of(kind: str, name: str) -> str:
    """Return the counter for attempts at a name from all addresses."""
    return f"{kind}:{name}:everywhere"


def count(attempts: str, *, names: int = 1) -> int:
    """Count an attempt. Returns 0 or the seconds to wait. ``names`` multiplies the limit."""
    if settings.ATTEMPTS_AT_ONCE <= 0:
        return 0
    every_s = max(1.0, float(settings.ATTEMPT_EVERY_S))
    return math.ceil(rate_limit.take(attempts, per_s=names / every_s, burst=names * settings.ATTEMPTS_AT_ONCE))


def reset(attempts: str) -> None:
    """Reset the counter after a successful attempt."""
    rate_limit.reset(attempts)


def note_refusal(request: Any, *, action: str, resource: str) -> None:
    """Log a throttled attempt, and audit the first attempt of its address per hour."""
    address = _address(request)
    _log.warning("attempt.refused", action=action, resource=resource, client=address)
    if rate_limit.is_first(f"refused:{action}:{_place(address)}", ttl_ms=NOTED_EVERY_MS):
        by = Actor(
            name=NOBODY, user=None, request_id=getattr(request, "request_id", ""), client_address=address[:MOST_OF_ADDRESS]
        )
        reason = "Too many failed attempts from this address. Further ones are in the log, and here once per hour."
        audit.record_denial(by=by, action=action, resource=resource, reason=reason)


def _address(request: Any) -> str:
    return str(request.META.get("REMOTE_ADDR") or "") if request is not None else ""


def _place(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
