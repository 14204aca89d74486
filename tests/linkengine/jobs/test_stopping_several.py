"""Stops of several mirrors in a list: those that can be stopped quickly are, and the others do not delay them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from linkengine import jobs
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import ClampedOffset, KnownOffset
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorStop, MirrorStopped
from linkengine.domain.states import StopReason
from linkengine.jobs import stopping
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.sync import offset_clamping
from linkengine.sync.topics import restore_configs
from tests.linkengine.jobs.stops import assignments_of, failover_of, stop_mirror

pytestmark = pytest.mark.kafka
Send = Callable[..., None]
Change = Callable[[MirrorStop], MirrorStop]
Ends = tuple[tuple[int, int], ...]
ENDS = ((0, 5), (1, 0))


@pytest.fixture
def stops(setup_plan: MirrorSetup, there: ClusterAdmin, topic_name: str, send_here: Send) -> list[MirrorStop]:
    """Failovers of three mirrors with five records in partition 0 of each."""
    return [_make_stop(setup_plan, there, f"{topic_name}-{number}", number, send_here) for number in (1, 2, 3)]


def _make_stop(setup_plan: MirrorSetup, there: ClusterAdmin, topic: str, number: int, send_here: Send) -> MirrorStop:
    there.create_topic(topic, partitions=2, configs={"retention.ms": "99000"})
    setup = replace(setup_plan, mirror_id=f"{number}", source_topic=topic, mirror_topic=topic)
    created = jobs.set_up_mirror_topic(setup, assignments_factory=assignments_of(setup))
    send_here(topic, count=5)
    return failover_of(setup, created)


def _topics(stops: Collection[MirrorStop]) -> list[str]:
    return [stop.mirror_topic for stop in stops]


def _check_stopped(results: Mapping[str, object], stops: Collection[MirrorStop], here: ClusterAdmin, send_here: Send) -> None:
    for stop in stops:
        configs = here.describe(stop.mirror_topic).configs
        assert results[stop.mirror_topic] == MirrorStopped(ends=ENDS, epochs=((0, 0), (1, 0)))
        assert configs["retention.ms"] == "99000"
        assert not has_mirror_configs(configs)
        send_here(stop.mirror_topic, user="app")


def test_mirrors_are_fenced_recorded_opened_and_get_their_configs_back_together(
    stops: list[MirrorStop], here: ClusterAdmin, send_here: Send
) -> None:
    steps: list[tuple[str, set[str]]] = []

    results = jobs.stop_mirrors(
        stops,
        on_fenced=lambda found: steps.append(("fenced", {topic for topic in found if here.denies_writes(topic)})),
        on_open=lambda topics: steps.append(("open", {topic for topic in topics if not here.denies_writes(topic)})),
    )

    assert steps == [("fenced", set(_topics(stops))), ("open", set(_topics(stops)))]
    assert set(results) == set(_topics(stops))
    _check_stopped(results, stops, here, send_here)


def without_topic_id(stop: MirrorStop) -> MirrorStop:
    return replace(stop, mirror_topic_id="")


def by_transactions(stop: MirrorStop) -> MirrorStop:
    """The principal may have been allowed to send markers since; such a marker would have another producer id."""
    filled = [replace(assignment, transactional_id=f"clusterlink-{assignment.key}") for assignment in stop.assignments]
    return replace(stop, assignments=tuple(filled))


LONG: Mapping[str, Change] = {
    "set-up was interrupted": without_topic_id,
    "head is being seeded": lambda stop: replace(stop, seeding=True),
    "gaps are filled by transactions": by_transactions,
    "promotion": lambda stop: replace(stop, reason=StopReason.PROMOTE),
    "unknown source configs": lambda stop: replace(stop, source_configs={}),
    "another topic": lambda stop: replace(stop, mirror_topic_id="AAAAAAAAAAAAAAAAAAAAAA"),
}


@pytest.mark.parametrize("why", LONG)
def test_mirror_whose_stop_may_take_long_is_left_as_it_is(
    stops: list[MirrorStop], here: ClusterAdmin, send_here: Send, why: str
) -> None:
    first, *others = stops

    results = jobs.stop_mirrors([LONG[why](first), *others])

    assert set(results) == set(_topics(others))
    _check_stopped(results, others, here, send_here)
    assert here.denies_writes(first.mirror_topic)
    assert here.offsets(first.mirror_topic, OffsetKind.END) == dict(ENDS)


def test_mirror_that_was_stopped_before_is_left_as_it_is(stops: list[MirrorStop], here: ClusterAdmin, send_here: Send) -> None:
    """Its log ends with a fence, and applications may use it since."""
    first, *others = stops
    stop_mirror(first)
    here.set_configs(first.mirror_topic, {"retention.ms": "123000"})

    results = jobs.stop_mirrors(stops)

    assert set(results) == set(_topics(others))
    _check_stopped(results, others, here, send_here)
    assert here.describe(first.mirror_topic).configs["retention.ms"] == "123000"
    assert here.offsets(first.mirror_topic, OffsetKind.END) == {0: 6, 1: 1}


def test_deleted_topic_does_not_delay_the_other_mirrors(stops: list[MirrorStop], here: ClusterAdmin, send_here: Send) -> None:
    first, *others = stops
    here.delete_topic(first.mirror_topic)

    began = time.monotonic()
    results = jobs.stop_mirrors(stops)
    took_s = time.monotonic() - began

    assert set(results) == set(_topics(others))
    assert took_s < 2.0  # the second query of the topic takes longer
    _check_stopped(results, others, here, send_here)
    (alone,) = jobs.stop_mirrors([first]).values()
    assert isinstance(alone, LinkEngineError)
    assert alone.code is ErrorCode.MIRROR_TOPIC_MISSING


def test_mirror_that_is_not_fenced_in_time_keeps_its_fences_and_delays_no_other(
    stops: list[MirrorStop], here: ClusterAdmin, send_here: Send
) -> None:
    """Partition 2 of the first mirror does not exist yet."""
    first, *others = stops
    partial = replace(first, assignments=(*first.assignments, replace(first.assignments[0], partition=2)))
    recorded: dict[str, MirrorStopped] = {}
    opened_after_s: list[float] = []
    began = time.monotonic()

    results = jobs.stop_mirrors(
        [partial, *others],
        on_fenced=recorded.update,
        on_open=lambda _: opened_after_s.append(time.monotonic() - began),
    )

    assert set(results) == set(_topics(others))
    assert len(opened_after_s) == 1
    assert opened_after_s[0] < 2.0 < time.monotonic() - began
    _check_stopped(results, others, here, send_here)
    assert recorded[first.mirror_topic] == MirrorStopped(ends=ENDS, epochs=((0, 0), (1, 0)))
    assert here.denies_writes(first.mirror_topic)
    here.add_partitions(first.mirror_topic, total=3)
    again = stop_mirror(replace(partial, fenced_ends=recorded[first.mirror_topic].ends))
    assert again.ends == (*ENDS, (2, 0))


@pytest.mark.parametrize(
    ("copied", "released_ends", "together"),
    [(((0, 3), (1, 0)), (), False), ((), ((0, 3), (1, 0)), True)],
    ids=["the log has to be searched", "a copy worker released the lease with its end"],
)
def test_mirror_with_foreign_writes_is_stopped_with_others_if_its_log_need_not_be_read(
    stops: list[MirrorStop], here: ClusterAdmin, copied: Ends, released_ends: Ends, *, together: bool
) -> None:
    first, *others = stops
    foreign = replace(first, copied=copied, released_ends=released_ends)

    results = jobs.stop_mirrors([foreign, *others])

    assert set(results) == set(_topics(stops if together else others))
    assert here.denies_writes(first.mirror_topic) is not together
    result = results[first.mirror_topic] if together else stop_mirror(foreign)
    assert isinstance(result, MirrorStopped)
    assert (result.ends, result.foreign) == (ENDS, ((0, 3),))


def test_recorded_fences_are_kept(stops: list[MirrorStop], here: ClusterAdmin, send_here: Send) -> None:
    """An earlier attempt has fenced the first mirror and recorded that; a super user has written since."""
    first, *others = stops
    recorded: dict[str, MirrorStopped] = {}
    jobs.stop_mirrors([first], on_fenced=recorded.update, still_owned=lambda topics: () if recorded else topics)
    send_here(first.mirror_topic, count=2)

    results = jobs.stop_mirrors([replace(first, fenced_ends=recorded[first.mirror_topic].ends, copied=ENDS), *others])

    assert results[first.mirror_topic] == MirrorStopped(ends=ENDS)
    assert here.offsets(first.mirror_topic, OffsetKind.END) == {0: 8, 1: 1}
    _check_stopped(results, others, here, send_here)


@pytest.mark.parametrize("step", ["fence", "record", "open"])
def test_mirror_that_another_worker_has_taken_over_is_not_touched_any_more(
    stops: list[MirrorStop], here: ClusterAdmin, send_here: Send, step: str
) -> None:
    first, *others = stops
    recorded: dict[str, MirrorStopped] = {}

    def is_fenced() -> bool:
        return here.offsets(others[-1].mirror_topic, OffsetKind.END)[1] == 1

    due: dict[str, Callable[[], bool]] = {"fence": lambda: True, "record": is_fenced, "open": lambda: bool(recorded)}
    is_due = due[step]

    def still_owned(topics: Collection[str]) -> list[str]:
        return [topic for topic in topics if topic != first.mirror_topic or not is_due()]

    results = jobs.stop_mirrors(stops, on_fenced=recorded.update, still_owned=still_owned)

    assert set(results) == set(_topics(others))
    _check_stopped(results, others, here, send_here)
    assert (first.mirror_topic in recorded) == (step == "open")
    assert here.denies_writes(first.mirror_topic)
    assert has_mirror_configs(here.describe(first.mirror_topic).configs)
    assert here.offsets(first.mirror_topic, OffsetKind.END)[1] == (0 if step == "fence" else 1)


def test_refused_removal_of_an_acl_does_not_fail_the_other_mirrors(
    stops: list[MirrorStop], here: ClusterAdmin, send_here: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = stops
    refusal, allow = LinkEngineError(ErrorCode.AUTHORIZATION_ERROR, "No."), ClusterAdmin.allow_many_writes

    def refuse_first(self: ClusterAdmin, topics: list[str]) -> dict[str, LinkEngineError]:
        return allow(self, [topic for topic in topics if topic != first.mirror_topic]) | {first.mirror_topic: refusal}

    monkeypatch.setattr(ClusterAdmin, "allow_many_writes", refuse_first)

    results = jobs.stop_mirrors(stops)

    assert set(results) == set(_topics(others))
    _check_stopped(results, others, here, send_here)
    assert here.denies_writes(first.mirror_topic)
    assert jobs.stop_mirrors([first]) == {first.mirror_topic: refusal}


def test_error_of_the_cluster_is_returned_for_a_single_mirror_only(
    stops: list[MirrorStop], here: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The cluster does not respond.")

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(stopping, "fence_partitions", fail)

    assert jobs.stop_mirrors(stops) == {}
    assert jobs.stop_mirrors(stops[:1]) == {stops[0].mirror_topic: error}
    assert all(here.denies_writes(topic) for topic in _topics(stops))


def with_group(stop: MirrorStop) -> MirrorStop:
    """A group that the last sync did not leave where the source's was."""
    return replace(stop, group_offsets=(KnownOffset(group=f"{stop.mirror_topic}-app", partition=0, source=5),))


