"""Estimate the size of a batch's largest record for a consumer that decompresses it. Pure; decompresses as little as possible.

A consumer allocates an array per record, and a list of the records that it returns at once. The average record size of a batch
determines that memory; if the whole batch is large, the largest record does.
"""

from __future__ import annotations

import struct

import cramjam

from linkengine.batches.compression import LZ4, SNAPPY, ZSTD, DecompressedTooLargeError, decompress
from linkengine.batches.large import read_large
from linkengine.batches.view import CURRENT_MAGIC, RECORDS_AT, BatchView

SMALL = 32 << 10  # bytes; smaller records need no exact size
MEASURED = 1 << 20  # bytes of a batch that are decompressed at once to measure it
ENDLESS = 4 << 30  # decompressed bytes of a batch after which reading stops
_ZSTD_BLOCK = 128 << 10
_XERIAL_MAGIC, _XERIAL_HEADER = b"\x82SNAPPY\0", 16
_GZIP_RATIO = 1032


def heaviest_record(view: BatchView, batch: memoryview) -> int:
    """Return the approximate bytes of the largest record of a batch; exact if the batch is large.

    Raises CorruptBatchError if the batch is damaged.
    """
    count = max(1, view.record_count)
    if view.magic != CURRENT_MAGIC or not view.codec:
        return _largest(view, batch) if view.magic == CURRENT_MAGIC and view.size > MEASURED else view.size // count
    records = batch[RECORDS_AT:]
    bound = _bound(view.codec, records)
    if bound // count <= SMALL:
        return bound // count
    try:
        return len(decompress(view.codec, records, most=MEASURED)) // count
    except DecompressedTooLargeError:
        return _largest(view, batch)


def _largest(view: BatchView, batch: memoryview) -> int:
    largest = read = 0
    for record in read_large(view, batch):
        largest = max(largest, record.rest_bytes)
        read += record.rest_bytes
        if read > ENDLESS:
            return max(largest, ENDLESS)
    return largest


def _bound(codec: int, records: memoryview) -> int:
    """Return an upper bound of the uncompressed bytes, from frame fields that decoders check."""
    try:
        if codec == ZSTD:
            return _zstd_blocks(records) * _ZSTD_BLOCK
        if codec == LZ4:
            return len(records) * 255
        if codec == SNAPPY:
            return _snappy_size(records)
    except (struct.error, IndexError, ValueError, cramjam.DecompressionError):
        return ENDLESS
    return len(records) * _GZIP_RATIO


def _zstd_blocks(records: memoryview) -> int:
    """Return the number of blocks in the frames (RFC 8878, 3.1.1); each holds at most 128 KB."""
    at, count = 0, 0
    while at < len(records):
        (magic,) = struct.unpack_from("<I", records, at)
        if magic != 0xFD2FB528:
            raise ValueError("a frame to skip")
        descriptor = records[at + 4]
        single = descriptor >> 5 & 1
        at += 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + ((1 if single else 0), 2, 4, 8)[descriptor >> 6]
        last = False
        while not last:
            head = int.from_bytes(records[at : at + 3], "little")
            if at + 3 > len(records):
                raise ValueError("the frame ends within a block")
            last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            at += 3 + (1 if kind == 1 else size)
            count += 1
        at += 4 * (descriptor >> 2 & 1)  # checksum of the content
    return count


def _snappy_size(records: memoryview) -> int:
    if records[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return int(cramjam.snappy.decompress_raw_len(records))
    at, size = _XERIAL_HEADER, 0
    while at < len(records):
        (length,) = struct.unpack_from(">i", records, at)
        if length < 0:
            raise ValueError("a block of negative size")
        size += int(cramjam.snappy.decompress_raw_len(records[at + 4 : at + 4 + length]))
        at += 4 + length
    return size
