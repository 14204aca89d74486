"""Compress and decompress the records of a batch, with limited memory.

gzip: RFC 1952. snappy: blocks in the xerial framing of Java producers, bare blocks from librdkafka. lz4: frames with
independent blocks (KIP-57). zstd: frames (RFC 8878, KIP-110). The levels are the codecs' default levels, since a destination
stores batches as they are sent.

A megabyte of zstd may decompress to 32 GB, of gzip to 1 GB, of lz4 to 255 MB and of snappy to 21 MB, and the sizes in a frame
are claims of its writer. So every call has a limited output: ``inflate`` yields pieces as they are decompressed, and
``decompress`` stops at the caller's limit (ADR 0031).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import local
from typing import Protocol

import cramjam
import zstandard
from aiokafka import codec as kafka_codec

from linkengine.batches.view import CorruptBatchError
from linkengine.domain.errors import ErrorCode

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
HEAD_BYTES = 8
PIECE_BYTES = 256 << 10  # output of ``inflate`` per piece; an lz4 block may have 4 MB
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_GZIP_LEVEL = 6
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3
_ZSTD_MAGIC, _ZSTD_BLOCK_MAX = 0xFD2FB528, 128 << 10
_ZSTD_WINDOW_MAX = 64 << 20  # memory of a streaming decoder, up to level 21; not needed for content that fits in a piece
_INPUT_BYTES = 64 << 10  # of gzip per call: zlib copies input that it does not consume
_GZIP_RATIO = 1032  # maximum of deflate
_GZIP_WRAPPED = 16 + zlib.MAX_WBITS
_LZ4_MAGIC = 0x184D2204
_LZ4_RATIO = 255
_LZ4_BLOCK_MAX = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_STORED = 1 << 31  # top bit of a block's size: the block is not compressed
_LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE = 0x20, 0x10, 0x08
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = 16  # magic, version, lowest compatible version
_XERIAL_BLOCK = 32 << 10  # as written by Java producers
_SNAPPY_AT_ONCE = 4 << 20  # larger blocks are decompressed element by element
_SNAPPY_WINDOW = 64 << 10  # maximum distance of the references that encoders write
_SNAPPY_RATIO = 64  # maximum of a bare block: an element of two bytes copies up to 11, one of three bytes up to 64
_DAMAGE = (cramjam.DecompressionError, zstandard.ZstdError, zlib.error, struct.error, IndexError, KeyError, ValueError)
_thread = local()


class DecompressedTooLargeError(CorruptBatchError):
    """The decompressed records are larger than the caller's limit."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.RECORDS_TOO_LARGE)


