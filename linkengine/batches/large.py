"""Batches that are large once decompressed: read and rewrite them in pieces, and estimate a consumer's memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Protocol

from linkengine.batches.compression import DecompressedTooLargeError, deflater, inflate, size_limit
from linkengine.batches.patch import write_checksum
from linkengine.batches.records import RecordLike, compressed_part, decode_batch, varint
from linkengine.batches.steps import Append
from linkengine.batches.view import CURRENT_MAGIC, HEADER, LOG_OVERHEAD, RECORDS_AT, BatchView, CorruptBatchError, check_crc

# --- read and rewrite in pieces ------------------------------------------------------------------------------------------
# An ordinary batch is decompressed as a whole and decoded by the compiled codec (``records``). A batch whose records exceed the
# memory limit ``records.MOST_INFLATED`` is read here: its bytes come in pieces of at most a few megabytes, and only the leading
# numbers of each record are decoded. The rest (key, value, headers) is passed on piece by piece, hashed, or skipped. So memory
# does not depend on the size of a batch or record (ADR 0031). It is slower, about 200,000 records per second.
#
# Record: length varint, attributes int8, timestamp delta varint, offset delta varint, *rest*. Rewriting changes the three
# numbers and the length; the rest is copied.


RUN_BYTES = 16 << 20  # decompressed bytes per rewritten batch; a larger record gets a batch of its own
DIGEST_BYTES = 16
_SMALLEST_RUN = 64 << 10
_BLOCK_BYTES = 64 << 10  # passed to a codec per call
_VARINT_MAX_BYTES = 10
_ABSENT, _PRESENT = b"\0", b"\1"


class Hash(Protocol):
    """A hash function for input in pieces."""

    def update(self, data: bytes, /) -> None: ...


class _Source:
    """Decompressed bytes that are read once, from start to end."""

    __slots__ = ("_at", "_pieces", "_window", "position")

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._window, self._at = b"", 0
        self.position = 0

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes."""
        while size:
            if self._at == len(self._window):
                self._window, self._at = next(self._pieces, b""), 0
                if not self._window:
                    raise CorruptBatchError(f"The records end {size} bytes too early, at byte {self.position}.")
            part = self._window[self._at : self._at + size]
            self._at += len(part)
            self.position += len(part)
            size -= len(part)
            yield part

    def varint(self) -> int:
        value = shift = 0
        for _ in range(_VARINT_MAX_BYTES):
            if self._at < len(self._window):
                byte = self._window[self._at]
                self._at += 1
                self.position += 1
            else:
                byte = next(self.pieces(1))[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
            shift += 7
        raise CorruptBatchError(f"The records hold a number that is too long at byte {self.position}.")

    @property
    def at_end(self) -> bool:
        """True if no byte is left."""
        if self._at == len(self._window):
            self._window, self._at = next(self._pieces, b""), 0
        return not self._window


class LargeRecord:
    """A record with only its leading numbers decoded. Valid until the next record is read; its rest can be read once."""

    __slots__ = ("_end", "_source", "offset", "timestamp")

    def __init__(self, offset: int, timestamp: int, source: _Source, end: int) -> None:
        self.offset, self.timestamp = offset, timestamp
        self._source, self._end = source, end

    @property
    def rest_bytes(self) -> int:
        """Number of unread bytes of the record."""
        return self._end - self._source.position

    def rest(self) -> Iterator[bytes]:
        """Yield the unread bytes of the record."""
        return self._source.pieces(self.rest_bytes)

    def field(self) -> int | None:
        """Read the length of the next field, which ``take`` yields then; None if it is null."""
        size = self._source.varint()
        if size < -1 or size > self.rest_bytes:
            raise CorruptBatchError(f"The record at offset {self.offset} has a field of {size} bytes.")
        return None if size == -1 else size

    def take(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes, the field whose length was read."""
        return self._source.pieces(size)

    def count(self) -> int:
        """Read the number of headers."""
        count = self._source.varint()
        if not 0 <= count <= self.rest_bytes:
            raise CorruptBatchError(f"The record at offset {self.offset} has {count} headers.")
        return count


def read_large(view: BatchView, batch: memoryview) -> Iterator[LargeRecord]:
    """Yield the records of a whole batch of magic 2, whatever its size; raise CorruptBatchError for a damaged batch.

    Each record must be used before the next record is requested.
    """
    check_crc(view, batch)
    source, before = _Source(inflate(view.codec, batch[RECORDS_AT:])), -1
    for _ in range(view.record_count):
        size = source.varint()
        end = source.position + size
        for _ in source.pieces(1):  # attributes, unused
            pass
        timestamp, delta = view.base_timestamp + source.varint(), source.varint()
        if not before < delta <= view.last_offset_delta or source.position > end:
            raise CorruptBatchError(
                f"A record of the batch at offset {view.base_offset} claims {size} bytes at offset {view.base_offset + delta}."
            )
        before = delta
        record = LargeRecord(view.base_offset + delta, view.max_timestamp if view.log_append_time else timestamp, source, end)
        yield record
        for _ in record.rest():
            pass
    if not source.at_end:
        raise CorruptBatchError(f"More bytes follow the last record at offset {view.base_offset}.")


def read_any(view: BatchView, batch: memoryview) -> Iterator[RecordLike | LargeRecord]:
    """Return the records of a whole batch of any format; LargeRecord if it is larger than the decompression limit.

    Raises CorruptBatchError for a damaged batch, DecompressedTooLargeError for a batch that cannot be read in pieces either.
    """
    try:
        return decode_batch(view, batch)
    except DecompressedTooLargeError:
        if view.magic != CURRENT_MAGIC:
            raise
        return read_large(view, batch)


def rewrite_large(view: BatchView, batch: memoryview, *, start: int, end: int, limit: int) -> Iterator[Append]:
    """Yield the records of a batch with offsets in ``[start, end)`` as batches of consecutive offsets, in order.

    No batch is larger than ``limit`` unless it holds a single record. The codec stays the same.
    """
    run_bytes = RUN_BYTES
    while True:
        for append in _runs(view, batch, start=start, end=end, run_bytes=run_bytes):
            if len(append.payload) > limit and append.count > 1 and run_bytes > _SMALLEST_RUN:
                run_bytes //= 4
                break  # rewrite again from this run's first record
            start = append.end
            yield append
        else:
            return


def _runs(view: BatchView, batch: memoryview, *, start: int, end: int, run_bytes: int) -> Iterator[Append]:
    run: _Run | None = None
    for record in read_large(view, batch):
        if record.offset < start:
            continue
        if record.offset >= end:
            break
        if run is not None and (run.end != record.offset or run.size + record.rest_bytes > run_bytes):
            yield run.finish()
            run = None
        if run is None:
            run = _Run(record, view.codec)
        run.add(record)
    if run is not None:
        yield run.finish()


class _Run:
    """Consecutive records that are being written to a new batch."""

    def __init__(self, first: LargeRecord, codec: int) -> None:
        self._base_offset, self._base_timestamp = first.offset, first.timestamp
        self._newest = first.timestamp
        self._codec, self._deflater = codec, deflater(codec)
        self._out, self._pending = bytearray(RECORDS_AT), bytearray()
        self._count = 0
        self.size = 0  # decompressed bytes

    @property
    def end(self) -> int:
        return self._base_offset + self._count

    def add(self, record: LargeRecord) -> None:
        numbers = b"\0" + varint(record.timestamp - self._base_timestamp) + varint(self._count)
        size = len(numbers) + record.rest_bytes
        self._put(varint(size) + numbers)
        for piece in record.rest():
            self._put(piece)
        self._count += 1
        self.size += size
        self._newest = max(self._newest, record.timestamp)

    def _put(self, data: bytes) -> None:
        self._pending += data
        if len(self._pending) >= _BLOCK_BYTES:
            self._out += self._deflater.compress(bytes(self._pending))
            self._pending.clear()

    def finish(self) -> Append:
        self._out += self._deflater.compress(bytes(self._pending))
        out, count, times = self._out, self._count, (self._base_timestamp, self._newest)
        out += self._deflater.flush()
        head = (self._base_offset, len(out) - LOG_OVERHEAD, -1, CURRENT_MAGIC, 0, self._codec, count - 1)
        HEADER.pack_into(out, 0, *head, *times, -1, -1, -1, count)
        write_checksum(out)
        return Append(self._base_offset, count, memoryview(out), count, self._newest)


def hash_large(record: LargeRecord) -> tuple[bool, bytes]:
    """Return whether the record has a key, and the hash that ``hash_fields`` returns for its key, value and headers."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    has_key = _hash_field(record, hasher)
    _hash_field(record, hasher)
    for _ in range(record.count()):
        _hash_field(record, hasher)
        _hash_field(record, hasher)
    return has_key, hasher.digest()


def _hash_field(record: LargeRecord, hasher: Hash) -> bool:
    size = record.field()
    if size is None:
        hasher.update(_ABSENT)
        return False
    hasher.update(_PRESENT + size.to_bytes(8, "big"))
    for piece in record.take(size):
        hasher.update(piece)
    return True


def hash_fields(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> bytes:
    """Return the hash of a record's contents; equal for equal contents, however their lengths are encoded."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    fields = [key, value]
    for name, content in headers:
        fields += (name.encode("utf-8", "surrogateescape"), content)
    for field in fields:
        if field is None:
            hasher.update(_ABSENT)
        else:
            hasher.update(_PRESENT + len(field).to_bytes(8, "big"))
            hasher.update(field)
    return hasher.digest()


# --- memory of a consumer ------------------------------------------------------------------------------------------------
# Pure; decompresses as little as possible. Two kinds of consumers:
#
# * Kafka's own (Java) decompresses a batch of magic 2 record by record. It allocates an array per record and a list of the
#   records that it returns at once, so the largest record counts (``heaviest_record``). In a batch that is small as a whole the
#   average counts: a list of many records is then at most two such batches larger than the average predicts.
# * librdkafka decompresses a batch as a whole, so its decompressed size counts (``decompressed_size``, ``decompressed_limit``).
#
# Frames limit the decompressed size of most batches, so ordinary batches are not decompressed. Larger batches are decompressed
# in pieces: the length in front of each record is read, the rest is skipped.


SMALL = 32 << 10  # bytes; smaller records need no exact size
MEASURED = 2 << 20  # decompressed bytes; in a larger batch the largest record counts, not the average
ENDLESS = 4 << 30  # decompressed bytes of a batch after which reading stops


def heaviest_record(view: BatchView, batch: memoryview) -> int:
    """Return the approximate bytes of the largest record of a batch; exact if it is larger than MEASURED.

    Messages of magic 0 and 1 count as a whole, as consumers hold all that one message wraps. Raises CorruptBatchError if the
    batch is damaged.
    """
    if view.magic != CURRENT_MAGIC:
        return decompressed_size(view, batch, most=ENDLESS)
    count, records = max(1, view.record_count), compressed_part(view, batch)
    limit = size_limit(view.codec, records)
    if limit is not None and limit <= MEASURED and (limit // count <= SMALL or not view.codec):
        return limit // count
    check_crc(view, batch)
    try:
        return _largest(view, inflate(view.codec, records), count)
    except DecompressedTooLargeError:  # as in ``decompressed_size``
        return ENDLESS if limit is None else limit


def decompressed_limit(view: BatchView, batch: memoryview, *, most: int) -> int:
    """Return an upper bound of a batch's decompressed bytes; more than ``most`` only if it has more. Often need not decompress.

    Raises CorruptBatchError if the batch is damaged.
    """
    limit = size_limit(view.codec, compressed_part(view, batch))
    return decompressed_size(view, batch, most=most) if limit is None or limit > most else limit


def decompressed_size(view: BatchView, batch: memoryview, *, most: int) -> int:
    """Return a batch's decompressed bytes; any number above ``most`` if it has more.

    Raises CorruptBatchError if the batch is damaged.
    """
    data, size = compressed_part(view, batch), 0
    if not view.codec:
        return len(data)
    try:
        for piece in inflate(view.codec, data):
            size += len(piece)
            if size > most:
                break
    except DecompressedTooLargeError:  # a zstd window beyond the decoder's limit
        limit = size_limit(view.codec, data)
        return ENDLESS if limit is None else limit
    return size


def _largest(view: BatchView, pieces: Iterator[bytes], count: int) -> int:
    """Return the size of the largest record, or the average size if all ``count`` records have at most MEASURED bytes."""
    largest = total = at = 0  # at: where the next record begins, counted from the current piece
    rest = b""  # the beginning of a length that continues in the next piece
    for piece in pieces:
        data, rest = rest + piece, b""
        end = len(data)
        total += len(piece)
        if total > ENDLESS:
            return ENDLESS
        while at < end:
            byte, position = data[at], at + 1
            value, shift = byte & 0x7F, 7
            while byte >= 0x80 and position < end and shift < 7 * _VARINT_MAX_BYTES:
                byte = data[position]
                value |= (byte & 0x7F) << shift
                position += 1
                shift += 7
            if byte >= 0x80 and shift < 7 * _VARINT_MAX_BYTES:
                rest = data[at:]
                break
            if byte >= 0x80 or value & 1:  # zigzag: odd numbers are negative
                raise CorruptBatchError(f"A record of the batch at offset {view.base_offset} has no valid length.")
            size = value >> 1
            largest = max(largest, size)
            at = position + size
        at = 0 if rest else at - end
    if at or rest:
        raise CorruptBatchError(f"The last record of the batch at offset {view.base_offset} ends too early.")
    return largest if total > MEASURED else total // count
