import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.batches.patch import next_sequence, patch_for_append
from linkengine.batches.view import CorruptBatchError, verify_crc
from tests.linkengine.batches.batchlog import (
    CONTROL,
    DELETE_HORIZON,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    Rec,
    dense,
    marker,
    message,
    read_payload,
)

MIRROR_PRODUCER = {"producer_id": (1 << 62) + 5, "producer_epoch": 3, "base_sequence": 2_147_483_647}


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("bits", [0, TRANSACTIONAL, DELETE_HORIZON, TRANSACTIONAL | DELETE_HORIZON])
def test_a_patched_batch_has_the_mirrors_producer_and_unchanged_records(codec: int, bits: int) -> None:
    records = [Rec(timestamp=50 - number, value=b"x" * number) for number in range(20)]
    source = dense(1234, records, codec=codec, bits=bits, producer_id=9, base_timestamp=77)
    batch = bytearray(source.encode())
    body = bytes(batch[61:])

    patch_for_append(memoryview(batch), **MIRROR_PRODUCER)

    read = read_payload(batch)
    assert read.checksum_right
    assert read.base_offset == 0
    assert batch[12:16] == b"\xff\xff\xff\xff"
    assert read.attributes == codec
    assert read.producer == ((1 << 62) + 5, 3, 2_147_483_647)
    assert read.last_offset_delta == 19
    assert read.max_timestamp == 50
    assert read.records == tuple(records)
    assert bytes(batch[61:]) == body


@given(
    st.binary(min_size=1, max_size=3000),
    st.integers(-1, (1 << 63) - 1),
    st.integers(-1, (1 << 15) - 1),
    st.integers(-1, (1 << 31) - 1),
)
def test_the_adjusted_checksum_is_valid(value: bytes, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    batch = bytearray(dense(7, [Rec(value=value)], bits=TRANSACTIONAL, producer_id=4).encode())

    patch_for_append(memoryview(batch), producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)

    assert verify_crc(batch)


def test_patching_again_for_another_sequence_is_allowed() -> None:
    batch = bytearray(dense(7, [Rec()] * 5).encode())
    once = bytearray(batch)

    patch_for_append(memoryview(batch), producer_id=1, producer_epoch=2, base_sequence=3)
    patch_for_append(memoryview(batch), **MIRROR_PRODUCER)
    patch_for_append(memoryview(once), **MIRROR_PRODUCER)

    assert batch == once


@pytest.mark.parametrize("position", [25, 40, 61, 70, -1])
def test_a_damaged_batch_stays_damaged(position: int) -> None:
    batch = bytearray(dense(7, [Rec()] * 5).encode())
    batch[position] ^= 0x20

    patch_for_append(memoryview(batch), **MIRROR_PRODUCER)

    assert not verify_crc(batch)


@pytest.mark.parametrize(
    "source",
    [
        dense(0, [Rec()], bits=LOG_APPEND_TIME).encode(),
        dense(0, [Rec()], bits=CONTROL).encode(),
        marker(0, 1, 5).encode(),
        message(0, 1, Rec(value=b"v" * 50)),
        message(0, 0, Rec(value=b"v" * 50)),
    ],
)
def test_a_batch_that_brokers_refuse_from_clients_is_refused_unchanged(source: bytes) -> None:
    batch = bytearray(source)

    with pytest.raises(CorruptBatchError, match="must be re-encoded"):
        patch_for_append(memoryview(batch), **MIRROR_PRODUCER)
    assert batch == source


@pytest.mark.parametrize(
    ("base", "count", "following"),
    [
        (0, 1, 1),
        (0, 0, 0),
        ((1 << 31) - 2, 1, (1 << 31) - 1),
        ((1 << 31) - 1, 1, 0),
        ((1 << 31) - 1, 5, 4),
        ((1 << 31) - 10, 1_000_000, 999_990),
    ],
)
def test_sequences_wrap_to_zero_after_the_largest_int(base: int, count: int, following: int) -> None:
    assert next_sequence(base, count) == following
