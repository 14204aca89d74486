"""Batches of a few kilobytes that stand for hundreds of megabytes, as any producer may send them."""

from __future__ import annotations

import struct
import time

import google_crc32c
import zstandard

from tests.linkengine.batches.batchlog import ZSTD, varint

MEGABYTE = 1_000_000
NOW = time.time_ns() // 1_000_000  # older records would fall to retention


def bomb(*sizes: int, timestamp: int = NOW) -> bytes:
    """One zstd batch of records with values of so many zeros."""
    packer, body = zstandard.ZstdCompressor(level=19).compressobj(), b""
    for number, size in enumerate(sizes):
        front = b"\0\0" + varint(number) + varint(1) + b"k" + varint(size)
        body += packer.compress(varint(len(front) + size + 1) + front)
        for start in range(0, size, MEGABYTE):
            body += packer.compress(bytes(min(MEGABYTE, size - start)))
        body += packer.compress(b"\0")
    body += packer.flush()
    tail = struct.pack(">hiqqqhii", ZSTD, len(sizes) - 1, timestamp, timestamp, -1, -1, -1, len(sizes)) + body
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, google_crc32c.value(tail)) + tail


def two_and_three() -> list[bytes]:
    """Two batches of one record of 250 MB each, and one of three records of 100 MB."""
    one = bomb(250 * MEGABYTE)
    return [one, one, bomb(100 * MEGABYTE, 100 * MEGABYTE, 100 * MEGABYTE)]
