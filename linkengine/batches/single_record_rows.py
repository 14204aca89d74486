"""Merge rows of single-record batches, the most expensive kind of log, without decoding them. Pure.

A producer without batching writes such a row. Its batches differ from the merged batch only in three numbers per record: the
record's length, its timestamp delta and its offset delta; the rest (key, value, headers) is copied. Anything else ends the row
and is left to ``coalesce``: other codecs, control batches, damaged batches, records with inconsistent numbers.

Record of such a batch: length varint, attributes 0, timestamp delta 0, offset delta 0, rest (``linkengine.batches.records``).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c

from linkengine.batches.exact import varint
from linkengine.batches.patch import seal
from linkengine.batches.steps import Append
from linkengine.batches.view import ATTRIBUTES_AT, CURRENT_MAGIC, HEADER, LOG_OVERHEAD, RECORDS_AT, TRANSACTIONAL_BIT

LEAST_ROW = 8  # shorter rows are left to ``coalesce``
LARGEST = 8_000  # bytes of a batch: the length of its record fits in two bytes
SMALLEST = RECORDS_AT - LOG_OVERHEAD + 7  # a record has at least seven bytes
# base offset, length, magic, checksum, attributes, last offset delta, base timestamp, max timestamp, record count
_FIELDS = struct.Struct(">qi4xbIhiqq14xi")
_VARINTS = [varint(value) for value in range(1 << 15)]
_ZERO = b"\x00"
_ZEROS = b"\x00\x00\x00"
_BODY_AT = RECORDS_AT - ATTRIBUTES_AT
_OVERHEAD = 12  # maximum of a record in a batch


class Row(NamedTuple):
    """Consecutive offsets as merged batches, and the end of the row in the buffer."""

    appends: list[Append]
    end: int
    next_offset: int


class _Merger:
    """A merged batch under construction."""

    __slots__ = ("base_offset", "base_timestamp", "count", "newest", "parts", "size")

    def __init__(self, base_offset: int, timestamp: int) -> None:
        self.base_offset, self.base_timestamp, self.newest = base_offset, timestamp, timestamp
        self.parts: list[bytes] = []
        self.count, self.size = 0, RECORDS_AT

    def finish(self) -> Append:
        payload = bytearray(RECORDS_AT) + b"".join(self.parts)
        count, length = self.count, len(payload) - LOG_OVERHEAD
        times = (self.base_timestamp, self.newest)
        HEADER.pack_into(payload, 0, self.base_offset, length, -1, CURRENT_MAGIC, 0, 0, count - 1, *times, -1, -1, -1, count)
        seal(payload)
        return Append(self.base_offset, count, memoryview(payload), count, self.newest)


def merge_row(buffer: memoryview, position: int, *, high_end: int, transactional: bool, coalesce_bytes: int) -> Row:
    """Return the merged row that begins at ``position``, up to its end; it may be empty.

    ``transactional``: committed transactional data may be in the row. Nothing at or beyond ``high_end`` is included.
    """
    ignored = ~TRANSACTIONAL_BIT if transactional else -1
    appends: list[Append] = []
    merger: _Merger | None = None
    end, unpack, checksum, varints = len(buffer), _FIELDS.unpack_from, google_crc32c.value, _VARINTS
    known, next_offset = len(varints), -1
    while end - position > RECORDS_AT:
        offset, length, magic, crc, attributes, delta, timestamp, newest, count = unpack(buffer, position)
        after = position + length + LOG_OVERHEAD
        if (
            magic != CURRENT_MAGIC or attributes & ignored or count != 1 or delta or after > end
            or not SMALLEST <= length <= LARGEST
            or timestamp != newest or timestamp < 0 or offset >= high_end or (offset != next_offset and next_offset >= 0)
        ):  # fmt: skip
            break
        body = bytes(buffer[position + ATTRIBUTES_AT : after])
        rest_at = _rest_at(body)
        if not rest_at or checksum(body) != crc:
            break
        if merger is None or merger.size + len(body) > coalesce_bytes:
            if merger is not None:
                appends.append(merger.finish())
            merger = _Merger(offset, timestamp)
        since, number = timestamp - merger.base_timestamp, merger.count
        age = varints[since] if 0 <= since < known else varint(since)
        place = varints[number]
        rest = body[rest_at:]
        merger.parts += (varints[1 + len(age) + len(place) + len(rest)], _ZERO, age, place, rest)
        merger.count = number + 1
        merger.size += len(rest) + _OVERHEAD
        merger.newest = max(merger.newest, timestamp)
        position, next_offset = after, offset + 1
        if number + 2 >= known:
            appends.append(merger.finish())
            merger = None
    if merger is not None:
        appends.append(merger.finish())
    return Row(appends, position, next_offset)


def _rest_at(body: bytes) -> int:
    """Return where key, value and headers begin in a batch from its attributes on; 0 if it does not have this shape."""
    at = _BODY_AT
    size = body[at]
    at += 1
    if size >= 0x80:
        size = size & 0x7F | body[at] << 7
        at += 1
    return at + 3 if size == 2 * (len(body) - at) and body[at : at + 3] == _ZEROS else 0
