"""Patch a fetched batch in place, so that a destination broker accepts it from a client. Records are never changed.

Changes: base offset 0 and leader epoch -1 (both outside the checksum); transactional bit and delete horizon bit cleared;
producer id, epoch and base sequence replaced by the mirror's own (KIP-98). A batch with the LogAppendTime bit cannot be
patched: consumers do not see its records' own timestamps, so it must be re-encoded.

The checksum is *adjusted* for the changed header, not recomputed. So a batch costs the same few microseconds whatever its size,
and a batch that was damaged in transit stays damaged: the destination refuses it (CORRUPT_MESSAGE), while a recomputed checksum
would hide the damage.
"""

from __future__ import annotations

import struct

import google_crc32c

from linkengine.batches.crcshift import push_through_zeros
from linkengine.batches.view import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    CRC_AT,
    CURRENT_MAGIC,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    RECORDS_AT,
    TRANSACTIONAL_BIT,
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


def carry_checksum(batch: memoryview | bytearray, *, crc: int, before: bytes) -> int:
    """Write and return the checksum for a changed header: ``crc`` was that of the header from its attributes on, ``before``."""
    after = bytes(batch[ATTRIBUTES_AT:RECORDS_AT])
    carried = _carried(crc, before, after, followed_by=len(batch) - RECORDS_AT)
    _CRC.pack_into(batch, CRC_AT, carried)
    return carried


def _carried(crc: int, before: bytes, after: bytes, *, followed_by: int) -> int:
    difference = google_crc32c.value(before) ^ google_crc32c.value(after)
    return crc ^ push_through_zeros(difference, followed_by)


def seal(batch: bytearray) -> None:
    """Write the checksum of a newly encoded batch."""
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
