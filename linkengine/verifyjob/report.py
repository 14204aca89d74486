"""Convert rows of the comparison to values of the report: shortened, printable, deterministic.

A failed Spark query becomes a LinkEngineError, by the Kafka exception in its stack trace. The stack trace itself is not shown:
it does not help on a page, and exceptions about settings may quote secrets.
"""

from __future__ import annotations

import re
from itertools import count
from typing import Any

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import VerifyPlan
from linkengine.domain.ranges import RecordDifference
from linkengine.verifyjob.reading import TOO_FAR

SHOWN_BYTES = 60  # of a key or value
CONTEXT_BYTES = 12  # shown before the first byte that differs
_CAUSES = (
    ("UnknownTopicOrPartitionException", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "a topic or partition does not exist"),
    ("TopicAuthorizationException", ErrorCode.AUTHORIZATION_ERROR, "the credentials may not read a topic"),
    ("GroupAuthorizationException", ErrorCode.AUTHORIZATION_ERROR, "the credentials may not use a consumer group"),
    ("AuthorizationException", ErrorCode.AUTHORIZATION_ERROR, "the credentials lack a right"),
    ("SaslAuthenticationException", ErrorCode.AUTHENTICATION_ERROR, "a cluster refuses the credentials"),
    ("SslAuthenticationException", ErrorCode.AUTHENTICATION_ERROR, "the TLS handshake failed"),
    ("No resolvable bootstrap urls", ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, "a bootstrap server's name has no address"),
    ("TimeoutException", ErrorCode.TIMEOUT_ERROR, "a cluster does not respond in time"),
    (TOO_FAR, ErrorCode.INTERNAL_ERROR, "a record has a time that Spark's own type does not hold"),
    ("header whose name is not UTF-8", ErrorCode.INTERNAL_ERROR, "besides such times, a header has a name that is not UTF-8"),
    ("OutOfMemoryError", ErrorCode.RECORDS_TOO_LARGE, "its records are larger than Spark's memory allows"),
    ("OPERATION_CANCELED", ErrorCode.ILLEGAL_STATE, "it was cancelled, or took too long"),
)
_OWN_ERROR = re.compile(rf"Error: (?P<code>{'|'.join(ErrorCode)}): (?P<message>.+)")


def difference_of(row: Any) -> RecordDifference:
    """Return the difference of a row; each side shows the column that differs, a one-sided record its value."""
    kind = row["kind"]
    source_value, mirror_value = _shown(kind, row["source_record"], row["mirror_record"])
    return RecordDifference(
        partition=row["partition"], offset=row["offset"], kind=kind, source_value=source_value, mirror_value=mirror_value
    )


def _shown(kind: str, source: Any, mirror: Any) -> tuple[str | None, str | None]:
    if kind == "missing":
        return _bytes(source["value"]), None
    if kind == "extra":
        return None, _bytes(mirror["value"])
    if kind == "headers":
        return _headers(source["headers"]), _headers(mirror["headers"])
    if kind == "timestamp":
        return _timestamp(source), _timestamp(mirror)
    return _shown_pair(source[kind], mirror[kind])


def _shown_pair(source: bytes | None, mirror: bytes | None) -> tuple[str, str]:
    """Return both values as text, from shortly before the first byte that differs."""
    if source is None or mirror is None:
        return _bytes(source), _bytes(mirror)
    ends = min(len(source), len(mirror))
    differs_at = next(place for place in count() if place == ends or source[place] != mirror[place])
    start = max(differs_at - CONTEXT_BYTES, 0) if differs_at > SHOWN_BYTES - CONTEXT_BYTES else 0
    return _bytes(source, start=start), _bytes(mirror, start=start)


def _bytes(value: bytes | None, *, start: int = 0) -> str:
    if value is None:
        return "null"
    part = bytes(value[start : start + SHOWN_BYTES])
    text = part.decode("utf-8", errors="backslashreplace")
    text = "".join(character if character.isprintable() else character.encode("unicode_escape").decode() for character in text)
    before = f"(from byte {start}) …" if start else ""
    after = f"… ({len(value)} bytes)" if start + len(part) < len(value) else ""
    return f"{before}{text}{after}"


def _headers(headers: Any) -> str:
    return (
        "none"
        if headers is None
        else "; ".join(f"{_bytes(header['key'].encode())}={_bytes(header['value'])}" for header in headers)
    )


def _timestamp(record: Any) -> str:
    kinds = {-1: "none", 0: "CreateTime", 1: "LogAppendTime"}
    return f"{record['timestamp_ms']} {kinds.get(record['timestamp_type'], '?')}"


def failure_of(error: Exception, *, plan: VerifyPlan) -> LinkEngineError:
    """Return the error for the cause in Spark's stack trace; INTERNAL_ERROR for an unknown cause."""
    trace = str(error)
    own_error = _OWN_ERROR.search(trace)
    if own_error is not None:  # raised by this engine in Spark's Python workers
        return LinkEngineError(ErrorCode(own_error["code"]), f"{_what(plan)} could not be compared: {own_error['message']}")
    for word, code, cause in _CAUSES:
        if word in trace:
            return LinkEngineError(code, f"{_what(plan)} could not be compared: {cause}. Correct that and verify again.")
    return LinkEngineError(
        ErrorCode.INTERNAL_ERROR,
        f"{_what(plan)} could not be compared ({type(error).__name__}). See the log of the Spark server for the cause.",
    )


def _what(plan: VerifyPlan) -> str:
    return f"Source topic {plan.source_topic} and mirror topic {plan.mirror_topic}"
