import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.batches.view import (
    HEADER,
    BatchView,
    CorruptBatchError,
    first_timestamp,
    iter_batches,
    read_view,
    verify_crc,
)
from linkengine.domain.errors import ErrorCode
from tests.linkengine.batches.batchlog import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    LZ4,
    TRANSACTIONAL,
    Batch,
    Rec,
    dense,
    marker,
    message,
    resealed,
    wrapper,
)

# Written by kafka-python's builder with a transactional producer, then split by hand.
GOLDEN = bytes.fromhex(
    "000000000000002a"  # base offset 42
    "00000044"  # length 68
    "00000007"  # leader epoch
    "02"  # magic
    "a0d1d752"  # checksum
    "0010"  # attributes: transactional
    "00000001"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56805"  # max timestamp
    "00000000000003e8"  # producer id 1000
    "0003"  # producer epoch
    "00000009"  # base sequence
    "00000002"  # records
    "10 00 00 00 026b 0276 00"  # key k, value v, no header
    "12 00 0a 02 01 01 02 0268 01"  # 5 ms later: null key, null value, header h without value
)


def test_the_header_is_61_bytes_and_every_field_is_read_from_its_place() -> None:
    view = read_view(GOLDEN)

    assert HEADER.size == 61
    assert view is not None
    assert (view.base_offset, view.length, view.leader_epoch, view.magic) == (42, 68, 7, 2)
    assert (view.crc, view.attributes) == (0xA0D1D752, 0x10)
    assert (view.last_offset_delta, view.record_count) == (1, 2)
    assert (view.base_timestamp, view.max_timestamp) == (1_700_000_000_000, 1_700_000_000_005)
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (1000, 3, 9)
    assert view.size == len(GOLDEN)
    assert view.next_offset == 44
    assert verify_crc(GOLDEN)


def test_the_attribute_bits_have_names() -> None:
    def view(attributes: int) -> BatchView:
        return BatchView(0, 49, -1, 2, 0, attributes, 2, 0, 0, -1, -1, -1, 3)

    assert view(LZ4).codec == 3
    assert view(CONTROL | 4).is_control
    assert view(CONTROL | 4).codec == 4
    assert view(TRANSACTIONAL).is_transactional
    assert view(LOG_APPEND_TIME).log_append_time
    assert not view(DELETE_HORIZON).is_control


def test_whole_batches_are_found_and_a_partial_last_batch_is_left_out() -> None:
    batches = [dense(0, [Rec()] * 3), marker(3, 1, 5), dense(4, [Rec()], codec=LZ4)]
    encoded = [batch.encode() for batch in batches]
    buffer = b"".join(encoded)

    for cut in range(len(buffer) + 1):
        found = list(iter_batches(memoryview(buffer)[:cut]))
        ends = [sum(map(len, encoded[: number + 1])) for number in range(3)]
        assert len(found) == sum(end <= cut for end in ends)
        assert [start for start, _ in found] == [0, *ends][: len(found)]
        assert [(view.base_offset, view.size) for _, view in found] == [
            (batch.base_offset, len(raw)) for batch, raw in zip(batches, encoded, strict=True)
        ][: len(found)]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_recognized(magic: int) -> None:
    plain, packed = message(7, magic, Rec(timestamp=99)), wrapper(magic, LZ4, {8: Rec(), 9: Rec()})

    (_, first), (start, second) = iter_batches(memoryview(plain + packed))

    assert (first.magic, first.base_offset, first.size, first.codec) == (magic, 7, len(plain), 0)
    assert first.max_timestamp == (99 if magic else -1)
    assert (start, second.base_offset, second.size, second.codec) == (len(plain), 9, len(packed), LZ4)
    assert verify_crc(plain)
    assert verify_crc(packed)
    assert not verify_crc(plain[:-1] + b"x")


def test_the_checksum_covers_attributes_to_end() -> None:
    batch = bytearray(dense(3, [Rec()] * 4).encode())

    assert verify_crc(batch)
    for position in range(len(batch)):
        batch[position] ^= 1
        # base offset, length and epoch are outside the checksum; a changed magic makes it another format
        assert verify_crc(batch) == (position < 16)
        batch[position] ^= 1