class Deflater(Protocol):
    """A compressor for input in pieces."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def compress(codec: int, data: bytes | bytearray | memoryview) -> bytes:
    """Return ``data`` compressed with codec 1 to 4, as a Kafka producer would."""
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL))
    if codec == SNAPPY:
        return bytes(kafka_codec.snappy_encode(data))
    if codec == LZ4:
        return bytes(kafka_codec.lz4_encode(bytes(data), level=_LZ4_LEVEL))
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def deflater(codec: int) -> Deflater:
    """Return a compressor for codec 0 to 4 that takes its input in pieces; its output has the format of ``compress``."""
    makers: dict[int, Callable[[], Deflater]] = {
        GZIP: lambda: zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WRAPPED),
        SNAPPY: _SnappyDeflater,
        LZ4: _Lz4Deflater,
        ZSTD: lambda: zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj(),
    }
    return makers.get(codec, _Plain)()


def decompress(codec: int, data: bytes | bytearray | memoryview, *, most: int, reserve: int = 0) -> bytearray:
    """Return the decompressed data behind ``reserve`` zero bytes, using little more memory than ``most`` bytes.

    Raises CorruptBatchError if the data is not of that codec, DecompressedTooLargeError if it has more than ``most`` bytes.
    """
    found = bytearray(reserve)
    for piece in _pieces(codec, data):
        found += piece
        if len(found) - reserve > most:
            raise DecompressedTooLargeError(f"The records compressed with {NAMES[codec]} are larger than {most} bytes.")
    return found


def inflate(codec: int, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
    """Yield the decompressed bytes in pieces; raise CorruptBatchError if the data is not of that codec."""
    return _checked(_INFLATERS[codec](memoryview(data)), codec)


def size_limit(codec: int, data: memoryview) -> int | None:
    """Return an upper bound of the decompressed bytes without decompressing; None if only decompressing can show it.

    Only frame fields that every decoder checks are used. Each step advances by at least three bytes.
    """
    with suppress(*_DAMAGE):
        return _SIZE_LIMITS[codec](data)
    return None


def decompress_head(codec: int, data: memoryview) -> bytes:
    """Return the first HEAD_BYTES bytes without decompressing the rest; 0xff for missing or damaged bytes."""
    head = bytearray(b"\xff" * HEAD_BYTES)
    if codec in _INTO:
        with suppress(cramjam.DecompressionError):  # the output is longer, the usual case, or all is damaged: 0xff then
            _INTO[codec](data, head)
    elif codec == SNAPPY:
        found = _snappy_head(data)
        head[: len(found)] = found
    return bytes(head[:HEAD_BYTES])


def _pieces(codec: int, data: bytes | bytearray | memoryview) -> Iterator[bytes | memoryview]:
    """Return a single piece if it fits, which is faster; otherwise the pieces of ``inflate``, which also detects damage."""
    into = _INTO.get(codec)
    if into is not None:
        scratch: memoryview | None = getattr(_thread, "scratch", None)
        if scratch is None:
            scratch = _thread.scratch = memoryview(bytearray(PIECE_BYTES))
        with suppress(cramjam.DecompressionError):
            size: int = into(data, scratch)
            return iter((scratch[:size],))
    return inflate(codec, data)


_INTO = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}


def _checked(pieces: Iterator[bytes], codec: int) -> Iterator[bytes]:
    try:
        yield from pieces
    except _DAMAGE as error:
        raise CorruptBatchError(f"The records cannot be decompressed with {NAMES[codec]}: {error}.") from error


# --- gzip ----------------------------------------------------------------------------------------------------------------


def _inflate_gzip(data: memoryview) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        decoder, rest = zlib.decompressobj(_GZIP_WRAPPED), b""
        while not decoder.eof:
            if not rest:
                rest = bytes(data[at : at + _INPUT_BYTES])
                at += len(rest)
            if not rest:
                raise ValueError("they end too early")
            piece = decoder.decompress(rest, PIECE_BYTES)
            rest = decoder.unconsumed_tail
            if piece:
                yield piece
        at -= len(decoder.unused_data)
        while at < len(data) and data[at] == 0:  # padding behind a member
            at += 1


# --- zstd ----------------------------------------------------------------------------------------------------------------


def _inflate_zstd(data: memoryview) -> Iterator[bytes]:
    window: int = zstandard.get_frame_parameters(data).window_size
    if window > _ZSTD_WINDOW_MAX:
        message = f"The records compressed with zstd need a window of {window} bytes; {_ZSTD_WINDOW_MAX} are provided."
        raise DecompressedTooLargeError(message)
    reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).stream_reader(data, read_across_frames=True)
    while piece := reader.read(PIECE_BYTES):
        yield piece


def _zstd_limit(data: memoryview) -> int | None:
    """Return the sum of the blocks' limits (RFC 8878, 3.1.1): exact if stored, or of one repeated byte; otherwise 128 KB."""
    at = limit = 0
    while at < len(data):
        (magic,) = struct.unpack_from("<I", data, at)
        if magic != _ZSTD_MAGIC:  # a frame to skip, or of an old format
            return None
        descriptor = data[at + 4]
        single = descriptor >> 5 & 1
        at += 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + ((1 if single else 0), 2, 4, 8)[descriptor >> 6]
        last = False
        while not last:
            (head,) = struct.unpack("<I", bytes(data[at : at + 3]) + b"\0")
            last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            limit += _ZSTD_BLOCK_MAX if kind > 1 else size
            at += 3 + (1 if kind == 1 else size)
        at += 4 * (descriptor >> 2 & 1)  # checksum of the content
    return limit


# --- lz4 -----------------------------------------------------------------------------------------------------------------


def _inflate_lz4(data: memoryview) -> Iterator[bytes]:
    """Yield the blocks of a frame.

    Its checksums are not verified: the batch has its own, and with magic 0 Kafka computed the header checksum incorrectly
    (KAFKA-3160).
    """
    (magic,) = struct.unpack_from("<I", data)
    flags, most = data[4], _LZ4_BLOCK_MAX[data[5] >> 4 & 7]
    if magic != _LZ4_MAGIC or not flags & _LZ4_INDEPENDENT:
        raise ValueError("they are not a frame with independent blocks")
    at = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0)  # magic, flags, block size, optional content size, header checksum
    while True:
        (size,) = struct.unpack_from("<I", data, at)
        if size == 0:
            return
        start, stored = at + 4, size & _LZ4_STORED
        end = start + (size & ~_LZ4_STORED)
        if end > len(data):
            raise ValueError("they end within a block")
        yield bytes(data[start:end]) if stored else _lz4_block(bytes(data[start:end]), most)
        at = end + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0)


def _lz4_limit(data: memoryview) -> int | None:
    """Return the sum of the blocks' limits: exact if stored; otherwise the frame's block size, or 255 times the input."""
    (magic,) = struct.unpack_from("<I", data)
    if magic != _LZ4_MAGIC:
        return None
    flags, most = data[4], _LZ4_BLOCK_MAX[data[5] >> 4 & 7]
    at, limit = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0), 0
    while True:
        (size,) = struct.unpack_from("<I", data, at)
        if size == 0:
            return limit
        stored, size = size & _LZ4_STORED, size & ~_LZ4_STORED
        limit += size if stored else min(most, size * _LZ4_RATIO)
        at += 4 + size + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0)


def _lz4_block(block: bytes, output_max: int) -> bytes:
    """Return a decompressed bare block, which does not declare its decompressed size."""
    output = bytearray(output_max)
    size: int = cramjam.lz4.decompress_block_into(block, output, output_len=output_max)
    return bytes(output[:size])


