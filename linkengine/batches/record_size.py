"""Estimate the memory that a consumer needs to decompress a batch. Pure; decompresses as little as possible.

Two kinds of consumers:

* Kafka's own (Java) decompresses a batch of magic 2 record by record. It allocates an array per record and a list of the
  records that it returns at once, so the largest record counts (``heaviest_record``). In a batch that is small as a whole the
  average counts: a list of many records is then at most two such batches larger than the average says.
* librdkafka decompresses a batch as a whole, so its decompressed size counts (``decompressed_size``, ``decompressed_limit``).

Frames limit the decompressed size of most batches, so ordinary ones are not decompressed. Larger ones are decompressed in
pieces: the length in front of each record is read, the rest is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from linkengine.batches.compression import DecompressedTooLargeError, inflate, size_limit
from linkengine.batches.decoding import compressed_part
from linkengine.batches.view import CURRENT_MAGIC, BatchView, CorruptBatchError, check_crc

SMALL = 32 << 10  # bytes; smaller records need no exact size
MEASURED = 2 << 20  # decompressed bytes; in a larger batch the largest record counts, not the average
ENDLESS = 4 << 30  # decompressed bytes of a batch after which reading stops
_VARINT_MAX_BYTES = 10


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
