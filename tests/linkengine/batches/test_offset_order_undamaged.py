import pytest

from linkengine.batches.view import CorruptBatchError, intact_part
from tests.linkengine.batches.batchlog import Rec, dense, message

BATCHES = [dense(10, [Rec(), Rec()]).encode(), dense(12, [Rec()]).encode(), message(13, 1, Rec()), dense(14, [Rec()]).encode()]


def log_with(damaged: int | None, *, cut: int = 0) -> tuple[memoryview, int]:
    """Return all batches, of which a single batch is damaged, and the position where the damaged batch begins."""
    data = bytearray(b"".join(BATCHES))
    begin = sum(map(len, BATCHES[:damaged]))
    if damaged is not None:
        data[begin + len(BATCHES[damaged]) - 1] ^= 1
    return memoryview(data)[: len(data) - cut], begin


def test_an_undamaged_response_is_returned_up_to_its_last_whole_batch() -> None:
    assert intact_part(log_with(None)[0], next_offset=10) == b"".join(BATCHES)
    assert intact_part(log_with(None, cut=1)[0], next_offset=10) == b"".join(BATCHES[:-1])


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_the_part_before_the_damaged_batch_is_returned(damaged: int) -> None:
    data, begin = log_with(damaged)

    assert intact_part(data, next_offset=10) == data[:begin]


@pytest.mark.parametrize(("damaged", "next_offset"), [(0, 10), (1, 12), (2, 13), (0, 11)])
def test_damage_at_the_mirrors_next_offset_raises(damaged: int, next_offset: int) -> None:
    with pytest.raises(CorruptBatchError, match="does not have the checksum"):
        intact_part(log_with(damaged)[0], next_offset=next_offset)


def test_an_invalid_header_counts_as_damage() -> None:
    data, _ = log_with(None)
    data[len(BATCHES[0]) + 8] = 0xFF  # a negative length

    assert intact_part(data, next_offset=10) == data[: len(BATCHES[0])]
    with pytest.raises(CorruptBatchError, match="claims a length"):
        intact_part(data, next_offset=12)
