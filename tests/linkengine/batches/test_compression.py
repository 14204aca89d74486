"""Decompression within a limit for any input: in pieces, with the codecs' own framings, and of damaged data."""

import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from linkengine.batches import compression
from linkengine.batches.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    DecompressedTooLargeError,
    compress,
    decompress,
    deflater,
    inflate,
    size_limit,
)
from linkengine.batches.view import CorruptBatchError
from linkengine.domain.errors import ErrorCode

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
MEGABYTE = 1 << 20


def mixed(size: int) -> bytes:
    """Return data that is half noise, half repetition."""
    noise = random.Random(size).randbytes(size // 2)
    return noise + b"record " * (size // 14 + 1)


def librdkafka_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 1000, compression.PIECE_BYTES, 5 * MEGABYTE])
def test_data_of_any_size_is_decompressed_in_pieces_and_at_once(codec: int, size: int) -> None:
    data = mixed(size)[:size]
    packed = compress(codec, data)

    assert b"".join(inflate(codec, packed)) == data
    assert decompress(codec, packed, most=size) == data


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_the_output_of_a_deflater_is_readable_by_brokers_and_consumers(codec: int) -> None:
    data = mixed(MEGABYTE)
    packer = deflater(codec)

    packed = b"".join(packer.compress(data[at : at + 70_000]) for at in range(0, len(data), 70_000)) + packer.flush()

    assert b"".join(inflate(codec, packed)) == data
    if codec == LZ4:
        assert bytes(cramjam.lz4.decompress(packed)) == data
        assert packed[4] & 0xE4 == 0x60  # version 1, independent blocks, no content checksum


