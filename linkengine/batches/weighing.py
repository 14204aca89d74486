"""How large the records of a batch are for a consumer that decompresses it. Pure; decompresses only what the frames leave open.

A consumer makes an array of every record, and a list of those it hands out at once. What that takes is told by the average
size of a batch's records; where the whole batch is large, by the largest of them.
"""

from __future__ import annotations

import struct

import cramjam

from linkengine.batches.compression import LZ4, SNAPPY, ZSTD, InflatedTooFarError, decompress
from linkengine.batches.large import read_large
from linkengine.batches.view import CURRENT_MAGIC, RECORDS_AT, BatchView

SMALL = 32 << 10  # bytes of a record that nobody needs to measure more exactly
MEASURED = 1 << 20  # bytes of a batch that are decompressed at once to measure it
ENDLESS = 4 << 30  # bytes of a batch, decompressed, after which it is not read any further
_ZSTD_BLOCK = 128 << 10
_XERIAL_MAGIC, _XERIAL_HEADER = b"\x82SNAPPY\0", 16
_GZIP_RATIO = 1032


def heaviest_record(view: BatchView, batch: memoryview) -> int:
    """Return about how many bytes the largest record of a batch takes; exact where the batch is large.

    Raises CorruptBatchError where the batch is damaged.
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
    except InflatedTooFarError:
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
    """Return a number of bytes that the records do not exceed, by what their frames say and decoders check."""
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
    """Count the blocks of the frames (RFC 8878, 3.1.1); each stands for 128 KB at most."""
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
            raise ValueError("a block of less than nothing")
        size += int(cramjam.snappy.decompress_raw_len(records[at + 4 : at + 4 + length]))
        at += 4 + length
    return size
