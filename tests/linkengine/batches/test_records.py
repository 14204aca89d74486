from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.batches import compression
from linkengine.batches import records as batches_records
from linkengine.batches.records import Record, decode_records, encode_records
from linkengine.batches.view import RECORDS_AT, CorruptBatchError, read_view
from tests.linkengine.batches.batchlog import (
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    SNAPPY,
    XERIAL_HEADER,
    ZSTD,
    Batch,
    Rec,
    dense,
    read_payload,
    resealed,
    varint,
)

CODECS = [0, GZIP, SNAPPY, LZ4, ZSTD]
NASTY = [
    Rec(timestamp=50, key=None, value=None),
    Rec(timestamp=10, key=b"", value=b""),
    Rec(timestamp=-1, key=b"k" * 200, value=b"v" * 9000, headers=((b"", None), ("ключ".encode(), b""), (b"h", b"1"))),
    Rec(timestamp=1 << 60, headers=((b"twice", b"a"), (b"twice", b"b"))),
]


def decode(batch: Batch | bytes) -> list[Record]:
    data = memoryview(batch if isinstance(batch, bytes) else batch.encode())
    view = read_view(data)
    assert view is not None
    return [
        Record(record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in decode_records(view, data)
    ]


def as_record(offset: int, record: Rec) -> Record:
    headers = [(key.decode("utf-8", "surrogateescape"), value) for key, value in record.headers]
    return Record(offset, record.timestamp, record.key, record.value, headers)


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_are_decoded_with_their_gaps(codec: int) -> None:
    batch = Batch(100, {1: NASTY[0], 5: NASTY[1], 6: NASTY[2], 900: NASTY[3]}, last_offset_delta=1000, codec=codec)

    assert decode(batch) == [as_record(100 + delta, record) for delta, record in batch.records.items()]


@pytest.mark.parametrize("codec", CODECS)
def test_records_encoded_with_every_codec_are_readable_by_kafka_python(codec: int) -> None:
    payload = encode_records([as_record(7 + number, record) for number, record in enumerate(NASTY)], codec=codec)

    read = read_payload(payload)
    assert read.checksum_right
    assert (read.base_offset, read.attributes, read.last_offset_delta, read.max_timestamp) == (7, codec, 3, 1 << 60)
    assert read.records == tuple(NASTY)


def test_log_append_time_replaces_every_timestamp() -> None:
    batch = dense(0, NASTY, bits=LOG_APPEND_TIME, max_timestamp=12345)

    assert [record.timestamp for record in decode(batch)] == [12345] * 4


@pytest.mark.parametrize("first", [-1, 0, 5])
def test_records_without_timestamp_keep_it(first: int) -> None:
    records = [as_record(number, Rec(timestamp=timestamp)) for number, timestamp in enumerate([first, 5, -1, 3])]

    assert [record.timestamp for record in read_payload(encode_records(records, codec=0)).records] == [first, 5, -1, 3]


@pytest.mark.parametrize("codec", CODECS)
def test_header_keys_that_are_not_utf8_keep_their_bytes(codec: int) -> None:
    odd = Rec(headers=((b"\xff\xfe", b"v"), (b"ok", None)))
    decoded = decode(dense(0, [odd, Rec()], codec=codec))

    again = decode(bytes(encode_records(decoded, codec=codec)))

    assert decoded == [as_record(0, odd), as_record(1, Rec())]
    assert again == decoded
    assert b"\xff\xfe" in encode_records(decoded, codec=0)


def test_snappy_with_xerial_framing_is_read() -> None:
    data = b"kafka" * 20_000

    framed = compression.compress(SNAPPY, data)

    assert framed.startswith(XERIAL_HEADER)
    assert compression.decompress(SNAPPY, framed, most=len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_records_are_refused(codec: int) -> None:
    batch = bytearray(dense(3, [Rec()] * 5, codec=codec).encode())
    batch[70] ^= 1

    with pytest.raises(CorruptBatchError, match="offset 3 does not have the checksum"):
        decode(bytes(batch))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_bytes_of_another_codec_are_refused(codec: int) -> None:
    with pytest.raises(CorruptBatchError, match=f"decompressed with {compression.NAMES[codec]}"):
        compression.decompress(codec, b"\0not compressed at all, by nobody" * 3, most=1 << 20)


@pytest.mark.parametrize("value", [0x12, 0x0E, 0x7E, 0x01])
def test_a_record_with_a_wrong_length_is_refused(value: int) -> None:
    batch = resealed(dense(3, [Rec()] * 2).encode(), RECORDS_AT, value)
    odd = resealed(dense(3, [Rec(headers=((b"\xff", None),))] * 2).encode(), RECORDS_AT, value)

    with pytest.raises(CorruptBatchError, match="records at offset 3 cannot be read"):
        decode(batch)
    with pytest.raises(CorruptBatchError):
        decode(odd)


def test_bytes_behind_the_last_record_are_refused() -> None:
    for rec in (Rec(), Rec(headers=((b"\xff", None),))):
        with pytest.raises(CorruptBatchError):
            decode(resealed(dense(3, [rec] * 2, last_offset_delta=1).encode(), 60, 1))


@pytest.mark.parametrize("deltas", [(0, 0), (2, 1), (0, 7)])
def test_offsets_that_do_not_ascend_within_the_batch_are_refused(deltas: tuple[int, int]) -> None:
    class Twice(dict[int, Rec]):
        """A mapping with repeated keys, as a damaged batch may have."""

        def __init__(self) -> None:
            super().__init__({0: Rec(), 1: Rec()})

        def items(self) -> list[tuple[int, Rec]]:  # type: ignore[override]
            return [(delta, Rec()) for delta in deltas]

    with pytest.raises(CorruptBatchError, match="claims the offset"):
        decode(Batch(10, Twice(), last_offset_delta=5))


RECORDS = st.lists(
    st.builds(
        Rec,
        timestamp=st.integers(-5, 1 << 50),
        key=st.none() | st.binary(max_size=80),
        value=st.none() | st.binary(max_size=80),
        headers=st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


@given(RECORDS, st.sampled_from(CODECS), st.integers(0, 1 << 60))
def test_records_are_unchanged_by_encoding_and_decoding(records: list[Rec], codec: int, base_offset: int) -> None:
    decoded = decode(dense(base_offset, records, codec=codec))

    assert decoded == [as_record(base_offset + number, record) for number, record in enumerate(records)]
    assert decode(bytes(encode_records(decoded, codec=codec))) == decoded


@given(RECORDS)
def test_the_exact_codec_writes_the_specified_format(records: list[Rec]) -> None:
    encoded = batches_records.encode([as_record(number, record) for number, record in enumerate(records)])
    batch = dense(0, records)
    view = read_view(batch.encode())

    assert view is not None
    assert encoded[RECORDS_AT:] == batch.encode()[RECORDS_AT:]
    assert list(batches_records.decode(view, bytes(encoded[RECORDS_AT:]))) == [
        as_record(at, record) for at, record in enumerate(records)
    ]


@given(st.binary(max_size=60))
def test_the_exact_codec_reads_or_refuses_noise(noise: bytes) -> None:
    view = read_view(dense(0, [Rec()] * 2).encode())
    assert view is not None
    with suppress(CorruptBatchError):
        list(batches_records.decode(view, noise))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints_match_the_format(number: int) -> None:
    assert batches_records.varint(number) == varint(number)
