"""Decode and encode records: magic 2, by the compiled codec or in plain Python; older formats; control batches.

A record of magic 2 (KIP-82, KIP-98), every number a zigzag varint except the attributes: length of the rest, attributes int8
(unused), timestamp delta, offset delta, key length (-1: null), key, value length (-1: null), value, header count, and per
header key length, key, value length (-1: null), value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice
from typing import NamedTuple, Protocol

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from linkengine.batches.compression import compress, decompress
from linkengine.batches.patch import write_checksum
from linkengine.batches.view import (
    CURRENT_MAGIC,
    HEADER,
    LEGACY_HEADER,
    LEGACY_TIMESTAMP,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    RECORDS_AT,
    BatchView,
    CorruptBatchError,
    check_crc,
    iter_batches,
)

# --- magic 2 in plain Python ---------------------------------------------------------------------------------------------
# Slower than the compiled codec, without its limits; input is decompressed. Header keys that are not UTF-8 keep their bytes
# through surrogate escapes.


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


# --- magic 2 by the compiled codec ---------------------------------------------------------------------------------------
# aiokafka's codec does the work, on records that are decompressed before, since it would decompress without a limit. It cannot
# hold header keys that are not UTF-8 and takes a first timestamp of -1 as "not set yet"; such batches use the codec in plain
# Python.


MOST_INFLATED = 16 << 20  # memory limit for the records of a batch; ``large`` reads batches with more
_AT_ONCE = 256 << 10  # up to this size all records are decoded at once, which is faster
_UNBOUNDED = 1 << 62
Headers = list[tuple[str, bytes | None]]


class RecordLike(Protocol):
    """A record with its absolute offset; from the compiled codec, the exact codec or the legacy reader."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


def decode_records(view: BatchView, batch: memoryview, *, most: int = MOST_INFLATED) -> Iterator[RecordLike]:
    """Return the records of a whole batch of magic 2; with LogAppendTime each has the batch's append time.

    The batch is decompressed at once, but its records are created one at a time: a million of them take 20 times their bytes in
    memory. Raises CorruptBatchError if the checksum is wrong or the offsets do not ascend within the batch, and
    DecompressedTooLargeError if the records are larger than ``most``.
    """
    plain = plain_batch(view, batch, most=most)
    return _ascending(view, decode_plain(view, plain))


def _ascending(view: BatchView, records: Iterator[RecordLike]) -> Iterator[RecordLike]:
    before = view.base_offset - 1
    for record in records:
        if not before < record.offset < view.next_offset:
            raise CorruptBatchError(f"A record of the batch at offset {view.base_offset} claims the offset {record.offset}.")
        before = record.offset
        yield record


def plain_batch(view: BatchView, batch: memoryview, *, most: int) -> memoryview | bytearray:
    """Check the checksum and return the uncompressed batch (its own checksum and length are then invalid).

    Raises DecompressedTooLargeError if its records are larger than ``most``.
    """
    check_crc(view, batch)
    if not view.codec:
        return batch
    plain = decompress(view.codec, batch[RECORDS_AT:], most=most, reserve=RECORDS_AT)
    length, attributes = len(plain) - LOG_OVERHEAD, view.attributes & LOG_APPEND_TIME_BIT
    HEADER.pack_into(plain, 0, *view._replace(length=length, attributes=attributes))
    return plain


def decode_plain(view: BatchView, plain: memoryview | bytearray) -> Iterator[RecordLike]:
    """Yield the records of the result of ``plain_batch``; their offsets are not checked."""
    made = 0
    try:
        if len(plain) <= _AT_ONCE:
            yield from list(DefaultRecordBatch(plain))
            return
        for record in DefaultRecordBatch(plain):
            yield record
            made += 1
    except UnicodeDecodeError:
        yield from islice(decode(view, memoryview(plain)[RECORDS_AT:]), made, None)
    except (CorruptRecordException, ValueError) as error:
        raise CorruptBatchError(f"The records at offset {view.base_offset} cannot be read: {error}.") from error


def encode_records(records: Sequence[RecordLike], *, codec: int) -> bytearray:
    """Return records with consecutive offsets (at least one) as a sealed batch with the base offset of the first."""
    body = _compiled_body([records])
    if body is None:
        body = encode(records)
    return _finish(
        body,
        codec=codec,
        base_offset=records[0].offset,
        base_timestamp=records[0].timestamp,
        max_timestamp=max(record.timestamp for record in records),
        count=len(records),
    )


Chunk = Sequence[RecordLike] | memoryview | bytearray  # decoded records, or a plain batch


def encode_chunks(chunks: Sequence[Chunk], *, codec: int, base_offset: int, max_timestamp: int, count: int) -> bytearray | None:
    """Return contiguous chunks as a single sealed batch; None if only the exact codec could encode it.

    Plain batches are decoded a record at a time, so that a list of a megabyte's records never exists.
    """
    body = _compiled_body(chunks)
    if body is None:
        return None
    base_timestamp = _first_timestamp(chunks[0])
    return _finish(
        body, codec=codec, base_offset=base_offset, base_timestamp=base_timestamp, max_timestamp=max_timestamp, count=count
    )


def _first_timestamp(chunk: Chunk) -> int:
    timestamp: int = next(iter(_records_of(chunk))).timestamp
    return timestamp


def _records_of(chunk: Chunk) -> Iterable[RecordLike]:
    return DefaultRecordBatch(chunk) if isinstance(chunk, (memoryview, bytearray)) else chunk


