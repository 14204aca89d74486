"""The start of a new mirror: parses ``mirror.start.offset.spec``. Pure functions.

The value is ``earliest``, ``latest`` or a time, as ISO 8601 (UTC without a time zone) or as Unix milliseconds. A time after the
last record, including a time in the future, has the same effect as ``latest``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from linkengine.domain.errors import ErrorCode, LinkEngineError

CONFIG = "mirror.start.offset.spec"
EARLIEST, LATEST = "earliest", "latest"
LONGEST = 40  # characters that are stored with a mirror
_MILLISECONDS = re.compile(r"[0-9]{1,15}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def start_problem(spec: str) -> str:
    """Return why a text is not a valid start; "" if it is."""
    if len(spec) > LONGEST:
        return f"{CONFIG} may have up to {LONGEST} characters, enough for a time in nanoseconds. Remove further digits."
    if spec in (EARLIEST, LATEST) or _MILLISECONDS.fullmatch(spec):
        return ""
    moment = _moment(spec)
    if moment is None:
        return f"{CONFIG} must be earliest, latest, a time such as 2026-11-21T03:00:00Z, or Unix milliseconds."
    return "" if moment >= _EPOCH else f"{CONFIG} must not lie before 1970."


def check_start(spec: str) -> None:
    """Raise MISCONFIGURATION_ERROR for a text that is not a valid start."""
    problem = start_problem(spec)
    if problem:
        raise LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, problem)


def start_time_ms(spec: str) -> int | None:
    """Return the time in Unix milliseconds, None for earliest and latest. Raise for what ``check_start`` refuses."""
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
