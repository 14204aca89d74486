"""When which copy job is submitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.plans import CopyTuning
from linkengine.domain.slices import GATHER_MS, SILENT_MS, START_MS, NewSlice, RunningSlice, SliceDecision, decide_slices

NOW = 1_000_000
TUNING = CopyTuning(slice_ms=60_000, overlap_ms=8_000)


def running(keys: str, *, left_ms: int, age_ms: int = 40_000, revision: int = 1, name: str = "s") -> RunningSlice:
    return RunningSlice(
        slice_id=name, revision=revision, started_at_ms=NOW - age_ms, ends_at_ms=NOW + left_ms, keys=frozenset(keys)
    )


def decide(wanted: str, *slices: RunningSlice, silent: str = "", **changes: Any) -> SliceDecision:
    seen = {key: NOW - (SILENT_MS + 1 if key in silent else 100) for one in slices for key in one.keys}
    values = {"wanted": set(wanted), "running": slices, "last_seen_ms": seen, "revision": 1, "now_ms": NOW, "tuning": TUNING}
    return decide_slices(**{**values, **changes})


def test_a_task_last_seen_ahead_of_now_is_not_alive_for_that() -> None:
    decision = decide("a", running("a", left_ms=30_000), last_seen_ms={"a": NOW + 3_600_000})

    assert decision.submit == (NewSlice(keys=("a",), ends_at_ms=NOW + 60_000),)


def test_a_clock_that_was_set_back_gives_a_slice_neither_more_time_to_start_nor_a_later_end() -> None:
    hour_ms = 3_600_000
    before = running("a", left_ms=hour_ms + 30_000, age_ms=-hour_ms)
    decision = decide("a", before)
    assert decision.submit == (NewSlice(keys=("a",), ends_at_ms=NOW + 60_000),)
    assert decision.answering == {"s": frozenset("a")}  # it reports, so it copies until its successor does

    assert not decide("a", before, running("a", left_ms=60_000, age_ms=0, name="t")).submit
    assert decide("a", before, silent="a").answering == {"s": frozenset()}


def test_nothing_wanted_nothing_submitted() -> None:
    assert decide("") == SliceDecision()


def test_the_first_mirror_gets_a_whole_slice_at_once() -> None:
    assert decide("ab").submit == (NewSlice(keys=("a", "b"), ends_at_ms=NOW + 60_000),)


def test_while_a_slice_has_time_nothing_is_submitted() -> None:
    decision = decide("ab", running("ab", left_ms=20_000))

    assert not decision.submit
    assert decision.answering == {"s": frozenset("ab")}


def test_shortly_before_the_end_a_successor_is_submitted_once() -> None:
    ending = running("ab", left_ms=7_000)
    decision = decide("ab", ending)
    assert decision.submit == (NewSlice(keys=("a", "b"), ends_at_ms=NOW + 60_000),)

    successor = running("ab", left_ms=60_000, age_ms=0, name="t")
    assert not decide("ab", ending, successor).submit


def test_a_new_mirror_gets_a_job_of_its_own_that_ends_with_the_common_plan() -> None:
    decision = decide("abc", running("ab", left_ms=30_000))

    assert decision.submit == (NewSlice(keys=("c",), ends_at_ms=NOW + 30_000),)


def test_a_new_mirror_does_not_join_a_plan_that_is_nearly_over() -> None:
    decision = decide("abc", running("ab", left_ms=12_000))

    assert decision.submit == (NewSlice(keys=("c",), ends_at_ms=NOW + 60_000),)


def test_beside_several_jobs_newcomers_are_gathered() -> None:
    def beside_three(age_ms: int) -> SliceDecision:
        jobs = [running(key, left_ms=40_000, age_ms=age_ms + 5_000 * n, name=key) for n, key in enumerate("abc")]
        return decide("abcde", *jobs)

    assert not beside_three(2 * GATHER_MS).submit
    assert [one.keys for one in beside_three(2 * GATHER_MS + 1).submit] == [("d", "e")]


def test_what_a_job_has_lost_is_not_gathered() -> None:
    jobs = [running(key, left_ms=40_000, age_ms=1_000, name=key) for key in "bc"]

    decision = decide("abcd", *jobs, running("a", left_ms=40_000, name="a"), silent="a")

    assert [one.keys for one in decision.submit] == [("a", "d")]


def test_a_thousand_new_mirrors_get_few_jobs_and_none_waits_for_long() -> None:
    slices: list[RunningSlice] = []
    waits: dict[str, int] = {}
    for second in range(250):  # four are ready each second
        now_ms, wanted = NOW + second * 1000, [str(number) for number in range(4 * second + 4)]
        decision = decide_slices(
            wanted=wanted,
            running=slices,
            last_seen_ms=dict.fromkeys(wanted, now_ms),
            revision=1,
            now_ms=now_ms,
            tuning=TUNING,
        )
        begun = [replace(running("", left_ms=0), keys=frozenset(one.keys), slice_id=str(second),
                         started_at_ms=now_ms, ends_at_ms=one.ends_at_ms) for one in decision.submit]  # fmt: skip
        waits = {key: second - int(key) // 4 for one in begun for key in one.keys} | waits
        slices = [*_kept(slices, decision), *begun]
        assert len(slices) <= 7

    assert len(waits) > 900
    assert max(waits.values()) <= 20


def test_plans_grow_together_at_the_next_slice() -> None:
    decision = decide("abc", running("ab", left_ms=7_000), running("c", left_ms=12_000, name="t"))

    assert decision.submit == (NewSlice(keys=("a", "b", "c"), ends_at_ms=NOW + 60_000),)


def test_a_partition_that_went_silent_is_submitted_anew() -> None:
    decision = decide("ab", running("ab", left_ms=30_000), silent="b")

    assert decision.submit == (NewSlice(keys=("b",), ends_at_ms=NOW + 30_000),)
    assert decision.answering == {"s": frozenset("a")}


@pytest.mark.parametrize("age_ms", [40_000, START_MS // 2])
def test_a_partition_that_its_slice_has_let_go_of_is_submitted_anew(age_ms: int) -> None:
    decision = decide("ab", running("ab", left_ms=30_000, age_ms=age_ms), released={"a": "s"})

    assert decision.submit == (NewSlice(keys=("a",), ends_at_ms=NOW + 30_000),)
    assert decision.answering == {"s": frozenset("b")}
    alone = decide("a", running("a", left_ms=30_000, age_ms=age_ms), released={"a": "s"})
    assert [one.keys for one in alone.submit] == [("a",)]
    assert not alone.silent


def test_what_an_earlier_slice_has_let_go_of_belongs_to_its_successor() -> None:
    assert not decide("ab", running("ab", left_ms=30_000, age_ms=1_000), released={"a": "before"}).submit


def test_what_was_let_go_of_has_no_more_haste_than_a_newcomer() -> None:
    jobs = [running(key, left_ms=40_000, age_ms=age_ms, name=key) for key, age_ms in (("a", 20_000), ("b", 1_000))]

    assert not decide("abc", *jobs, running("c", left_ms=40_000, age_ms=3_000, name="c"), released={"c": "c"}).submit


def test_a_slice_may_take_its_time_to_start() -> None:
    assert not decide("a", running("a", left_ms=50_000, age_ms=START_MS), silent="a").submit
    assert decide("a", running("a", left_ms=20_000, age_ms=START_MS + 1), silent="a").submit


def test_an_old_revision_answers_for_nothing() -> None:
    decision = decide("a", running("a", left_ms=30_000), revision=2)

    assert decision.submit == (NewSlice(keys=("a",), ends_at_ms=NOW + 60_000),)
    assert decision.answering == {"s": frozenset()}


def test_what_is_not_wanted_any_more_is_let_go() -> None:
    decision = decide("a", running("ab", left_ms=30_000))

    assert not decision.submit
    assert decision.answering == {"s": frozenset("a")}


@given(
    wanted=st.sets(st.sampled_from("abcdef")),
    slices=st.lists(
        st.builds(
            running,
            st.text("abcdef", max_size=6),
            left_ms=st.integers(-10_000, 60_000),
            age_ms=st.integers(0, 60_000),
            revision=st.integers(1, 2),
            name=st.uuids().map(str),
        ),
        max_size=4,
    ),
    silent=st.text("abcdef", max_size=6),
)
def test_afterwards_every_wanted_partition_is_covered_or_gathered_and_none_twice(
    wanted: set[str], slices: list[RunningSlice], silent: str
) -> None:
    decision = decide("".join(wanted), *slices, silent=silent)

    submitted = [key for one in decision.submit for key in one.keys]
    answered = {key for keys in decision.answering.values() for key in keys}
    gathered = wanted - answered - set(submitted)
    assert set(submitted) | answered <= wanted
    assert not gathered or (not submitted and len(_kept(slices, decision)) > 1)
    assert all(one.keys.isdisjoint(gathered) for one in slices)
    assert len(submitted) == len(set(submitted))
    assert all(one.ends_at_ms > NOW for one in decision.submit)
    following = [
        running("".join(one.keys), left_ms=one.ends_at_ms - NOW, age_ms=0, name=f"new-{n}")
        for n, one in enumerate(decision.submit)
    ]
    assert not decide("".join(wanted), *_kept(slices, decision), *following, silent=silent).submit


def _kept(slices: list[RunningSlice], decision: SliceDecision) -> list[RunningSlice]:
    return [one for one in slices if decision.answering[one.slice_id]]


def test_a_slice_whose_worker_is_gone_gets_no_time_to_start() -> None:
    lost = replace(running("ab", left_ms=50_000, age_ms=6_000), orphaned=True)

    decision = decide("ab", lost, silent="ab")
    assert [one.keys for one in decision.submit] == [("a", "b")]
    assert decision.answering == {"s": frozenset()}
    assert not decision.silent


def test_a_slice_that_reached_spark_outlives_its_worker() -> None:
    assert not decide("ab", replace(running("ab", left_ms=50_000, age_ms=6_000), orphaned=True)).submit


def test_a_slice_is_called_silent_only_where_nothing_at_all_was_heard_of_it() -> None:
    one = running("ab", left_ms=20_000)

    assert decide("ab", one, silent="ab").silent == {"s"}
    assert not decide("ab", one, silent="b").silent
    assert not decide("ab", one, silent="ab", revision=2).silent
    assert not decide("", one, silent="ab").silent
    assert not decide("ab", running("ab", left_ms=0), silent="ab").silent
