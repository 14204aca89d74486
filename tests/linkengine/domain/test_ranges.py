import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.ranges import Gap, OffsetRange, merge, merge_gaps
from linkengine.domain.states import GapReason

offset_ranges = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: OffsetRange(pair[0], pair[0] + pair[1]))
gaps = st.builds(Gap, offset_ranges, st.sampled_from(GapReason))


def covered(ranges: tuple[OffsetRange, ...] | list[OffsetRange]) -> set[int]:
    return {offset for one in ranges for offset in range(one.start, one.end)}


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (3, 2), (-5, -3)])
def test_a_range_that_ends_before_it_starts_or_is_negative_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        OffsetRange(start, end)


def test_the_end_is_exclusive() -> None:
    one = OffsetRange(3, 5)

    assert [offset in one for offset in (2, 3, 4, 5)] == [False, True, True, False]
    assert len(one) == 2


def test_an_empty_range_is_legal_and_contains_nothing() -> None:
    assert len(OffsetRange(7, 7)) == 0
    assert 7 not in OffsetRange(7, 7)


@given(st.lists(offset_ranges))
def test_merging_keeps_exactly_the_same_offsets(ranges: list[OffsetRange]) -> None:
    assert covered(merge(ranges)) == covered(ranges)


@given(st.lists(offset_ranges))
def test_merged_ranges_ascend_and_leave_a_hole_between_each_other(ranges: list[OffsetRange]) -> None:
    merged = merge(ranges)

    assert all(len(one) for one in merged)
    assert all(one.end < following.start for one, following in itertools.pairwise(merged))


@given(st.lists(offset_ranges), st.randoms())
def test_merging_does_not_depend_on_order_and_merging_again_changes_nothing(ranges: list[OffsetRange], random: object) -> None:
    shuffled = list(ranges)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert merge(shuffled) == merge(ranges)
    assert merge(merge(ranges)) == merge(ranges)


@given(offset_ranges, offset_ranges)
def test_touching_is_symmetric_and_means_that_two_become_one(one: OffsetRange, other: OffsetRange) -> None:
    assert one.touches(other) == other.touches(one)
    if len(one) and len(other):
        assert one.touches(other) == (len(merge([one, other])) == 1)


@given(st.lists(gaps))
def test_merged_gaps_keep_every_offset_with_its_reason(ledger: list[Gap]) -> None:
    merged = merge_gaps(ledger)

    for reason in GapReason:
        assert covered([gap.range for gap in merged if gap.reason is reason]) == covered(
            [gap.range for gap in ledger if gap.reason is reason]
        )


@given(st.lists(gaps))
def test_a_merged_ledger_ascends_by_range(ledger: list[Gap]) -> None:
    merged = merge_gaps(ledger)

    assert [gap.range for gap in merged] == sorted(gap.range for gap in merged)


def test_neighbours_with_different_reasons_stay_apart() -> None:
    aborted, marker = Gap(OffsetRange(0, 5), GapReason.ABORTED), Gap(OffsetRange(5, 6), GapReason.TRANSACTION_MARKER)

    assert merge_gaps([marker, aborted]) == (aborted, marker)