@pytest.mark.parametrize("fails", [False, True], ids=["", "the first removal of ACLs succeeded, the second fails"])
def test_no_mirror_waits_for_the_configs_of_others(
    stops: list[MirrorStop], here: ClusterAdmin, send_here: Send, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """Configs that are refused, or not shown, take up to half a minute."""
    first, *others = stops
    steps: list[tuple[str, set[str]]] = []
    allow = ClusterAdmin.allow_many_writes

    def note_configs(destination: ClusterAdmin, changes: Mapping[str, Any]) -> Any:
        steps.append(("configs", set(changes)))
        return restore_configs(destination, changes)

    def allow_or_fail(self: ClusterAdmin, topics: list[str]) -> dict[str, LinkEngineError]:
        if fails and first.mirror_topic in topics:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The cluster does not respond.")
        return allow(self, topics)

    monkeypatch.setattr(stopping, "restore_configs", note_configs)
    monkeypatch.setattr(ClusterAdmin, "allow_many_writes", allow_or_fail)

    results = jobs.stop_mirrors([with_group(first), *others], on_open=lambda topics: steps.append(("open", set(topics))))

    opened = others if fails else stops
    second = [] if fails else [("open", {first.mirror_topic})]
    assert steps == [("open", set(_topics(others))), *second, ("configs", set(_topics(opened)))]
    assert set(results) == set(_topics(opened))
    _check_stopped(results, others, here, send_here)
    assert here.denies_writes(first.mirror_topic) is fails


def test_partial_fences_of_all_mirrors_are_recorded_at_once(stops: list[MirrorStop]) -> None:
    partial = [replace(stop, assignments=(*stop.assignments, replace(stop.assignments[0], partition=2))) for stop in stops]
    recorded: list[Mapping[str, MirrorStopped]] = []

    assert jobs.stop_mirrors(partial, on_fenced=recorded.append) == {}

    assert [{topic: stopped.ends for topic, stopped in found.items()} for found in recorded] == [
        dict.fromkeys(_topics(stops), ENDS)
    ]


def test_mirrors_do_not_wait_for_a_slow_coordinator_one_after_another(
    stops: list[MirrorStop], here: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (with_group(stop) for stop in stops)
    recorded: dict[str, MirrorStopped] = {}
    moved: list[str] = []

    def move_slowly(_: ClusterAdmin, topic: str, **__: Any) -> list[ClampedOffset]:
        moved.append(topic)
        time.sleep(0.02)
        return []

    monkeypatch.setattr(offset_clamping, "clamp_groups", move_slowly)
    monkeypatch.setattr(stopping, "SLOW_S", 0.01)

    results = jobs.stop_mirrors([first, second, third], on_fenced=recorded.update)

    assert set(results) == {first.mirror_topic}
    assert set(recorded) == set(_topics(stops))
    assert [here.denies_writes(topic) for topic in _topics(stops)] == [False, True, True]
    for stop in (second, third):
        stop_mirror(replace(stop, fenced_ends=recorded[stop.mirror_topic].ends, restoring_configs=True))
    assert moved == _topics(stops)
    assert not any(here.denies_writes(topic) for topic in _topics(stops))


def test_groups_of_a_mirror_that_another_worker_has_opened_meanwhile_are_not_moved(
    stops: list[MirrorStop], here: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process was suspended while it moved the groups of the first mirror."""
    first, second, third = (with_group(stop) for stop in stops)
    taken_over: set[str] = set()
    moved: list[str] = []

    def move(_: ClusterAdmin, topic: str, **__: Any) -> list[ClampedOffset]:
        moved.append(topic)
        taken_over.add(second.mirror_topic)
        return []

    monkeypatch.setattr(offset_clamping, "clamp_groups", move)

    results = jobs.stop_mirrors(
        [first, second, third], still_owned=lambda topics: [topic for topic in topics if topic not in taken_over]
    )

    assert moved == [first.mirror_topic, third.mirror_topic]
    assert set(results) == {first.mirror_topic, third.mirror_topic}
    assert here.denies_writes(second.mirror_topic)