class _Lz4Deflater:
    """Writes a single frame with independent blocks and without a content checksum, as brokers require."""

    def __init__(self) -> None:
        self._compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)

    def compress(self, data: bytes, /) -> bytes:
        self._compressor.compress(data)
        return bytes(self._compressor.flush())

    def flush(self) -> bytes:
        return bytes(self._compressor.finish())


# --- snappy --------------------------------------------------------------------------------------------------------------


def _inflate_snappy(data: memoryview) -> Iterator[bytes]:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield from _snappy_block(data)
        return
    at = _XERIAL_HEADER
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 <= size <= len(data) - at:
            raise ValueError(f"a block of {size} bytes")
        yield from _snappy_block(data[at : at + size])
        at += size


def _snappy_block(block: memoryview) -> Iterator[bytes]:
    """Yield a decompressed bare block. Its first bytes declare the decompressed size, which is checked before allocation."""
    size, _ = _snappy_size(block)
    if size > len(block) * _SNAPPY_RATIO:
        raise ValueError(f"a block of {len(block)} bytes claims {size} bytes")
    if size <= _SNAPPY_AT_ONCE:
        yield bytes(cramjam.snappy.decompress_raw(block))
        return
    piece = bytearray()
    for part in _snappy_elements(block):
        piece += part
        size -= len(part)
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if size:
        raise ValueError("a block does not have the size it claims")
    yield bytes(piece)


def _snappy_limit(data: memoryview) -> int | None:
    """Return the sum of the sizes that the blocks declare."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_size(data)[0]
    at, limit = _XERIAL_HEADER, 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 <= size <= len(data) - at:
            return None
        limit += _snappy_size(data[at : at + size])[0]
        at += size
    return limit


def _snappy_head(data: memoryview) -> bytes:
    at = _XERIAL_HEADER + 4 if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else 0
    head, size = b"", 0
    with suppress(*_DAMAGE):
        size = min(HEAD_BYTES, _snappy_size(data[at:])[0])
        for part in _snappy_elements(data[at:]):
            head += part[:HEAD_BYTES]
            if len(head) >= size:
                break
    return head[:size]


def _snappy_size(block: memoryview) -> tuple[int, int]:
    """Return the decompressed size that a block declares, and where its elements begin."""
    size = 0
    for at in range(5):
        size |= (block[at] & 0x7F) << 7 * at
        if block[at] < 0x80:
            return size, at + 1
    raise ValueError("a block does not begin with its size")


def _snappy_elements(block: memoryview) -> Iterator[bytes]:
    """Yield the output of each element of a block: a literal, or a copy of earlier output (google/snappy, format)."""
    at, window = _snappy_size(block)[1], bytearray()
    while at < len(block):
        tag = block[at]
        at += 1
        kind, length = tag & 3, (tag >> 2) + 1
        if kind == 0:
            if length > 60:
                width = length - 60
                length = int.from_bytes(block[at : at + width], "little") + 1
                at += width
            part = bytes(block[at : at + length])
            at += length
            if len(part) != length:
                raise ValueError("a block ends within a literal")
        else:
            if kind == 1:
                length, offset, at = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | block[at], at + 1
            else:
                width = 2 if kind == 2 else 4
                offset, at = int.from_bytes(block[at : at + width], "little"), at + width
            if not 0 < offset <= len(window):
                raise ValueError("a block copies from before its beginning")
            part = bytes(window[-offset:] if length >= offset else window[-offset : len(window) - offset + length])
            part = (part * (length // offset + 1))[:length]
        window += part
        if len(window) > 2 * _SNAPPY_WINDOW:
            del window[:-_SNAPPY_WINDOW]
        yield part


class _SnappyDeflater:
    """Writes blocks of 32 KB in the xerial framing."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._head = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)

    def compress(self, data: bytes, /) -> bytes:
        self._rest += data
        out, at = [self._head], 0
        self._head = b""
        while len(self._rest) - at >= _XERIAL_BLOCK:
            out.append(self._block(at))
            at += _XERIAL_BLOCK
        del self._rest[:at]
        return b"".join(out)

    def flush(self) -> bytes:
        return self._head + (self._block(0) if self._rest else b"")

    def _block(self, at: int) -> bytes:
        block = bytes(cramjam.snappy.compress_raw(bytes(self._rest[at : at + _XERIAL_BLOCK])))
        return struct.pack(">i", len(block)) + block


class _Plain:
    """The compressor of codec 0: returns its input."""

    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


_INFLATERS: dict[int, Callable[[memoryview], Iterator[bytes]]] = {
    0: lambda data: iter([bytes(data)]),
    GZIP: _inflate_gzip,
    SNAPPY: _inflate_snappy,
    LZ4: _inflate_lz4,
    ZSTD: _inflate_zstd,
}
_SIZE_LIMITS: dict[int, Callable[[memoryview], int | None]] = {
    0: len,
    GZIP: lambda data: len(data) * _GZIP_RATIO,
    SNAPPY: _snappy_limit,
    LZ4: _lz4_limit,
    ZSTD: _zstd_limit,
}