def _compiled_body(chunks: Sequence[Chunk]) -> bytearray | None:
    """Return space for a header, then the uncompressed records; None if the compiled codec cannot encode them."""
    builder = DefaultRecordBatchBuilder(CURRENT_MAGIC, 0, 0, -1, -1, -1, _UNBOUNDED)
    append, delta = builder.append, 0
    try:
        if _first_timestamp(chunks[0]) == NO_TIMESTAMP:
            return None
        for chunk in chunks:
            for record in _records_of(chunk):
                append(delta, record.timestamp, record.key, record.value, record.headers)
                delta += 1
    except UnicodeError:
        return None
    except CorruptRecordException as error:
        raise CorruptBatchError(f"The records of a batch to be merged cannot be read: {error}.") from error
    body: bytearray = builder.build()
    return body


def _finish(body: bytearray, *, codec: int, base_offset: int, base_timestamp: int, max_timestamp: int, count: int) -> bytearray:
    """Compress the records behind the space for the header, write the header and the checksum."""
    if codec:
        body[RECORDS_AT:] = compress(codec, memoryview(body)[RECORDS_AT:])
    length = len(body) - LOG_OVERHEAD
    header = BatchView(
        base_offset, length, -1, CURRENT_MAGIC, 0, codec, count - 1, base_timestamp, max_timestamp, -1, -1, -1, count
    )
    HEADER.pack_into(body, 0, *header)
    write_checksum(body)
    return body


# --- batches of any format -----------------------------------------------------------------------------------------------
# Magic 2, and the formats before Kafka 0.11 that logs may still hold. Magic 0 and 1 (KIP-31, KIP-32) are never written. A
# message of theirs, big endian: offset int64, size int32, CRC-32 uint32, magic int8, attributes int8, timestamp int64 (magic
# 1), key and value, each an int32 length (-1: null) and bytes. A compressed message wraps a whole message set in its value:
# inside, magic 0 has absolute offsets, magic 1 offsets relative to the first, and the wrapper carries the absolute offset of
# the last.


MOST_WRAPPED = 64 << 20  # bytes inside a wrapper; they cannot be read in pieces, since the last offset shifts all others
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
        return iter([_old_record(view, message)])
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
    return memoryview(_old_record(view, batch).value or b"") if view.codec else batch


def _wrapped(view: BatchView, inner: memoryview, *, shift: int) -> Iterator[Record]:
    for start, inner_view in _messages(view, inner):
        record = _old_record(inner_view, inner[start : start + inner_view.size])
        timestamp = view.max_timestamp if view.log_append_time else record.timestamp
        yield record._replace(offset=record.offset + shift, timestamp=timestamp)


def _unwrap(view: BatchView, message: memoryview) -> memoryview:
    return memoryview(decompress(view.codec, _old_record(view, message).value or b"", most=MOST_WRAPPED))


def _messages(view: BatchView, inner: memoryview) -> Iterator[tuple[int, BatchView]]:
    for start, inner_view in iter_batches(inner):
        if inner_view.magic != view.magic or inner_view.codec:
            raise CorruptBatchError(f"The compressed message at offset {view.base_offset} holds messages of another format.")
        yield start, inner_view


def _old_record(view: BatchView, message: memoryview) -> Record:
    position = LEGACY_HEADER.size + (LEGACY_TIMESTAMP.size if view.magic else 0)
    key, position = _old_bytes(message, position)
    value, position = _old_bytes(message, position)
    if position != view.length + LOG_OVERHEAD:
        raise CorruptBatchError(f"The message at offset {view.base_offset} does not have the size it claims.")
    return Record(view.base_offset, view.max_timestamp, key, value, [])


def _old_bytes(message: memoryview, position: int) -> tuple[bytes | None, int]:
    if position + _LENGTH.size > len(message):
        raise CorruptBatchError("A message ends before its key or value.")
    (size,) = _LENGTH.unpack_from(message, position)
    position += _LENGTH.size
    if size < 0:
        return None, position
    if position + size > len(message):
        raise CorruptBatchError(f"A message ends before the {size} bytes its key or value claims.")
    return bytes(message[position : position + size]), position + size


# --- control batches -----------------------------------------------------------------------------------------------------
# The markers that brokers write between records. A control batch holds a single record whose key is version int16, type int16
# (KIP-98; the other types belong to KRaft's own log). For a mirror every control batch is an offset without a record; the type
# matters only for the end of an aborted transaction.


_LARGEST = 1 << 10  # bytes of a marker's record; brokers do not compress it
_KEY = struct.Struct(">hh")  # version, type


class ControlType(IntEnum):
    """The type of a control record; data topics hold only the first two."""

    UNKNOWN = -1  # from a newer broker, or the log cleaner has emptied the batch
    ABORT = 0  # ends a transaction: its records must not be read
    COMMIT = 1
    LEADER_CHANGE = 2  # KRaft metadata log, as are the following
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def is_commit(view: BatchView, batch: memoryview) -> bool:
    """Return whether a whole batch is a COMMIT marker."""
    return view.is_control and control_type(view, batch) is ControlType.COMMIT


def control_type(view: BatchView, batch: memoryview) -> ControlType:
    """Return the marker type of a whole control batch."""
    if view.record_count == 0:
        return ControlType.UNKNOWN
    record = next(decode_records(view, batch, most=_LARGEST), None)
    key = record.key if record is not None else None
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError(f"The control batch at offset {view.base_offset} has no type in its key.")
    _, number = _KEY.unpack_from(key)
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN
