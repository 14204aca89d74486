"""Decode and encode the records of batches of magic 2. Must not know which records are wanted, nor their destination.

Record (KIP-82, KIP-98), every number a zigzag varint except the attributes: length of the rest, attributes int8 (unused),
timestamp delta, offset delta, key length (-1: null), key, value length (-1: null), value, header count, and per header
key length, key, value length (-1: null), value.

aiokafka's compiled codec does the work, on records that are decompressed before, since it would decompress without a limit. It
cannot hold header keys that are not UTF-8 and takes a first timestamp of -1 as "not set yet"; such batches use the slower codec
of ``linkengine.batches.exact``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from linkengine.batches import exact
from linkengine.batches.compression import compress, decompress
from linkengine.batches.patch import seal
from linkengine.batches.view import (
    CURRENT_MAGIC,
    HEADER,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    RECORDS_AT,
    BatchView,
    CorruptBatchError,
    check_crc,
)

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


def plain_batch(view: BatchView, batch: memoryview, *, most: int = MOST_INFLATED) -> memoryview | bytearray:
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
        yield from islice(exact.decode(view, memoryview(plain)[RECORDS_AT:]), made, None)
    except (CorruptRecordException, ValueError) as error:
        raise CorruptBatchError(f"The records at offset {view.base_offset} cannot be read: {error}.") from error


def encode_records(records: Sequence[RecordLike], *, codec: int) -> bytearray:
    """Return records with consecutive offsets (at least one) as a sealed batch with the base offset of the first."""
    body = _compiled_body([records])
    if body is None:
        body = exact.encode(records)
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
    seal(body)
    return body
