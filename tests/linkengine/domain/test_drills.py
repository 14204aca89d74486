"""Names of scratch copies and the verdict over a drill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkengine.domain.drills import DrillRow, proven_by, repeated, scratch_name, verdict
from linkengine.domain.naming import MAX_TOPIC_LENGTH, check_topic_name, is_internal

GOOD = DrillRow(
    mirror_topic_name="orders", scratch_topic_name="orders.x", rto_ms=5, records_compared=9, differences=0, writable=True
)


@pytest.mark.parametrize("topic", ["orders", "o" * MAX_TOPIC_LENGTH])
def test_a_scratch_name_is_legal_and_chosen_by_no_filter(topic: str) -> None:
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
def test_one_bad_copy_fails_the_drill(bad: DrillRow) -> None:
    assert verdict([GOOD])
    assert not verdict([GOOD, bad])


def test_a_drill_of_nothing_has_not_passed() -> None:
    assert not verdict([])


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
def test_what_was_not_compared_proves_nothing_and_an_empty_source_says_so(
    held: dict[int, int], compared: dict[int, int], problem: str, note: str
) -> None:
    told = proven_by(held, compared, start="latest")
    assert (problem in told[0], note in told[1]) == (True, True)
    assert (bool(told[0]), bool(told[1])) == (bool(problem), bool(note))
