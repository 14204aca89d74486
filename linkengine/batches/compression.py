"""Compresses and decompresses the records of a batch. Knows Kafka's framing of each codec; must not know batches.

gzip: RFC 1952. snappy: blocks in the xerial framing of Java producers, bare blocks from librdkafka. lz4: frames with
independent blocks (KIP-57). zstd: frames (KIP-110). Levels are the codecs' usual ones: a destination keeps what it is sent.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress

import cramjam
from aiokafka import codec as kafka_codec

from linkengine.batches.view import CorruptBatchError

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
HEAD_BYTES = 8
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_GZIP_LEVEL = 6
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3
_LZ4_BLOCK_MAX = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_STORED = 1 << 31  # top bit of a block's size: the block is not compressed


def compress(codec: int, data: bytes | bytearray | memoryview) -> bytes:
    """Compress ``data`` with codec 1 to 4, as a Kafka producer would."""
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL))
    if codec == SNAPPY:
        return bytes(kafka_codec.snappy_encode(data))
    if codec == LZ4:
        return bytes(kafka_codec.lz4_encode(bytes(data), level=_LZ4_LEVEL))
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


_DECODERS: dict[int, Callable[[bytes], bytes]] = {
    GZIP: kafka_codec.gzip_decode,
    SNAPPY: kafka_codec.snappy_decode,
    LZ4: kafka_codec.lz4_decode,
    ZSTD: kafka_codec.zstd_decode,
}

_INTO = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}


def decompress(codec: int, data: bytes | bytearray | memoryview) -> bytes:
    """Undo ``compress`` and what other producers write; raises CorruptBatchError when the bytes are not of that codec."""
    try:
        return _DECODERS[codec](bytes(data))
    except (cramjam.DecompressionError, zlib.error, OSError, EOFError, ValueError, struct.error) as error:
        raise CorruptBatchError(f"The records cannot be decompressed with {NAMES[codec]}: {error}.") from error


def decompress_head(codec: int, data: memoryview) -> bytes:
    """Answer the first bytes without unpacking the others; 0xff where there are none, and for snappy."""
    head = bytearray(b"\xff" * HEAD_BYTES)
    if codec in _INTO:
        with suppress(cramjam.DecompressionError):  # there is more than these, which is the rule, or all is damaged: 0xff then
            _INTO[codec](data, head)
    return bytes(head)


def decompress_old_lz4(data: bytes) -> bytes:
    """Decompress an lz4 frame of magic 0, whose header checksum Kafka computed wrongly (KAFKA-3160): it is not looked at."""
    try:
        return b"".join(_lz4_blocks(data))
    except (cramjam.DecompressionError, IndexError, KeyError, struct.error) as error:
        raise CorruptBatchError(f"The records cannot be decompressed with lz4: {error}.") from error


def _lz4_blocks(data: bytes) -> Iterator[bytes]:
    flags, output_max = data[4], _LZ4_BLOCK_MAX[data[5] >> 4 & 7]
    position = 7 + (8 if flags & 0x08 else 0)  # magic, flags, block size, optional content size, header checksum
    while True:
        (size,) = struct.unpack_from("<I", data, position)
        if size == 0:
            return
        start, stored = position + 4, size & _LZ4_STORED
        end = start + (size & ~_LZ4_STORED)
        block = data[start:end]
        yield block if stored else _lz4_block(block, output_max)
        position = end + (4 if flags & 0x10 else 0)  # optional checksum of the block


def _lz4_block(block: bytes, output_max: int) -> bytes:
    """Decompress a bare block that does not tell how long it becomes."""
    output = bytearray(output_max)
    size: int = cramjam.lz4.decompress_block_into(block, output, output_len=output_max)
    return bytes(output[:size])
