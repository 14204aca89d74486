"""Turns a fetched batch, in place, into one that a destination broker accepts from a client. Records are never touched.

What changes: base offset 0 and leader epoch -1 (both outside the checksum), the transactional bit and the delete horizon bit
cleared, producer id, epoch and base sequence replaced by the mirror's own (KIP-98). A batch with the LogAppendTime bit cannot
be patched: its records' own timestamps are not the ones consumers see, so it has to be re-encoded.

The checksum is *carried over*, not recomputed: only the effect of the changed header is worked into it. So a batch costs the
same few microseconds whatever its size, and one that was damaged on its way stays damaged: the destination refuses it
(CORRUPT_MESSAGE) where a fresh checksum would have sealed the damage.
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
    LOG_OVERHEAD,
    MAGIC_AT,
    PRODUCER_AT,
    RECORDS_AT,
    TRANSACTIONAL_BIT,
    CorruptBatchError,
    crc32c,
)

SEQUENCES = 1 << 31  # 0 to 2^31-1, then 0 again
_NOT_APPENDABLE = LOG_APPEND_TIME_BIT | CONTROL_BIT
_CLEARED = ~(TRANSACTIONAL_BIT | DELETE_HORIZON_BIT)
_CRC = struct.Struct(">I")
_SEALED = struct.Struct(">bIh")  # magic, checksum, attributes
_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence


def next_sequence(base: int, count: int) -> int:
    """Answer the sequence after ``count`` records from ``base``, wrapping after 2^31-1 as brokers expect."""
    return (base + count) % SEQUENCES


def patch_for_append(batch: memoryview | bytearray, *, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Patch one whole, writable batch of magic 2; its checksum stays right if it was right. Safe to repeat for a retry."""
    magic, crc, attributes = _SEALED.unpack_from(batch, MAGIC_AT)
    if magic != CURRENT_MAGIC or attributes & _NOT_APPENDABLE:
        (offset,) = _OFFSET.unpack_from(batch)
        raise CorruptBatchError(
            f"The batch at offset {offset} (magic {magic}, attributes {attributes:#x}) "
            "cannot be appended as it is; it must be re-encoded."
        )
    before = bytes(batch[ATTRIBUTES_AT:RECORDS_AT])
    _OFFSET.pack_into(batch, 0, 0)
    _LEADER_EPOCH.pack_into(batch, LOG_OVERHEAD, -1)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes & _CLEARED)
    _PRODUCER.pack_into(batch, PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    carry_checksum(batch, crc=crc, before=before)


def carry_checksum(batch: memoryview | bytearray, *, crc: int, before: bytes) -> int:
    """Write and answer the checksum that was ``crc`` when the header, from its attributes on, was ``before``."""
    after = bytes(batch[ATTRIBUTES_AT:RECORDS_AT])
    difference = google_crc32c.value(before) ^ google_crc32c.value(after)
    carried = crc ^ push_through_zeros(difference, len(batch) - RECORDS_AT)
    _CRC.pack_into(batch, CRC_AT, carried)
    return carried


def seal(batch: bytearray) -> None:
    """Write the checksum of a batch that was made here."""
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
