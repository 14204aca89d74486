import random

import pytest

from linkengine.batches.patch import restamp
from linkengine.batches.view import RECORDS_AT, read_view, verify_crc
from tests.linkengine.batches.batchlog import GZIP, LOG_APPEND_TIME, LZ4, SNAPPY, ZSTD, Batch, Rec, at, dense, read_payload

SINGLE = Rec(7, b"key", b"value " * 100, ((b"h", None),))


def stamped(batch: Batch) -> bytearray:
    return bytearray(batch.encode())


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize(
    "record", [SINGLE, Rec(7), Rec(7, b"key", random.Random(7).randbytes(300_000))], ids=["", "empty", "large"]
)
def test_a_single_record_gets_its_append_time_without_decoding(record: Rec, codec: int) -> None:
    data = stamped(dense(12, [record], codec=codec, bits=LOG_APPEND_TIME, max_timestamp=99))
    view = read_view(data)
    assert view is not None

    header = restamp(view, memoryview(data))

    assert header == read_view(data)
    assert read_payload(data).records == (at(record, 99),)
    assert verify_crc(data)


def test_a_damaged_record_stays_damaged() -> None:
    data = stamped(dense(12, [SINGLE], bits=LOG_APPEND_TIME, max_timestamp=99))
    data[-1] ^= 1
    view = read_view(data)
    assert view is not None

    assert restamp(view, memoryview(data)) is not None
    assert not verify_crc(data)


@pytest.mark.parametrize(
    "batch",
    [
        dense(12, [SINGLE, SINGLE], bits=LOG_APPEND_TIME, max_timestamp=99),
        dense(12, [SINGLE], codec=SNAPPY, bits=LOG_APPEND_TIME, base_timestamp=5, max_timestamp=99),
        dense(12, [SINGLE], codec=ZSTD, bits=LOG_APPEND_TIME, base_timestamp=5, max_timestamp=99),
        dense(12, [SINGLE], bits=LOG_APPEND_TIME, base_timestamp=5, max_timestamp=99),
    ],
    ids=["two records", "a delta within snappy", "a delta within zstd", "a delta"],
)
def test_a_batch_that_must_be_decoded_is_left_unchanged(batch: Batch) -> None:
    data = stamped(batch)
    view = read_view(data)
    assert view is not None

    assert restamp(view, memoryview(data)) is None
    assert data == batch.encode()


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_cannot_be_decompressed_is_left_to_the_decoder(codec: int) -> None:
    data = stamped(dense(12, [SINGLE], codec=codec, bits=LOG_APPEND_TIME, max_timestamp=99))
    data[RECORDS_AT : RECORDS_AT + 12] = bytes(12)
    view = read_view(data)
    assert view is not None

    assert restamp(view, memoryview(data)) is None
