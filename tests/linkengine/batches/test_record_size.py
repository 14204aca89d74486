"""The estimated size of a batch's largest record is never too small, and rarely needs to decompress the whole batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.batches import record_size
from linkengine.batches.record_size import MEASURED, SMALL, heaviest_record
from linkengine.batches.view import BatchView, read_view
from tests.linkengine.batches.batchlog import GZIP, LZ4, SNAPPY, ZSTD, Batch, Rec, dense
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
    assert found <= max(SMALL, MEASURED, max(sizes) + 100)


@pytest.mark.parametrize("codec", CODECS)
def test_the_largest_record_of_a_large_batch_is_measured(codec: int) -> None:
    records = [Rec(value=bytes(size)) for size in (10, 3 << 20, 2 << 20)]

    found = heaviest_record(*viewed(dense(0, records, codec=codec)))

    assert 3 << 20 <= found < (3 << 20) + 100


@pytest.mark.parametrize("sizes", [(250 * MEGABYTE,), (100 * MEGABYTE,) * 3])
def test_decompression_bombs_are_measured(sizes: tuple[int, ...]) -> None:
    assert heaviest_record(*viewed(bomb(*sizes))) in range(sizes[0], sizes[0] + 100)


def test_reading_stops_at_the_limit_of_an_endless_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_size, "ENDLESS", 10 << 20)

    assert heaviest_record(*viewed(bomb(*[MEGABYTE] * 50))) == 10 << 20


@pytest.mark.parametrize("codec", [SNAPPY, LZ4, ZSTD])
def test_small_records_in_ordinary_batches_are_not_decompressed(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_size, "decompress", None)
    monkeypatch.setattr(record_size, "read_large", None)

    found = heaviest_record(*viewed(dense(0, [Rec(value=b"%d" % number * 50) for number in range(100)], codec=codec)))

    assert found <= SMALL
