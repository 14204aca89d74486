"""Decode whole batches of any format: magic 2, and the formats before Kafka 0.11 that logs may still hold.

Magic 0 and 1 (KIP-31, KIP-32) are never written. A message of theirs, big endian: offset int64, size int32, CRC-32 uint32,
magic int8, attributes int8, timestamp int64 (magic 1), key and value, each an int32 length (-1: null) and bytes. A compressed
message wraps a whole message set in its value: inside, magic 0 has absolute offsets, magic 1 offsets relative to the first, and
the wrapper carries the absolute offset of the last.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from linkengine.batches.compression import decompress
from linkengine.batches.exact import Record
from linkengine.batches.records import RecordLike, decode_records
from linkengine.batches.view import (
    CURRENT_MAGIC,
    LEGACY_HEADER,
    LEGACY_TIMESTAMP,
    LOG_OVERHEAD,
    RECORDS_AT,
    BatchView,
    CorruptBatchError,
    check_crc,
    iter_batches,
)

MOST_INFLATED = 64 << 20  # bytes inside a wrapper; they cannot be read in pieces, since the last offset shifts all others
_LENGTH = struct.Struct(">i")


def decode_batch(view: BatchView, batch: memoryview) -> Iterator[RecordLike]:
    """Return all records of a whole batch, in offset order; raise CorruptBatchError for a damaged batch.

    A compressed message of magic 0 or 1 carries the offset of its last record; only its records show where it begins. Raises
    DecompressedTooLargeError, a CorruptBatchError, if the records are larger than the memory limit; ``large`` reads such
    batches of magic 2. Both are raised at the call, unless only a later record is damaged.
    """
    return decode_records(view, batch) if view.magic == CURRENT_MAGIC else decode_legacy(view, batch)


def decode_legacy(view: BatchView, message: memoryview) -> Iterator[Record]:
    """Return the records of a whole message of magic 0 or 1, also a wrapper, with absolute ascending offsets.

    Magic 0 has no timestamps: they are -1, as when brokers convert it. Raises CorruptBatchError for damaged messages,
    DecompressedTooLargeError if the wrapped messages are larger than MOST_INFLATED.
    """
    check_crc(view, message)
    if not view.codec:
        return iter([_record(view, message)])
    inner = _unwrap(view, message)
    newest = before = -1
    for _, inner_view in _messages(view, inner):
        newest = inner_view.base_offset
        if newest <= before:
            raise CorruptBatchError(f"The messages compressed at offset {view.base_offset} are not in order.")
        before = newest
    if newest < 0:
        raise CorruptBatchError(f"The compressed message at offset {view.base_offset} holds no message.")
    return _wrapped(view, inner, shift=view.base_offset - newest if view.magic else 0)


def compressed_part(view: BatchView, batch: memoryview) -> memoryview:
    """Return what the codec of a whole batch applies to: the records, or what a message of magic 0 or 1 wraps.

    A message that wraps nothing is returned as it is.
    """
    if view.magic == CURRENT_MAGIC:
        return batch[RECORDS_AT:]
    return memoryview(_record(view, batch).value or b"") if view.codec else batch


def _wrapped(view: BatchView, inner: memoryview, *, shift: int) -> Iterator[Record]:
    for start, inner_view in _messages(view, inner):
        record = _record(inner_view, inner[start : start + inner_view.size])
        timestamp = view.max_timestamp if view.log_append_time else record.timestamp
        yield record._replace(offset=record.offset + shift, timestamp=timestamp)


def _unwrap(view: BatchView, message: memoryview) -> memoryview:
    return memoryview(decompress(view.codec, _record(view, message).value or b"", most=MOST_INFLATED))


def _messages(view: BatchView, inner: memoryview) -> Iterator[tuple[int, BatchView]]:
    for start, inner_view in iter_batches(inner):
        if inner_view.magic != view.magic or inner_view.codec:
            raise CorruptBatchError(f"The compressed message at offset {view.base_offset} holds messages of another format.")
        yield start, inner_view


def _record(view: BatchView, message: memoryview) -> Record:
    position = LEGACY_HEADER.size + (LEGACY_TIMESTAMP.size if view.magic else 0)
    key, position = _nullable(message, position)
    value, position = _nullable(message, position)
    if position != view.length + LOG_OVERHEAD:
        raise CorruptBatchError(f"The message at offset {view.base_offset} does not have the size it claims.")
    return Record(view.base_offset, view.max_timestamp, key, value, [])


def _nullable(message: memoryview, position: int) -> tuple[bytes | None, int]:
    if position + _LENGTH.size > len(message):
        raise CorruptBatchError("A message ends before its key or value.")
    (size,) = _LENGTH.unpack_from(message, position)
    position += _LENGTH.size
    if size < 0:
        return None, position
    if position + size > len(message):
        raise CorruptBatchError(f"A message ends before the {size} bytes its key or value claims.")
    return bytes(message[position : position + size]), position + size
