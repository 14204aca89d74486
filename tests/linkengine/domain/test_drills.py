"""Names of scratch copies and the result of a drill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkengine.domain.failover import CLAMPED_LISTED, DrillRow, all_passed, groups_after, proven_by, repeated, scratch_name
from linkengine.domain.groups import KnownOffset
from linkengine.domain.names import MAX_TOPIC_LENGTH, check_topic_name, is_internal

GOOD = DrillRow(
    mirror_topic_name="orders", scratch_topic_name="orders.x", rto_ms=5, records_compared=9, differences=0, writable=True
)


@pytest.mark.parametrize("topic", ["orders", "o" * MAX_TOPIC_LENGTH])
def test_a_scratch_name_is_legal_and_internal(topic: str) -> None:
    name = scratch_name(topic, drill=12)
    check_topic_name(name)
    assert is_internal(name)
    assert not is_internal(topic)


def test_long_names_that_would_share_a_scratch_name_are_found() -> None:
    long = "o" * (MAX_TOPIC_LENGTH - 1)
    assert repeated([f"{long}a", f"{long}b", "orders"], drill=1) == {f"{long}a", f"{long}b"}


@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, writable=False),
        replace(GOOD, differences=1),
        replace(GOOD, differences=None),
        replace(GOOD, records_compared=None),
        replace(GOOD, problem="the comparison failed"),
    ],
)
def test_a_failed_copy_fails_the_drill(bad: DrillRow) -> None:
    assert all_passed([GOOD])
    assert not all_passed([GOOD, bad])


def test_a_drill_without_topics_has_not_passed() -> None:
    assert not all_passed([])


@pytest.mark.parametrize(
    ("held", "compared", "problem", "note"),
    [
        ({0: 5, 1: 3}, {0: 5, 1: 1}, "", ""),
        ({0: 5, 1: 0}, {0: 5}, "", ""),
        ({0: 5, 1: 3}, {0: 5, 1: 0}, "Nothing was compared in partition 1:", ""),
        ({0: 5, 1: 3}, {}, "Nothing was compared in partition 0, 1:", ""),
        (dict.fromkeys(range(9), 1), {}, "partition 0, 1, 2, 3, 4 and more:", ""),
        ({0: 0, 1: 0}, {}, "", "The source is empty"),
    ],
)
def test_partitions_without_compared_records_are_a_problem_and_an_empty_source_a_note(
    held: dict[int, int], compared: dict[int, int], problem: str, note: str
) -> None:
    found_problem, found_note = proven_by(held, compared, start="latest")
    assert (problem in found_problem, note in found_note) == (True, True)
    assert (bool(found_problem), bool(found_note)) == (bool(problem), bool(note))


def test_a_partition_read_from_its_beginning_may_have_no_records() -> None:
    assert proven_by({0: 5, 1: 3}, {0: 2, 1: 0}, start="earliest", whole={1}) == ("", "")
    assert "partition 0:" in proven_by({0: 5, 1: 3}, {0: 0, 1: 0}, start="latest", whole={1})[0]


# committed at the source, start of the mirror, end of the scratch copy, what a failover would leave (None: as at the source)
OFFSETS = [
    (60, 0, 100, None),
    (100, 0, 100, None),
    (101, 0, 100, 100),
    (130, 120, 110, 120),  # not before the start
    (5, 20, 100, None),  # moved forward to the start, which loses nothing
]


@pytest.mark.parametrize(("source", "start", "end", "after"), OFFSETS)
def test_a_group_beyond_the_end_of_the_scratch_copy_is_clamped(source: int, start: int, end: int, after: int | None) -> None:
    (row,) = groups_after("orders", [KnownOffset(group="app", partition=0, source=source)], starts={0: start}, ends={0: end})

    clamped = [] if after is None else [{"partition": 0, "source_offset": source, "offset_after": after}]
    assert (row.partitions, row.clamped, row.clamped_offsets) == (1, len(clamped), clamped)
    assert row.offsets_set_back == (0 if after is None else source - after)


def test_groups_are_counted_separately_and_an_unknown_end_is_not_a_clamp() -> None:
    known = [KnownOffset(group=group, partition=number, source=9) for group in ("b", "a") for number in range(3)]

    rows = groups_after("orders", known, starts={}, ends={0: 4, 1: None})

    assert [(row.group, row.partitions, row.clamped, row.offsets_set_back, row.unknown) for row in rows] == [
        ("a", 3, 1, 5, 2),
        ("b", 3, 1, 5, 2),
    ]


def test_the_number_of_listed_clamped_offsets_is_limited() -> None:
    many = [KnownOffset(group="app", partition=number, source=9) for number in range(CLAMPED_LISTED + 1)]

    (row,) = groups_after("orders", many, starts={}, ends=dict.fromkeys(range(CLAMPED_LISTED + 1), 0))

    assert (row.clamped, len(row.clamped_offsets)) == (CLAMPED_LISTED + 1, CLAMPED_LISTED)
