import struct

import pytest

from linkengine.batches.records import Record, decode_legacy
from linkengine.batches.view import CorruptBatchError, read_view
from tests.linkengine.batches.batchlog import GZIP, LOG_APPEND_TIME, LZ4, SNAPPY, Rec, compress, message, wrapper

RECORDS = {10: Rec(timestamp=3), 11: Rec(timestamp=2, key=None), 14: Rec(timestamp=9, value=None)}


def decode(data: bytes) -> list[Record]:
    view = read_view(data)
    assert view is not None
    return list(decode_legacy(view, memoryview(data)))


def expected(records: dict[int, Rec], *, timestamp: int | None = None) -> list[Record]:
    return [
        Record(offset, record.timestamp if timestamp is None else timestamp, record.key, record.value, [])
        for offset, record in records.items()
    ]


def test_a_plain_message_has_a_timestamp_with_magic_1_and_none_with_magic_0() -> None:
    assert decode(message(10, 1, RECORDS[10])) == expected({10: RECORDS[10]})
    assert decode(message(10, 0, RECORDS[10])) == expected({10: RECORDS[10]}, timestamp=-1)
    assert decode(message(14, 1, RECORDS[14])) == expected({14: RECORDS[14]})


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_wrapper_of_magic_0_holds_absolute_offsets(codec: int) -> None:
    assert decode(wrapper(0, codec, RECORDS)) == expected(RECORDS, timestamp=-1)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_wrapper_of_magic_1_holds_relative_offsets(codec: int) -> None:
    assert decode(wrapper(1, codec, RECORDS)) == expected(RECORDS)


def test_with_log_append_time_the_wrapper_has_the_timestamp() -> None:
    assert decode(wrapper(1, LZ4, RECORDS, bits=LOG_APPEND_TIME, timestamp=77)) == expected(RECORDS, timestamp=77)


@pytest.mark.parametrize("magic", [0, 1])
def test_incompressible_and_long_records_are_read_from_old_lz4(magic: int) -> None:
    long = {0: Rec(value=bytes(range(256)) * 1000), 1: Rec(value=b"a" * 300_000)}

    assert [record.value for record in decode(wrapper(magic, LZ4, long))] == [record.value for record in long.values()]


def test_a_damaged_message_is_refused() -> None:
    data = bytearray(message(10, 1, Rec()))
    data[-1] ^= 1

    with pytest.raises(CorruptBatchError, match="offset 10 does not have the checksum"):
        decode(bytes(data))


def refuse(inner: bytes, magic: int, codec: int, sentence: str) -> None:
    with pytest.raises(CorruptBatchError, match=sentence):
        decode(message(10, magic, Rec(5, None, compress(codec, inner)), codec))


def test_wrappers_that_do_not_add_up_are_refused() -> None:
    refuse(b"", 1, GZIP, "holds no message")
    refuse(message(0, 0, Rec()), 1, GZIP, "of another format")
    refuse(message(0, 1, Rec(), attributes=GZIP), 1, GZIP, "of another format")
    refuse(message(1, 1, Rec()) + message(0, 1, Rec()), 1, GZIP, "not in order")
    with pytest.raises(CorruptBatchError, match="decompressed with lz4"):
        decode(message(10, 0, Rec(5, None, b"nonsense"), LZ4))
    with pytest.raises(CorruptBatchError, match="decompressed with gzip"):
        decode(message(10, 1, Rec(5, None, b"nonsense"), GZIP))
    with pytest.raises(CorruptBatchError, match="holds no message"):
        decode(message(10, 1, Rec(5, None, None), GZIP))


@pytest.mark.parametrize("size", [-2, 500])
def test_lengths_that_do_not_add_up_are_refused(size: int) -> None:
    inner = bytearray(message(0, 1, Rec(key=b"kk", value=b"v")))
    struct.pack_into(">i", inner, 26, size)  # the key's length; inner checksums are not verified, the wrapper's is

    refuse(bytes(inner), 1, GZIP, "claims|ends before")
