import cramjam
import pytest

from linkengine.batches.patch import patch_for_append
from linkengine.batches.view import read_view, verify_crc
from linkengine.copyjob.destination.head_seed import FILLER_MAX, dense_filler
from tests.linkengine.batches.batchlog import Rec, dense, read_payload, varint

EMPTY = Rec(timestamp=1_700_000_000_000, key=None, value=None)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 127, 128, 8191, 8192, 8193, 20_000])
def test_a_filler_holds_that_many_empty_records(count: int) -> None:
    filler = dense_filler(count, EMPTY.timestamp)

    read = read_payload(filler)
    assert read.checksum_right
    assert read.attributes == 4
    assert read.last_offset_delta == count - 1
    assert read.records == (EMPTY,) * count


def test_the_largest_filler_equals_a_producers_encoding_byte_for_byte() -> None:
    filler = dense_filler(FILLER_MAX, 5)

    body = bytes(cramjam.zstd.decompress(bytes(filler[61:])))
    expected = b"".join(varint(len(delta) + 5) + b"\0\0" + delta + b"\1\1\0" for delta in map(varint, range(FILLER_MAX)))
    assert body == expected
    assert len(filler) < 1_000_000  # below Kafka's default message.max.bytes


def test_two_fillers_do_not_share_bytes() -> None:
    first, second = dense_filler(1000, 5), dense_filler(1000, 5)

    patch_for_append(memoryview(first), producer_id=1 << 62, producer_epoch=0, base_sequence=0)

    assert first != second
    assert verify_crc(first)
    assert verify_crc(second)
    view = read_view(first)
    assert view is not None
    assert view.record_count == view.last_offset_delta + 1


def test_small_fillers_equal_a_batch_of_empty_records() -> None:
    by_hand = dense(0, [EMPTY] * 100).encode()

    assert bytes(cramjam.zstd.decompress(bytes(dense_filler(100, EMPTY.timestamp)[61:]))) == by_hand[61:]


@pytest.mark.parametrize("count", [0, -1, FILLER_MAX + 1])
def test_impossible_counts_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 1000000"):
        dense_filler(count, 0)
