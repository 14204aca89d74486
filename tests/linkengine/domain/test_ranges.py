import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.ranges import EXACT_REASONS, Gap, OffsetRange, comparable_start, count_within, fewer_gaps, merge
from linkengine.domain.states import GapReason

offset_ranges = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: OffsetRange(pair[0], pair[0] + pair[1]))


def covered(ranges: tuple[OffsetRange, ...] | list[OffsetRange]) -> set[int]:
    return {offset for offsets in ranges for offset in range(offsets.start, offsets.end)}


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (3, 2), (-5, -3)])
def test_a_range_that_ends_before_it_starts_or_is_negative_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        OffsetRange(start, end)


def test_the_end_is_exclusive() -> None:
    offsets = OffsetRange(3, 5)

    assert [offset in offsets for offset in (2, 3, 4, 5)] == [False, True, True, False]
    assert len(offsets) == 2


def test_an_empty_range_is_legal_and_contains_nothing() -> None:
    assert len(OffsetRange(7, 7)) == 0
    assert 7 not in OffsetRange(7, 7)


@given(st.lists(offset_ranges))
def test_merging_keeps_exactly_the_same_offsets(ranges: list[OffsetRange]) -> None:
    assert covered(merge(ranges)) == covered(ranges)


@given(st.lists(offset_ranges))
def test_merged_ranges_are_ascending_and_not_adjacent(ranges: list[OffsetRange]) -> None:
    merged = merge(ranges)

    assert all(len(offsets) for offsets in merged)
    assert all(offsets.end < following.start for offsets, following in itertools.pairwise(merged))


@given(st.lists(offset_ranges), st.randoms())
def test_merging_does_not_depend_on_order_and_merging_again_changes_nothing(ranges: list[OffsetRange], random: object) -> None:
    shuffled = list(ranges)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert merge(shuffled) == merge(ranges)
    assert merge(merge(ranges)) == merge(ranges)


@given(offset_ranges, offset_ranges)
def test_ranges_touch_if_they_merge_into_one_and_touching_is_symmetric(first: OffsetRange, second: OffsetRange) -> None:
    assert first.touches(second) == second.touches(first)
    if len(first) and len(second):
        assert first.touches(second) == (len(merge([first, second])) == 1)


@st.composite
def ledgers(draw: st.DrawFn) -> list[Gap]:
    """Return disjoint gaps with the same reason, in any order."""
    reason = draw(st.sampled_from(GapReason))
    found, start = [], 0
    for distance, length in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=60)):
        start += distance
        found.append(Gap(OffsetRange(start, start + length), reason, draw(st.integers(1, length))))
        start += length
    return draw(st.permutations(found))


@given(ledgers(), st.integers(2, 20))
def test_fewer_gaps_are_disjoint_ascending_and_count_the_same_offsets(ledger: list[Gap], most: int) -> None:
    fewer = fewer_gaps(ledger, most=most)

    assert sum(gap.filled for gap in fewer) == sum(gap.filled for gap in ledger)
    assert all(gap.range.end <= following.range.start for gap, following in itertools.pairwise(fewer))
    assert covered([gap.range for gap in ledger]) <= covered([gap.range for gap in fewer])
    exact = bool(fewer) and fewer[0].reason in EXACT_REASONS
    assert exact or len(fewer) <= most


@given(ledgers())
def test_a_small_ledger_keeps_its_offsets(ledger: list[Gap]) -> None:
    fewer = fewer_gaps(ledger, most=100)

    assert covered([gap.range for gap in fewer]) == covered([gap.range for gap in ledger])


def test_the_newest_gaps_stay_as_they_are() -> None:
    ledger = [Gap(OffsetRange(10 * number, 10 * number + 1), GapReason.ABORTED) for number in range(100)]

    fewer = fewer_gaps(ledger, most=8)

    assert fewer[-4:] == tuple(ledger[-4:])
    assert sum(gap.filled for gap in fewer) == 100


def test_a_gap_has_no_more_filled_offsets_than_offsets() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Gap(OffsetRange(0, 5), GapReason.ABORTED, 6)


@pytest.mark.parametrize(
    ("source", "mirror", "start"), [(None, None, None), (5, None, None), (None, 3, 3), (5, 3, 5), (2, 3, 3), (50, 3, 10)]
)
def test_sides_are_compared_from_the_later_log_start(source: int | None, mirror: int | None, start: int | None) -> None:
    assert comparable_start(source=source, mirror=mirror, end=10) == start


def test_only_the_parts_of_ranges_within_the_bounds_count() -> None:
    assert count_within([(0, 4), (4, 6), (8, 20), (30, 40)], start=3, end=10) == 1 + 2 + 2
