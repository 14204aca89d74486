"""Record batches of a few kilobytes that decompress to hundreds of megabytes, as any producer may send them."""

from __future__ import annotations

import struct
import time

import google_crc32c
import zstandard

from tests.linkengine.batches.batchlog import ZSTD, varint

MEGABYTE = 1_000_000
NOW = time.time_ns() // 1_000_000  # older records would be deleted by retention


def bomb(*sizes: int, timestamp: int = NOW) -> bytes:
    """Return a zstd batch with a record for each size, whose value is that many zero bytes."""
    packer, body = zstandard.ZstdCompressor(level=19).compressobj(), b""
    for number, size in enumerate(sizes):
        front = b"\0\0" + varint(number) + varint(1) + b"k" + varint(size)
        body += packer.compress(varint(len(front) + size + 1) + front)
        for start in range(0, size, MEGABYTE):
            body += packer.compress(bytes(min(MEGABYTE, size - start)))
        body += packer.compress(b"\0")
    body += packer.flush()
    log_end = struct.pack(">hiqqqhii", ZSTD, len(sizes) - 1, timestamp, timestamp, -1, -1, -1, len(sizes)) + body
    return struct.pack(">qiibI", 0, len(log_end) + 9, -1, 2, google_crc32c.value(log_end)) + log_end


def two_and_three() -> list[bytes]:
    """Return two batches of a record of 250 MB each, and a batch of three records of 100 MB."""
    large = bomb(250 * MEGABYTE)
    return [large, large, bomb(100 * MEGABYTE, 100 * MEGABYTE, 100 * MEGABYTE)]
