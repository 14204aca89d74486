"""Where a new mirror begins: ``mirror.start.offset.spec`` as text becomes what to ask the source for. Pure.

Words are ``earliest`` and ``latest``; anything else is a moment, as ISO 8601 (UTC where it names no zone) or as Unix
milliseconds. A moment after the last record, also one in the future, is the same as ``latest``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from linkengine.domain.errors import ErrorCode, LinkEngineError

CONFIG = "mirror.start.offset.spec"
EARLIEST, LATEST = "earliest", "latest"
LONGEST = 40  # characters that are kept with a mirror
_MILLISECONDS = re.compile(r"[0-9]{1,15}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def start_problem(spec: str) -> str:
    """Say why a text names no start; "" where it does."""
    if len(spec) > LONGEST:
        return f"{CONFIG} may have up to {LONGEST} characters, enough for a time in nanoseconds. Leave out further digits."
    if spec in (EARLIEST, LATEST) or _MILLISECONDS.fullmatch(spec):
        return ""
    moment = _moment(spec)
    if moment is None:
        return f"{CONFIG} must be earliest, latest, a time such as 2026-11-21T03:00:00Z, or Unix milliseconds."
    return "" if moment >= _EPOCH else f"{CONFIG} must not lie before 1970."


def check_start(spec: str) -> None:
    """Raise MISCONFIGURATION_ERROR for a text that names no start."""
    problem = start_problem(spec)
    if problem:
        raise LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, problem)


def start_time_ms(spec: str) -> int | None:
    """Answer the moment in Unix milliseconds, None for the two words. Raises for what ``check_start`` refuses."""
    check_start(spec)
    if spec in (EARLIEST, LATEST):
        return None
    moment = None if _MILLISECONDS.fullmatch(spec) else _moment(spec)
    return int(spec) if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1)


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