@pytest.mark.parametrize("data", [b"", b"a", mixed(300_000), bytes(9 * MEGABYTE), mixed(9 * MEGABYTE)])
def test_a_bare_snappy_block_of_any_size_is_read(data: bytes) -> None:
    packed = librdkafka_snappy(data)

    assert b"".join(inflate(SNAPPY, packed)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_data_above_the_limit_is_refused_with_RECORDS_TOO_LARGE(codec: int) -> None:
    packed = compress(codec, bytes(3 * MEGABYTE))

    with pytest.raises(DecompressedTooLargeError) as raised:
        decompress(codec, packed, most=3 * MEGABYTE - 1)

    assert raised.value.code is ErrorCode.RECORDS_TOO_LARGE


def bomb(codec: int) -> bytes:
    """Return a quarter of a gigabyte of zeros, compressed."""
    packer = deflater(codec)
    return b"".join(packer.compress(bytes(MEGABYTE)) for _ in range(250)) + packer.flush()


def bare_snappy_bomb() -> bytes:
    return librdkafka_snappy(bytes(250 * MEGABYTE))


def declared_zstd_bomb() -> bytes:
    """Return a frame that declares its size, which a naive reader would allocate."""
    return zstandard.ZstdCompressor().compress(bytes(250 * MEGABYTE))


# In a process of its own: the peak of this process includes all earlier tests. An address space limit would count unused
# mappings.
_MEASURE = """
import resource, sys
from linkengine.batches.compression import DecompressedTooLargeError, decompress, inflate
codec, data = int(sys.argv[1]), sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, data, most=1 << 20)
except DecompressedTooLargeError:
    pass
else:
    sys.exit("nothing was refused")
assert sum(map(len, inflate(codec, data))) == 250 << 20
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    ("codec", "make"),
    [
        (GZIP, lambda: bomb(GZIP)),
        (SNAPPY, lambda: bomb(SNAPPY)),
        (SNAPPY, bare_snappy_bomb),
        (LZ4, lambda: bomb(LZ4)),
        (ZSTD, lambda: bomb(ZSTD)),
        (ZSTD, declared_zstd_bomb),
    ],
    ids=["gzip", "snappy", "bare snappy", "lz4", "zstd", "zstd with its size"],
)
def test_250_megabytes_are_refused_or_decompressed_in_pieces_within_a_few_megabytes(
    codec: int, make: Callable[[], bytes]
) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(codec)], input=make(), capture_output=True, check=True, timeout=120
    )

    assert int(found.stdout) < 24 << 10  # kilobytes


def test_sizes_declared_in_frames_are_not_trusted() -> None:
    declared = bytearray(zstandard.ZstdCompressor().compress(bytes(MEGABYTE)))
    frame = zstandard.get_frame_parameters(bytes(declared))
    assert frame.content_size == MEGABYTE
    at = declared.index(struct.pack("<I", MEGABYTE))
    declared[at : at + 4] = struct.pack("<I", 0xFFFFFFF0)
    huge_snappy = b"\xff\xff\xff\xff\x0f" + librdkafka_snappy(b"abc")[1:]
    framed = compress(SNAPPY, b"abc")
    endless = bytearray(framed)
    endless[16:20] = struct.pack(">i", -4)  # adding this to the position would loop forever

    for codec, data in ((ZSTD, bytes(declared)), (SNAPPY, huge_snappy), (SNAPPY, bytes(endless))):
        with pytest.raises(CorruptBatchError):
            decompress(codec, data, most=2 * MEGABYTE)


@pytest.mark.parametrize("codec", CODECS)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300_000)), max_size=6))
@settings(max_examples=50, deadline=None)
def test_the_size_limit_is_never_below_the_size(codec: int, parts: list[tuple[bool, int]]) -> None:
    data = b"".join(bytes(size) if zeros else random.Random(size).randbytes(size) for zeros, size in parts)
    packer = deflater(codec)
    streamed = packer.compress(data) + packer.flush()

    for packed in (compress(codec, data), streamed):
        assert (size_limit(codec, memoryview(packed)) or 0) >= len(data)


@pytest.mark.parametrize(("codec", "most"), [(SNAPPY, 1.0), (LZ4, 1.3), (ZSTD, 1.3)])
def test_the_size_limit_of_ordinary_data_is_near_its_size(codec: int, most: float) -> None:
    data = mixed(MEGABYTE)

    assert (size_limit(codec, memoryview(compress(codec, data))) or 0) <= most * len(data)
    assert size_limit(0, memoryview(data)) == len(data)


def test_a_bare_snappy_block_and_repeated_bytes_have_an_exact_limit() -> None:
    assert size_limit(SNAPPY, memoryview(librdkafka_snappy(bytes(MEGABYTE)))) == MEGABYTE
    assert (size_limit(ZSTD, memoryview(compress(ZSTD, bytes(MEGABYTE)))) or 0) <= 1.2 * MEGABYTE


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_the_size_limit_of_damaged_input_is_found_or_unknown(codec: int, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, mixed(2000)))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    del packed[data.draw(st.integers(0, len(packed))) :]

    limit = size_limit(codec, memoryview(packed))

    with suppress(CorruptBatchError):
        size = sum(map(len, inflate(codec, packed)))
        assert limit is None or limit >= size


def test_several_gzip_members_or_zstd_frames_are_concatenated() -> None:
    for codec in (GZIP, ZSTD):
        packed = compress(codec, b"a" * MEGABYTE) + compress(codec, b"b" * MEGABYTE)
        assert b"".join(inflate(codec, packed)) == b"a" * MEGABYTE + b"b" * MEGABYTE
    assert b"".join(inflate(GZIP, compress(GZIP, b"a") + b"\0\0")) == b"a"


def test_a_zstd_window_of_more_than_64_megabytes_is_refused_only_where_the_content_is_large() -> None:
    packer = zstandard.ZstdCompressor(level=22).compressobj()
    small = packer.compress(b"x" * 1000) + packer.flush()

    assert decompress(ZSTD, small, most=1000) == b"x" * 1000
    with pytest.raises(DecompressedTooLargeError, match="window of 134217728 bytes"):
        b"".join(inflate(ZSTD, small))


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_damaged_input_raises_only_CorruptBatchError_within_the_limit(codec: int, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, mixed(2000)))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    del packed[data.draw(st.integers(len(packed) // 2, len(packed))) :]

    began = time.thread_time()
    with suppress(CorruptBatchError):
        assert len(decompress(codec, bytes(packed), most=MEGABYTE)) <= MEGABYTE
    with suppress(CorruptBatchError):
        for piece in inflate(codec, bytes(packed)):
            assert len(piece) <= 4 * MEGABYTE
    compression.decompress_head(codec, memoryview(packed))
    assert time.thread_time() - began < 5
