from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.groups import (
    Committed,
    Group,
    GroupStatus,
    OffsetFacts,
    OffsetOutcome,
    Remembered,
    agreed,
    decide,
    next_batch,
    quoted_name,
    settle,
    status_of,
    why_skipped,
)
from linkengine.domain.names import FilterType, NameFilter, PatternType

EVERYTHING = (NameFilter(name="*"),)


def facts(
    source: int,
    here: int | None = None,
    *,
    remembered: tuple[int, int] | None = None,
    start: int = 0,
    end: int = 100,
) -> OffsetFacts:
    return OffsetFacts(
        source=Committed(offset=source),
        mirror_start=start,
        mirror_end=end,
        destination=None if here is None else Committed(offset=here),
        remembered=None if remembered is None else Remembered(source=remembered[0], destination=remembered[1]),
    )


@pytest.mark.parametrize(
    ("case", "outcome", "target"),
    [
        (facts(40), OffsetOutcome.ADVANCED, 40),
        (facts(40, 30), OffsetOutcome.ADVANCED, 40),
        (facts(40, 40), OffsetOutcome.EQUAL, 40),
        (facts(140, 30), OffsetOutcome.ADVANCED, 100),  # not beyond the mirror's end
        (facts(140, 100), OffsetOutcome.EQUAL, 100),
        (facts(5, 3, start=20), OffsetOutcome.ADVANCED, 20),  # not before its start
        (facts(40, 60), OffsetOutcome.AHEAD, 40),  # seen for the first time: never rewound
    ],
)
def test_the_target_is_the_sources_offset_limited_to_the_mirror(case: OffsetFacts, outcome: OffsetOutcome, target: int) -> None:
    decision = decide(case)

    assert (decision.outcome, decision.target) == (outcome, target)
    assert decision.write == (outcome is OffsetOutcome.ADVANCED)


def test_a_reset_of_the_sources_group_rewinds_the_destination() -> None:
    assert decide(facts(10, 60, remembered=(60, 60))).outcome is OffsetOutcome.REWOUND
    assert decide(facts(10, 60, remembered=(60, 60))).write


def test_a_reset_does_not_rewind_a_destination_group_that_has_committed_since() -> None:
    assert decide(facts(10, 70, remembered=(60, 60))).outcome is OffsetOutcome.AHEAD


def test_a_group_rewound_at_the_destination_stays_until_the_source_commits_again() -> None:
    held = facts(60, 5, remembered=(60, 60))

    assert decide(held).outcome is OffsetOutcome.CHANGED_HERE
    assert not decide(held).write
    assert decide(replace(held, source=Committed(offset=61))).outcome is OffsetOutcome.ADVANCED


def test_an_offset_that_was_clamped_follows_the_mirror_as_it_grows() -> None:
    assert decide(facts(140, 100, remembered=(140, 100), end=120)).target == 120
    assert decide(facts(140, 100, remembered=(140, 100), end=120)).outcome is OffsetOutcome.ADVANCED


def test_an_offset_above_the_remembered_one_counts_as_an_unacknowledged_commit() -> None:
    assert decide(facts(140, 80, remembered=(140, 60), end=100)).outcome is OffsetOutcome.ADVANCED
    assert decide(facts(140, 50, remembered=(140, 60), end=100)).outcome is OffsetOutcome.CHANGED_HERE


def test_an_offset_beyond_a_shortened_mirror_is_rewound() -> None:
    assert decide(facts(90, 90, remembered=(90, 90), end=80)).outcome is OffsetOutcome.REWOUND


def test_an_offset_that_expired_at_the_destination_is_committed_again() -> None:
    assert decide(facts(40, None, remembered=(40, 40))).outcome is OffsetOutcome.ADVANCED


def test_an_equal_offset_is_committed_again_only_for_metadata_or_age() -> None:
    equal = facts(40, 40, remembered=(40, 40))

    assert not decide(equal).write
    assert decide(replace(equal, source=Committed(offset=40, metadata="new"))).write
    assert decide(replace(equal, remembered=Remembered(source=40, destination=40, stale=True))).write


def test_a_stop_rewinds_every_offset_beyond_the_mirrors_end() -> None:
    assert settle(facts(90, 120, end=100)).target == 100
    assert settle(facts(90, 120, end=100)).write
    assert settle(facts(140, 80, remembered=(140, 80), end=100)).target == 100  # was clamped while the mirror was shorter
    assert not settle(facts(60, 5, remembered=(60, 60))).write  # rewound on purpose: stays


@given(
    source=st.integers(0, 200),
    here=st.none() | st.integers(0, 200),
    remembered=st.none() | st.tuples(st.integers(0, 200), st.integers(0, 200)),
    start=st.integers(0, 50),
    length=st.integers(0, 100),
)
def test_committed_offsets_are_within_the_mirror_and_rewound_only_for_a_reason(
    source: int, here: int | None, remembered: tuple[int, int] | None, start: int, length: int
) -> None:
    case = facts(source, here, remembered=remembered, start=start, end=start + length)

    decision = decide(case)

    assert start <= decision.target <= start + length
    if decision.write and here is not None and decision.target < here:
        assert remembered is not None
        assert here == remembered[1]
        assert source < remembered[0] or here > start + length


