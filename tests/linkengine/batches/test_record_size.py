"""The estimated memory for a batch's records is never too small, and rarely needs decompressing."""

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from linkengine.batches import large
from linkengine.batches.large import MEASURED, SMALL, decompressed_limit, decompressed_size, heaviest_record
from linkengine.batches.patch import write_checksum
from linkengine.batches.view import RECORDS_AT, BatchView, CorruptBatchError, read_view
from tests.linkengine.batches.batchlog import GZIP, LZ4, SNAPPY, ZSTD, Batch, Rec, dense, message, varint, wrapper
from tests.linkengine.copyjob.bombs import MEGABYTE, bomb

CODECS = [0, GZIP, SNAPPY, LZ4, ZSTD]


def viewed(batch: Batch | bytes) -> tuple[BatchView, memoryview]:
    data = memoryview(bytearray(batch if isinstance(batch, bytes) else batch.encode()))
    view = read_view(data)
    assert view is not None
    return view, data


@given(st.sampled_from(CODECS), st.lists(st.integers(0, 400_000), min_size=1, max_size=6), st.booleans())
def test_the_estimate_is_not_below_the_average_record_size(codec: int, sizes: list[int], repeated: bool) -> None:
    value = bytes if repeated else (lambda size: bytes(range(256)) * (size // 256))
    records = [Rec(value=value(size)) for size in sizes]

    found = heaviest_record(*viewed(dense(0, records, codec=codec)))

    average = sum(len(record.value or b"") for record in records) // len(records)
    assert found >= average
    assert found <= max(MEASURED, max(sizes) + 100)


@pytest.mark.parametrize("codec", CODECS)
def test_the_largest_record_of_a_large_batch_is_measured(codec: int) -> None:
    records = [Rec(value=bytes(size)) for size in (10, 3 << 20, 2 << 20)]

    found = heaviest_record(*viewed(dense(0, records, codec=codec)))

    assert 3 << 20 <= found < (3 << 20) + 100


@pytest.mark.parametrize("many", [10, 300, 10_000])
@pytest.mark.parametrize("codec", CODECS)
def test_a_large_record_among_many_tiny_ones_is_measured(codec: int, many: int) -> None:
    sizes = [*[1] * (many // 2), 9 << 20, *[1] * (many // 2)]

    found = heaviest_record(*viewed(dense(0, [Rec(value=bytes(size)) for size in sizes], codec=codec)))

    assert 9 << 20 <= found < (9 << 20) + 100


def test_a_bomb_among_many_tiny_records_is_measured() -> None:
    assert heaviest_record(*viewed(bomb(*[1] * 10_000, 300 * MEGABYTE))) in range(300 * MEGABYTE, 300 * MEGABYTE + 100)


@given(st.sampled_from(CODECS), st.lists(st.integers(0, 300_000), min_size=9, max_size=30), st.integers(0, 255))
@settings(max_examples=60, deadline=None)
def test_the_size_equals_that_of_the_decoded_records_wherever_pieces_end(codec: int, sizes: list[int], byte: int) -> None:
    records = [Rec(value=bytes([byte]) * size) for size in [*sizes, MEASURED]]

    found = heaviest_record(*viewed(dense(0, records, codec=codec)))

    assert MEASURED < found < MEASURED + 100


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_a_length_is_read_across_pieces(pieces: int) -> None:
    records = b"".join(varint(size) + bytes(size) for size in (0, 5, 70, 9_000, 2_100_000, 3))
    view, _ = viewed(dense(0, [Rec()] * 6))

    found = large._largest(view, (records[at : at + pieces] for at in range(0, len(records), pieces)), 6)

    assert found == 2_100_000


@pytest.mark.parametrize(
    "records",
    [varint(-2) + bytes(9), b"\x80" * 10, b"\x80" * 300_000, b"\x80", varint(9) + bytes(8), varint(1 << 62) + bytes(99)],
    ids=["negative", "10 bytes", "endless", "cut", "short", "2^62"],
)
def test_an_invalid_length_is_refused(records: bytes) -> None:
    view, _ = viewed(dense(0, [Rec()]))

    with pytest.raises(CorruptBatchError, match=r"no valid length|ends too early"):
        large._largest(view, iter([records]), 1)


def test_a_batch_whose_zstd_window_is_too_large_counts_with_its_limit() -> None:
    """As producers write with compression.zstd.level=22."""
    packer = zstandard.ZstdCompressor(level=22).compressobj()
    records = packer.compress(b"".join(varint(size) + bytes(size) for size in (3 << 20, 1 << 20))) + packer.flush()
    view, batch_of_bomb = viewed(bomb(1))
    batch = bytearray(batch_of_bomb[:RECORDS_AT]) + records
    write_checksum(batch)

    assert 4 << 20 < heaviest_record(view, memoryview(batch)) < 5 << 20
    assert 4 << 20 < decompressed_size(view, memoryview(batch), most=1 << 20) < 5 << 20


@pytest.mark.parametrize("sizes", [(250 * MEGABYTE,), (100 * MEGABYTE,) * 3])
def test_decompression_bombs_are_measured(sizes: tuple[int, ...]) -> None:
    assert heaviest_record(*viewed(bomb(*sizes))) in range(sizes[0], sizes[0] + 100)


def test_reading_stops_at_the_limit_of_an_endless_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "ENDLESS", 10 << 20)

    assert heaviest_record(*viewed(bomb(*[MEGABYTE] * 50))) == 10 << 20


@pytest.mark.parametrize("codec", [SNAPPY, LZ4, ZSTD])
def test_small_records_in_ordinary_batches_are_not_decompressed(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "inflate", None)

    found = heaviest_record(*viewed(dense(0, [Rec(value=b"%d" % number * 500) for number in range(300)], codec=codec)))

    assert found <= SMALL


@given(
    st.sampled_from(CODECS), st.lists(st.integers(0, 400_000), min_size=1, max_size=9), st.booleans(), st.integers(0, 5 << 20)
)
@settings(max_examples=100, deadline=None)
def test_the_decompressed_size_is_exact_or_above_the_callers_limit(
    codec: int, sizes: list[int], repeated: bool, most: int
) -> None:
    value = bytes if repeated else (lambda size: bytes(range(256)) * (size // 256))
    records = [Rec(value=value(size)) for size in sizes]
    view, batch = viewed(dense(0, records, codec=codec))
    _, plain = viewed(dense(0, records))
    size = len(plain) - RECORDS_AT

    found, limit = decompressed_size(view, batch, most=most), decompressed_limit(view, batch, most=most)

    assert found == size if size <= most else found > most
    assert size <= limit if size <= most else limit > most


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_an_old_format_counts_with_all_that_it_wraps(magic: int, codec: int) -> None:
    found = heaviest_record(*viewed(wrapper(magic, codec, {5: Rec(value=bytes(3 << 20)), 6: Rec()})))

    assert 3 << 20 < found < (3 << 20) + 200
    assert heaviest_record(*viewed(message(5, magic, Rec(value=bytes(1000))))) in range(1000, 1100)
