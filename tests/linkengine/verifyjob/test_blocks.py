import pytest

from linkengine.domain.ranges import OffsetRange, combine, hash_of
from linkengine.verifyjob.reading import Block, block_offsets, checked_ranges, differing_ranges, without_deleted

PIECE = OffsetRange(5, 35)


def block(number: int, *, equal: bool = True, differences: int = 0) -> Block:
    digest = hash_of(number + 1, 0)
    return Block(
        partition=0, number=number, records=10, bytes=9, hash=digest, equal=equal, differences=differences
    )  # fmt: skip


def test_short_topics_have_small_blocks_and_long_ones_few() -> None:
    assert block_offsets({0: OffsetRange(0, 10)}) == 4096
    assert block_offsets({0: OffsetRange(0, 1 << 35), 1: OffsetRange(0, 1 << 35)}) == 1 << 24


def test_the_doubtful_range_spans_the_first_to_the_last_differing_block() -> None:
    blocks = [block(0, equal=False), block(1), block(3, equal=False)]

    assert differing_ranges(blocks, {0: PIECE}, size=10) == {0: OffsetRange(5, 35)}
    assert differing_ranges(blocks[:2], {0: PIECE}, size=10) == {0: OffsetRange(5, 10)}
    assert differing_ranges([block(1)], {0: PIECE}, size=10) == {}


def test_checked_ranges_cover_the_piece_and_are_cut_where_records_differ() -> None:
    blocks = [block(0), block(2, equal=False, differences=4), block(3, equal=False)]

    first, second, third = checked_ranges(blocks, {0: PIECE}, size=10)

    assert (first.start, first.end, first.records, first.differences) == (5, 20, 10, 0)
    assert (second.start, second.end, second.differences) == (20, 30, 4)
    assert (third.start, third.end, third.records, third.hash) == (30, 35, 10, hash_of(4, 0))


@pytest.mark.parametrize(
    ("start", "held"),
    [(5, 5), (6, 10), (10, 10), (12, 20), (25, 20), (31, 35)],
    ids=["before all", "in the first", "at the second", "in the second", "in an equal block", "in the last"],
)
def test_only_differing_blocks_with_deleted_records_are_left_out(start: int, held: int) -> None:
    blocks = [block(0, differences=1), block(1, differences=1), block(2), block(3, differences=1)]

    assert without_deleted(blocks, {0: PIECE}, starts={0: start}, size=10) == {0: OffsetRange(held, 35)}


def test_equal_blocks_are_joined_to_a_range_with_a_combined_hash() -> None:
    [checked] = checked_ranges([block(1), block(0)], {0: PIECE}, size=10)

    assert (checked.start, checked.end, checked.records, checked.hash) == (5, 35, 20, combine(hash_of(1, 0), hash_of(2, 0)))
