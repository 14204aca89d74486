import random

import pytest

from linkengine.batches.restamp import restamp
from linkengine.batches.view import RECORDS_AT, read_view, verify_crc
from tests.linkengine.batches.batchlog import GZIP, LOG_APPEND_TIME, LZ4, SNAPPY, ZSTD, Batch, Rec, at, dense, read_payload

ONE = Rec(7, b"key", b"value " * 100, ((b"h", None),))


def stamped(batch: Batch) -> bytearray:
    return bytearray(batch.encode())


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("one", [ONE, Rec(7), Rec(7, b"key", random.Random(7).randbytes(300_000))], ids=["", "empty", "large"])
def test_a_single_record_gets_the_time_its_broker_gave_it_without_being_decoded(one: Rec, codec: int) -> None:
    data = stamped(dense(12, [one], codec=codec, bits=LOG_APPEND_TIME, max_timestamp=99))
    view = read_view(data)
    assert view is not None

    answered = restamp(view, memoryview(data))

    assert answered == read_view(data)
    assert read_payload(data).records == (at(one, 99),)
    assert verify_crc(data)


def test_a_damaged_record_stays_damaged() -> None:
    data = stamped(dense(12, [ONE], bits=LOG_APPEND_TIME, max_timestamp=99))
    data[-1] ^= 1
    view = read_view(data)
    assert view is not None

    assert restamp(view, memoryview(data)) is not None
    assert not verify_crc(data)


@pytest.mark.parametrize(
    "batch",
    [
        dense(12, [ONE, ONE], bits=LOG_APPEND_TIME, max_timestamp=99),
        dense(12, [ONE], codec=SNAPPY, bits=LOG_APPEND_TIME, base_timestamp=5, max_timestamp=99),
        dense(12, [ONE], codec=ZSTD, bits=LOG_APPEND_TIME, base_timestamp=5, max_timestamp=99),
        dense(12, [ONE], bits=LOG_APPEND_TIME, base_timestamp=5, max_timestamp=99),
    ],
    ids=["two records", "a delta within snappy", "a delta within zstd", "a delta"],
)
def test_whatever_else_has_to_be_decoded_is_left_as_it_is(batch: Batch) -> None:
    data = stamped(batch)
    view = read_view(data)
    assert view is not None

    assert restamp(view, memoryview(data)) is None
    assert data == batch.encode()


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_cannot_be_unpacked_is_left_for_the_decoder_to_say_so(codec: int) -> None:
    data = stamped(dense(12, [ONE], codec=codec, bits=LOG_APPEND_TIME, max_timestamp=99))
    data[RECORDS_AT : RECORDS_AT + 12] = bytes(12)
    view = read_view(data)
    assert view is not None

    assert restamp(view, memoryview(data)) is None