def test_skipped_groups_have_a_status_and_a_reason() -> None:
    only_orders = (NameFilter(name="orders-", pattern_type=PatternType.PREFIXED),)
    never = (*EVERYTHING, NameFilter(name="audit", filter_type=FilterType.EXCLUDE))

    assert why_skipped(Group(name="orders-1", kind="classic"), filters=only_orders) is None
    assert why_skipped(Group(name="audit"), filters=never) == (GroupStatus.EXCLUDED, _text("audit", never))
    assert _status("billing", only_orders) is GroupStatus.EXCLUDED
    assert _status("anything", ()) is GroupStatus.EXCLUDED
    share = why_skipped(Group(name="jobs", kind="share"), filters=EVERYTHING)
    assert share is not None
    assert share[0] is GroupStatus.UNSUPPORTED_TYPE
    assert "share" in share[1]


def test_group_names_in_messages_are_escaped_and_shortened() -> None:
    assert quoted_name("a\0b\n") == r"'a\x00b\n'"
    assert quoted_name("") == "''"
    assert len(quoted_name("x" * 5000)) < 150


def test_the_empty_group_name_is_in_the_first_batch_only() -> None:
    names = ["b", "", "a"]

    assert next_batch(names, after="", size=2) == (["", "a"], "a")
    assert next_batch(names, after="a", size=2) == (["b"], "")


def test_a_group_is_active_if_the_broker_reports_a_state_with_members() -> None:
    assert [Group(name="g", state=state).is_active for state in ("Empty", "Dead", "", "Stable")] == [False, False, False, True]


def test_batches_cycle_through_all_names() -> None:
    names = ["c", "a", "b"]

    assert next_batch(names, after="", size=2) == (["a", "b"], "b")
    assert next_batch(names, after="b", size=2) == (["c"], "")
    assert next_batch(names, after="z", size=5) == (["a", "b", "c"], "")
    assert next_batch([], after="z", size=5) == ([], "")


def test_the_status_of_a_group_follows_from_its_partitions() -> None:
    assert status_of([OffsetOutcome.EQUAL, OffsetOutcome.REWOUND], in_use=False) is GroupStatus.SYNCED
    assert status_of([OffsetOutcome.EQUAL, OffsetOutcome.AHEAD], in_use=False) is GroupStatus.PARTLY_SYNCED
    assert status_of([OffsetOutcome.FAILED], in_use=False) is GroupStatus.FAILED
    assert status_of([OffsetOutcome.EQUAL, OffsetOutcome.FAILED], in_use=False) is GroupStatus.FAILED
    assert status_of([OffsetOutcome.AHEAD, OffsetOutcome.FAILED], in_use=False) is GroupStatus.FAILED
    assert status_of([OffsetOutcome.EQUAL], in_use=True) is GroupStatus.IN_USE


def _status(name: str, filters: tuple[NameFilter, ...]) -> GroupStatus | None:
    found = why_skipped(Group(name=name), filters=filters)
    return found[0] if found else None


def _text(name: str, filters: tuple[NameFilter, ...]) -> str:
    found = why_skipped(Group(name=name), filters=filters)
    return found[1] if found else ""


DAMAGED = 1 << 20


@pytest.mark.parametrize(
    ("first", "second", "target"),
    [
        (facts(50, 40), facts(50, 40), 50),
        (facts(50, 40), facts(52, 40), 50),  # has committed in between
        (facts(50 + DAMAGED, 40, end=DAMAGED * 2), facts(50, 40, end=DAMAGED * 2), 50),
        (facts(50, 40, start=90), facts(50, 40), 50),  # a start that is too high would skip records
        (facts(50, 40), facts(50, 40, start=90), 50),
        (facts(50, 40, end=DAMAGED), facts(50, 40), 50),
        (facts(5, 40, remembered=(50, 40)), facts(50, 40, remembered=(50, 40)), None),  # no reset: a damaged offset
        (facts(50, 40, remembered=(50, 40)), facts(5, 40, remembered=(50, 40)), None),
        (facts(5, 40, remembered=(50, 40)), facts(5, 40, remembered=(50, 40)), 5),
        (facts(5, 40, remembered=(50, 40)), facts(6, 40, remembered=(50, 40)), 6),
    ],
)
def test_two_readings_agree_on_the_more_careful_target(first: OffsetFacts, second: OffsetFacts, target: int | None) -> None:
    found = agreed((first, decide(first)), (second, decide(second)))

    assert (None if found is None else found[1].target) == target
    assert found is None or (found[1].write and found[0].source.offset < DAMAGED)


def test_group_that_the_second_reading_finds_ahead_stays() -> None:
    damaged, actual = facts(50, 3), facts(50, 90)

    found = agreed((damaged, decide(damaged)), (actual, decide(actual)))

    assert found is not None
    assert (found[1].outcome, found[1].write) == (OffsetOutcome.AHEAD, False)
