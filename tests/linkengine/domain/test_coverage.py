from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.ranges import (
    NO_RECORDS,
    CheckedRange,
    OffsetRange,
    combine,
    first_open,
    hash_of,
    joined,
    missing_beginnings,
    missing_words,
    next_pieces,
)

HASHES = st.integers(0, (1 << 128) - 1).map(lambda number: f"{number:032x}")
SPANS = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: OffsetRange(min(pair), max(pair)))


def test_two_signed_hashes_are_written_as_32_digits() -> None:
    assert hash_of(-1, 1) == "f" * 16 + "0" * 15 + "1"
    assert hash_of(0, 0) == NO_RECORDS


@given(st.lists(HASHES, min_size=1), st.randoms())
def test_hashes_combine_in_any_order_and_the_empty_hash_is_neutral(hashes: list[str], shuffle: object) -> None:
    mixed = sorted(hashes)

    assert reduce(combine, hashes) == reduce(combine, mixed)
    assert combine(hashes[0], NO_RECORDS) == hashes[0]
    assert combine(hashes[0], "") == ""


def checked(start: int, end: int, *, partition: int = 0, differences: int = 0) -> CheckedRange:
    digest = hash_of(start, end)
    return CheckedRange(partition=partition, start=start, end=end, records=1, hash=digest, differences=differences)


def test_equal_neighbours_are_merged_and_ranges_with_differences_are_not() -> None:
    found = joined([checked(5, 9), checked(0, 5), checked(9, 12, differences=2), checked(12, 13), checked(13, 13)])

    assert [(merged.start, merged.end, merged.records, merged.differences) for merged in found] == [
        (0, 9, 2, 0),
        (9, 12, 1, 2),
        (12, 13, 1, 0),
    ]
    assert found[0].hash == combine(hash_of(0, 5), hash_of(5, 9))


def test_ranges_of_two_partitions_and_ranges_that_are_not_adjacent_are_not_merged() -> None:
    ranges = [checked(0, 5), checked(5, 6, partition=1), checked(7, 9)]

    assert len(joined(ranges)) == 3


@pytest.mark.parametrize(
    ("covered", "expected"),
    [
        ([], (10, 20)),
        ([(0, 5)], (10, 20)),
        ([(0, 12)], (12, 20)),
        ([(14, 16)], (10, 14)),
        ([(8, 14), (14, 16), (18, 30)], (16, 18)),
        ([(8, 40)], (20, 20)),
        ([(30, 40)], (10, 20)),
    ],
)
def test_the_first_uncovered_range_is_found(covered: list[tuple[int, int]], expected: tuple[int, int]) -> None:
    assert first_open(OffsetRange(10, 20), [OffsetRange(*span) for span in covered]) == OffsetRange(*expected)


@given(SPANS, st.lists(SPANS, max_size=6))
def test_successive_pieces_cover_every_offset_once(wanted: OffsetRange, covered: list[OffsetRange]) -> None:
    seen = [offset for span in covered for offset in range(span.start, span.end)]
    rest = [offset for offset in range(wanted.start, wanted.end) if offset not in seen]

    found: list[int] = []
    while pieces := next_pieces(wanted={0: wanted}, covered={0: covered}, most=7):
        assert 0 < len(pieces[0]) <= 7
        found += range(pieces[0].start, pieces[0].end)
        covered = [*covered, pieces[0]]

    assert found == rest


def test_partitions_share_the_budget_and_pass_on_what_they_do_not_need() -> None:
    wanted = {0: OffsetRange(0, 100), 1: OffsetRange(50, 53), 2: OffsetRange(0, 100), 3: OffsetRange(9, 9)}

    pieces = next_pieces(wanted=wanted, covered={2: [OffsetRange(0, 90)]}, most=30)

    assert pieces == {1: OffsetRange(50, 53), 2: OffsetRange(90, 100), 0: OffsetRange(0, 17)}


BEGINNINGS = [  # of the source, of the mirror, where the copy began, what is missing
    ({0: 5}, {0: 5}, {}, {}),
    ({0: 9}, {0: 5}, {}, {}),
    ({0: 5, 1: 0}, {0: 8, 1: 0}, {}, {0: OffsetRange(5, 8)}),
    ({0: 0}, {0: 100}, {0: 100}, {}),
    ({0: 0}, {0: 120}, {0: 100}, {0: OffsetRange(100, 120)}),
    ({}, {0: 100}, {}, {}),
]


@pytest.mark.parametrize(("source", "mirror", "heads", "missing"), BEGINNINGS)
def test_offsets_before_the_mirrors_start_are_missing_unless_the_copy_began_behind_them(
    source: dict[int, int], mirror: dict[int, int], heads: dict[int, int], missing: dict[int, OffsetRange]
) -> None:
    assert missing_beginnings(source=source, mirror=mirror, heads=heads) == missing


def test_missing_offsets_are_named_in_a_sentence() -> None:
    assert missing_words({}) == ""
    assert missing_words({2: OffsetRange(4, 5)}).startswith("1 offset that the source still holds is no longer on the mirror")
    many = missing_words({number: OffsetRange(0, 1000) for number in range(4)})
    assert many.startswith("4,000 offsets that the source still holds are no longer on the mirror (partition 0: [0, 1000), ")
    assert many.endswith("partition 2: [0, 1000) and more).")
