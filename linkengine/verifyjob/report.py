"""Convert rows of the comparison to values of the report: shortened, printable, deterministic."""

from __future__ import annotations

from itertools import count
from typing import Any

from linkengine.domain.coverage import RecordDifference

SHOWN_BYTES = 60  # of a key or value
CONTEXT_BYTES = 12  # shown before the first byte that differs


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
