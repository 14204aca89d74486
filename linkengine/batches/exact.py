"""The record codec in plain Python: slower than the compiled codec, without its limits. Must not know compression.

Layout as in ``linkengine.batches.records``. Header keys that are not UTF-8 keep their bytes through surrogate escapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from linkengine.batches.view import RECORDS_AT, BatchView, CorruptBatchError

if TYPE_CHECKING:
    from linkengine.batches.records import Headers, RecordLike

_VARINT_MAX_BYTES = 10
_NULL = b"\x01"  # length -1


class Record(NamedTuple):
    """A record with its absolute offset and timestamp in Unix milliseconds (-1: none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def varint(value: int) -> bytes:
    """Return a signed number as zigzag varint: seven bits per byte, lowest first."""
    rest = value << 1 ^ value >> 63
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class _Reader:
    """A position in uncompressed records that never passes their end."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._position = 0

    @property
    def position(self) -> int:
        return self._position

    def varint(self) -> int:
        value = shift = 0
        for byte in self._data[self._position : self._position + _VARINT_MAX_BYTES]:
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
            shift += 7
        raise CorruptBatchError(f"The records end inside a number at byte {self._position}.")

    def take(self, size: int) -> bytes:
        if size < 0 or self._position + size > len(self._data):
            raise CorruptBatchError(f"The records end before the {size} bytes promised at byte {self._position}.")
        start = self._position
        self._position += size
        return bytes(self._data[start : self._position])

    def nullable(self) -> bytes | None:
        size = self.varint()
        return None if size == -1 else self.take(size)


def decode(view: BatchView, body: bytes | memoryview) -> Iterator[Record]:
    """Yield the records of ``body``, the uncompressed records of the batch with header ``view``."""
    reader = _Reader(body)
    for _ in range(view.record_count):
        length = reader.varint()
        end = reader.position + length
        yield _record(view, reader)
        if reader.position != end:
            raise CorruptBatchError(f"A record at offset {view.base_offset} or later does not have the length it claims.")
    if reader.position != len(body):
        raise CorruptBatchError(f"{len(body) - reader.position} bytes follow the last record at offset {view.base_offset}.")


def _record(view: BatchView, reader: _Reader) -> Record:
    reader.take(1)  # attributes, unused
    timestamp = view.base_timestamp + reader.varint()
    offset = view.base_offset + reader.varint()
    key = reader.nullable()
    value = reader.nullable()
    count = reader.varint()
    headers = [(reader.take(reader.varint()).decode("utf-8", "surrogateescape"), reader.nullable()) for _ in range(count)]
    return Record(offset, view.max_timestamp if view.log_append_time else timestamp, key, value, headers)


def encode(records: Sequence[RecordLike]) -> bytearray:
    """Return space for a batch header, followed by the uncompressed records with deltas relative to the first record."""
    out = bytearray(RECORDS_AT)
    base_timestamp = records[0].timestamp
    for delta, record in enumerate(records):
        parts = [
            b"\0",
            varint(record.timestamp - base_timestamp),
            varint(delta),
            _nullable(record.key),
            _nullable(record.value),
        ]
        parts.append(varint(len(record.headers)))
        for key, value in record.headers:
            raw = key.encode("utf-8", "surrogateescape")
            parts += (varint(len(raw)), raw, _nullable(value))
        body = b"".join(parts)
        out += varint(len(body))
        out += body
    return out


def _nullable(data: bytes | None) -> bytes:
    return _NULL if data is None else varint(len(data)) + data
