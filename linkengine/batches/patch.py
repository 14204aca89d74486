"""Patch a fetched batch in place, so that a destination broker accepts it from a client. Records are never changed.

Changes: base offset 0 and leader epoch -1 (both outside the checksum); transactional bit and delete horizon bit cleared;
producer id, epoch and base sequence replaced by the mirror's own (KIP-98). A batch with the LogAppendTime bit cannot be
patched: consumers do not see its records' own timestamps, so it must be re-encoded.

The checksum is *adjusted* for the changed header, not recomputed. So a batch costs the same few microseconds whatever its size,
and a batch that was damaged in transit stays damaged: the destination refuses it (CORRUPT_MESSAGE), while a recomputed checksum
would hide the damage.

How a checksum is adjusted without reading the unchanged bytes: a CRC is linear over GF(2) apart from its initial and final
inversion, which cancel between two messages of the same length: ``crc(a) ^ crc(b)`` depends only on ``a ^ b``. If the
difference lies in a prefix, its effect on the whole message is its effect on the prefix, shifted through as many zero bytes as
follow. A shift through zeros is a linear map of 32 bits, stored as four tables of 256 entries. Zeros are counted in rows of 512
bytes, and the number of rows in digits of eight bits, with a map per digit value: a single map for a batch of up to 128 KB, two
for up to 32 MB. The rest of less than a row is computed by the checksum itself, on real zeros. At a throughput of megabytes, a
cache miss costs more than all arithmetic: hence few, small tables. Polynomial: Castagnoli, 0x1EDC6F41, reflected (RFC 3720,
appendix B.4).

``restamp`` sets the timestamp of a single-record batch with LogAppendTime to its append time. With LogAppendTime the timestamp
of every record is the batch's max timestamp, whatever the record holds; a client may not send such a batch. A single record
whose timestamp delta is 0 needs no decoding: base timestamp and attributes are in the header. If it is compressed, only its
first bytes are decompressed to read the delta. So a message of 100 MB needs no second buffer, and a log of single-record
batches costs the same as without LogAppendTime. The checksum is adjusted here as well. Pure.
"""

from __future__ import annotations

import struct
from array import array
from functools import cache
from typing import TypeAlias

import google_crc32c

from linkengine.batches.compression import HEAD_BYTES, decompress_head
from linkengine.batches.view import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    CRC_AT,
    CURRENT_MAGIC,
    DELETE_HORIZON_BIT,
    HEADER,
    LOG_APPEND_TIME_BIT,
    RECORDS_AT,
    TRANSACTIONAL_BIT,
    BatchView,
    CorruptBatchError,
    crc32c,
)

SEQUENCES = 1 << 31  # 0 to 2^31-1, then 0 again
_NOT_APPENDABLE = LOG_APPEND_TIME_BIT | CONTROL_BIT
_CLEARED = ~(TRANSACTIONAL_BIT | DELETE_HORIZON_BIT)
_CRC = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
# length, magic, checksum; then the checksummed fields: attributes, last offset delta and timestamps, producer, record count
_FOUND = struct.Struct(">8xi4xbIh20s14x4s")
_COVERED = struct.Struct(">h20sqhi4s")
_HEADER = struct.Struct(">qiibI40s")  # base offset, length, leader epoch, magic, checksum, checksummed fields
ROW = 1 << 9  # bytes
_DIGIT_BITS = 8
_DIGIT = (1 << _DIGIT_BITS) - 1
_ZEROS = bytes(ROW)
_ONES = 0xFFFFFFFF
_POLYNOMIAL = 0x82F63B78  # reflected
_Columns = list[int]  # images of the 32 unit vectors
_Table: TypeAlias = "array[int]"  # of 32 bits: a tenth of the memory of a list
_Tables = tuple[_Table, _Table, _Table, _Table]
_MORE = 0x80  # continuation bit of a varint byte


def next_sequence(base: int, count: int) -> int:
    """Return the sequence after ``count`` records from ``base``, wrapping after 2^31-1 as brokers expect."""
    return (base + count) % SEQUENCES