@pytest.mark.parametrize(
    ("at", "code", "value", "sentence", "error"),
    [
        (8, ">i", 48, "claims a length of 48 bytes", ErrorCode.CORRUPT_RECORDS),
        (8, ">i", -1, "claims a length of -1 bytes", ErrorCode.CORRUPT_RECORDS),
        (16, ">b", 3, "format version 3 and has the checksum of version 2", ErrorCode.CORRUPT_RECORDS),
        (16, ">bI", (3, 77), "format version 3; versions 0 to 2", ErrorCode.UNSUPPORTED_MESSAGE_FORMAT),
        (16, ">BI", (130, 77), "format version 130; versions 0 to 2", ErrorCode.UNSUPPORTED_MESSAGE_FORMAT),
        (0, ">q", -1, "claims the base offset -1", ErrorCode.CORRUPT_RECORDS),
        (23, ">i", -1, "ends before it begins", ErrorCode.CORRUPT_RECORDS),
        (57, ">i", 5, "claims 5 records on 4 offsets", ErrorCode.CORRUPT_RECORDS),
        (57, ">i", -1, "claims -1 records", ErrorCode.CORRUPT_RECORDS),
        (21, ">h", 5, "does not have the checksum", ErrorCode.CORRUPT_RECORDS),
    ],
)
def test_an_invalid_header_is_refused_with_a_reason(
    at: int, code: str, value: int | tuple[int, ...], sentence: str, error: ErrorCode
) -> None:
    batch = bytearray(dense(0, [Rec()] * 4).encode())
    struct.pack_into(code, batch, at, *(value if isinstance(value, tuple) else (value,)))

    with pytest.raises(CorruptBatchError, match=sentence) as refusal:
        list(iter_batches(memoryview(batch)))
    assert refusal.value.code == error


def test_an_unknown_codec_with_a_valid_checksum_is_refused_as_unsupported() -> None:
    batch = resealed(dense(0, [Rec()]).encode(), 22, 5)

    with pytest.raises(CorruptBatchError, match="uses compression 5") as refusal:
        list(iter_batches(memoryview(batch)))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_MESSAGE_FORMAT


def test_a_partial_batch_of_a_newer_format_is_not_refused() -> None:
    batch = bytearray(dense(0, [Rec()]).encode())
    batch[16] = 3

    assert list(iter_batches(memoryview(batch)[:-1])) == []


@pytest.mark.parametrize(("magic", "smallest"), [(0, 14), (1, 22)])
def test_an_old_message_shorter_than_its_header_or_before_offset_0_is_refused(magic: int, smallest: int) -> None:
    short = bytearray(message(1, magic, Rec(key=None, value=None)))
    assert len(short) == smallest + 12
    struct.pack_into(">i", short, 8, smallest - 1)
    with pytest.raises(CorruptBatchError, match=f"its header alone has {smallest}"):
        list(iter_batches(memoryview(short)))

    with pytest.raises(CorruptBatchError, match="offset -1"):
        list(iter_batches(memoryview(message(-1, magic, Rec()))))


@given(st.binary(max_size=300), st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_damaged_buffers_are_read_or_refused_but_never_crash(noise: bytes, at: int, change: bytes) -> None:
    batch = bytearray(Batch(0, {0: Rec(), 3: Rec()}).encode() + marker(4, 0, 1).encode())
    batch[at : at + len(change)] = change

    for data in (noise, bytes(batch)):
        try:
            found = list(iter_batches(memoryview(data)))
        except CorruptBatchError:
            continue
        assert sum(view.size for _, view in found) <= len(data)


def test_the_first_timestamp_is_never_the_delete_horizon() -> None:
    first, newest = Rec(timestamp=500), Rec(timestamp=700, value=None)
    plain, cleaned = dense(0, [first, newest]), dense(0, [first, newest], bits=DELETE_HORIZON, base_timestamp=90_000)

    assert first_timestamp(plain.encode()) == 500
    assert first_timestamp(cleaned.encode()) == 700
