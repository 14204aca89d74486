"""Whoever guesses a password or the secret of an API key has to wait.

Attempts count per name and address: who guesses at somebody's name does not shut them out elsewhere. Of IPv6 the first 64 bits
count, since whoever has one address has all that begin with them. The first refusal of an address is written into the audit and
then once an hour while it goes on; the log has each: what costs a guesser nothing must not fill the database.
"""

from __future__ import annotations

import ipaddress
import math
from typing import Any

import structlog
from django.conf import settings

from console import audit, turns
from console.actors import Actor

NOBODY = "not signed in"  # no user can have this name
NOTED_EVERY_MS = 3_600_000
MOST_OF_ADDRESS = 64  # characters that the audit keeps
_log = structlog.get_logger(__name__)


def attempts_at(kind: str, name: str, request: Any) -> str:
    """Name what is counted together; without ``name`` whatever is tried from there."""
    return f"{kind}:{name}:{_place(_address(request))}"


def count(attempts: str, *, names: int = 1) -> int:
    """Count one attempt; answer 0, or the seconds to wait. ``names`` is how many times as many there may be."""
    if settings.ATTEMPTS_AT_ONCE <= 0:
        return 0
    every_s = max(1.0, float(settings.ATTEMPT_EVERY_S))
    return math.ceil(turns.take(attempts, per_s=names / every_s, burst=names * settings.ATTEMPTS_AT_ONCE))


def forget(attempts: str) -> None:
    """Let somebody who knew it have all attempts again."""
    turns.forget(attempts)


def note_refusal(request: Any, *, action: str, resource: str) -> None:
    """Say that somebody has to wait: in the log, and in the audit where the address begins to."""
    address = _address(request)
    _log.warning("attempt.refused", action=action, resource=resource, client=address)
    if turns.is_first(f"refused:{action}:{_place(address)}", ttl_ms=NOTED_EVERY_MS):
        by = Actor(
            name=NOBODY, user=None, request_id=getattr(request, "request_id", ""), client_address=address[:MOST_OF_ADDRESS]
        )
        reason = (
            "Too many failed attempts from this address. Those that follow are in the log; here once an hour if they go on."
        )
        audit.record_denial(by=by, action=action, resource=resource, reason=reason)


def _address(request: Any) -> str:
    return str(request.META.get("REMOTE_ADDR") or "") if request is not None else ""


def _place(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