def patch_for_append(batch: memoryview | bytearray, *, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Patch a whole, writable batch of magic 2; a correct checksum stays correct. Can be repeated for a retry."""
    length, magic, crc, attributes, extent, count = _FOUND.unpack_from(batch)
    if magic != CURRENT_MAGIC or attributes & _NOT_APPENDABLE:
        (offset,) = _OFFSET.unpack_from(batch)
        raise CorruptBatchError(
            f"The batch at offset {offset} (magic {magic}, attributes {attributes:#x}) "
            "cannot be appended as it is; it must be re-encoded."
        )
    before = bytes(batch[ATTRIBUTES_AT:RECORDS_AT])
    after = _COVERED.pack(attributes & _CLEARED, extent, producer_id, producer_epoch, base_sequence, count)
    carried = _carried(crc, before, after, followed_by=len(batch) - RECORDS_AT)
    _HEADER.pack_into(batch, 0, 0, length, -1, magic, carried, after)


def adjust_checksum(batch: memoryview | bytearray, *, crc: int, before: bytes) -> int:
    """Write and return the checksum for a changed header: ``crc`` was that of the header from its attributes on, ``before``."""
    after = bytes(batch[ATTRIBUTES_AT:RECORDS_AT])
    carried = _carried(crc, before, after, followed_by=len(batch) - RECORDS_AT)
    _CRC.pack_into(batch, CRC_AT, carried)
    return carried


def _carried(crc: int, before: bytes, after: bytes, *, followed_by: int) -> int:
    difference = google_crc32c.value(before) ^ google_crc32c.value(after)
    return crc ^ shift_through_zeros(difference, followed_by)


def write_checksum(batch: bytearray) -> None:
    """Write the checksum of a newly encoded batch."""
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))


def shift_through_zeros(value: int, count: int) -> int:
    """Return the checksum difference ``value`` after ``count`` more equal bytes; O(log count)."""
    value = google_crc32c.extend(value ^ _ONES, _ZEROS[: count % ROW]) ^ _ONES  # without the inversions at both ends
    rows, digit = count // ROW, _DIGIT
    while rows:
        if rows & digit:
            first, second, third, fourth = _tables(rows & digit)
            value = first[value & 255] ^ second[value >> 8 & 255] ^ third[value >> 16 & 255] ^ fourth[value >> 24]
            rows &= ~digit
        digit <<= _DIGIT_BITS
    return value


@cache
def _tables(rows: int) -> _Tables:
    columns = _columns(rows * ROW)
    first, second, third, fourth = (_expand(columns[start : start + 8]) for start in (0, 8, 16, 24))
    return first, second, third, fourth


def _expand(columns: _Columns) -> array[int]:
    """Return the table of a linear map of eight bits: each new column doubles it."""
    table = array("I", [0])
    for column in columns:
        table.extend([entry ^ column for entry in table])
    return table


@cache
def _columns(zeros: int) -> _Columns:
    """Return the images of the unit vectors under ``zeros`` zero bytes (at least 1)."""
    if zeros == 1:
        return [_shift_by_byte(1 << bit) for bit in range(32)]
    half = _columns(zeros // 2)
    rest = _columns(zeros - zeros // 2)
    return [_apply(rest, image) for image in half]


def _shift_by_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


def _apply(columns: _Columns, value: int) -> int:
    image = 0
    for column in columns:
        if value & 1:
            image ^= column
        value >>= 1
    return image


def restamp(view: BatchView, batch: memoryview) -> BatchView | None:
    """Rewrite the header of a dense batch of magic 2; return the new header, or None if its records must be decoded."""
    if view.record_count != 1:
        return None
    records = batch[RECORDS_AT:]
    if not _has_no_delta(decompress_head(view.codec, records) if view.codec else bytes(records[:HEAD_BYTES])):
        return None
    stamped = view._replace(attributes=view.attributes & ~LOG_APPEND_TIME_BIT, base_timestamp=view.max_timestamp)
    before = bytes(batch[ATTRIBUTES_AT:RECORDS_AT])
    HEADER.pack_into(batch, 0, *stamped)
    return stamped._replace(crc=adjust_checksum(batch, crc=view.crc, before=before))


def _has_no_delta(head: bytes) -> bool:
    at = 0
    while at < len(head) and head[at] & _MORE:  # the record's length
        at += 1
    return head[at + 1 : at + 3] == b"\0\0"  # attributes, timestamp delta
