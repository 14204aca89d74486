"""Decodes and encodes the records of batches of magic 2. Must not know which records are wanted, nor where they go.

Record (KIP-82, KIP-98), every number a zigzag varint but the attributes: length of what follows, attributes int8 (unused),
timestamp delta, offset delta, key length (-1: null), key, value length (-1: null), value, header count, and per header
key length, key, value length (-1: null), value.

aiokafka's compiled codec does the work, on records that are decompressed before: it would do that without a limit. It cannot
hold header keys that are not UTF-8 and takes a first timestamp of -1 for "not set yet"; such batches go through the exact,
slower codec of ``linkengine.batches.exact``.
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

MOST_INFLATED = 16 << 20  # bytes of a batch's records that are held in memory; ``large`` reads those that have more
_AT_ONCE = 256 << 10  # bytes of records that are made at once, which is faster
_UNBOUNDED = 1 << 62
Headers = list[tuple[str, bytes | None]]


class RecordLike(Protocol):
    """One record with its absolute offset; made by the compiled codec, the exact one or the legacy reader."""

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
    """Decode all records of one whole batch of magic 2; with LogAppendTime each has the batch's append time.

    The batch is decompressed at once, its records are made one by one: a million of them take 20 times their bytes in memory.
    Raises CorruptBatchError when the checksum is wrong or the records do not add up: offsets must ascend within the batch.
    Raises InflatedTooFarError where they are larger than ``most``.
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
    """Check the checksum and return the batch without compression (its own checksum and length are then void).

    Raises InflatedTooFarError where its records are larger than ``most``.
    """
    check_crc(view, batch)
    if not view.codec:
        return batch
    plain = decompress(view.codec, batch[RECORDS_AT:], most=most, room=RECORDS_AT)
    length, attributes = len(plain) - LOG_OVERHEAD, view.attributes & LOG_APPEND_TIME_BIT
    HEADER.pack_into(plain, 0, *view._replace(length=length, attributes=attributes))
    return plain


def decode_plain(view: BatchView, plain: memoryview | bytearray) -> Iterator[RecordLike]:
    """Decode what ``plain_batch`` returned; the offsets inside are not checked."""
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
    """Encode records with consecutive offsets (at least one) as one sealed batch with the first one's base offset."""
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
    """Encode chunks that follow each other as one sealed batch; None where only the exact codec could do it.

    Plain batches are decoded record by record on the way, so that no list of a megabyte's records is ever held.
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
    """Answer room for a header, then the uncompressed records; None where the compiled codec has its limits."""
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
    """Compress the records that follow the room for a header, write the header, seal."""
    if codec:
        body[RECORDS_AT:] = compress(codec, memoryview(body)[RECORDS_AT:])
    length = len(body) - LOG_OVERHEAD
    header = BatchView(
        base_offset, length, -1, CURRENT_MAGIC, 0, codec, count - 1, base_timestamp, max_timestamp, -1, -1, -1, count
    )
    HEADER.pack_into(body, 0, *header)
    seal(body)
    return body
