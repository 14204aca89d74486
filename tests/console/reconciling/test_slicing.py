"""The registry of slices and the orders."""

from __future__ import annotations

from datetime import timedelta

import pytest

from console.models import ClusterLink, CopySlice, MirrorPartition, MirrorTopic
from console.reconciling import plans, slicing
from console.reconciling.phases import Verdict
from linkengine.domain.plans import PartitionPhase, PartitionProgress, life_of
from linkengine.domain.states import LinkState, MirrorState
from tests.console.conftest import NOW, MakeMirror

S = MirrorState
WANTED = {S.ACTIVE, S.SOURCE_UNAVAILABLE, S.LINK_FAILED, S.PENDING_SYNCHRONIZE, S.PENDING_STOPPED}


def next_slices(link: ClusterLink, *keys: str, after_s: float = 0) -> list[CopySlice]:
    return slicing.next_slices(link=link, wanted=keys, rows={}, now=NOW + timedelta(seconds=after_s))


@pytest.mark.parametrize("state", list(S))
def test_copied_is_what_the_state_says(state: S, make_mirror: MakeMirror, link: ClusterLink) -> None:
    mirror = make_mirror("orders", state)

    assert slicing.is_wanted(mirror, link) == (state in WANTED)
    assert slicing.orders_for(link, [mirror]) == {plans.mirror_key(mirror): state in WANTED}


@pytest.mark.parametrize(
    "changes",
    [
        {"stop_reason": "failover"},
        {"drained_at": NOW},
        {"fencing_at": NOW},
        {"deletion_requested_at": NOW},
        {"num_partitions": 0},
    ],
)
def test_a_stopping_mirror_is_copied_only_while_its_promotion_drains(
    changes: dict[str, object], make_mirror: MakeMirror, link: ClusterLink
) -> None:
    assert slicing.is_wanted(make_mirror("a", S.PENDING_STOPPED), link)
    assert not slicing.is_wanted(make_mirror("b", S.PENDING_STOPPED, **changes), link)


def test_a_paused_link_copies_nothing(mirror: MirrorTopic, link: ClusterLink) -> None:
    link.state = LinkState.PAUSED
    assert not slicing.is_wanted(mirror, link)


def test_a_slice_is_registered_once_and_taken_once(link: ClusterLink) -> None:
    (row,) = next_slices(link, "a", "b")
    assert (row.keys, row.revision, row.ends_at - row.started_at) == (["a", "b"], link.revision, timedelta(minutes=1))
    assert next_slices(link, "a", "b", after_s=1) == []

    assert slicing.take(slice_id=row.slice_id, now=NOW) == row
    assert slicing.take(slice_id=row.slice_id, now=NOW) is None


def test_orders_are_for_the_topics_that_a_slice_planned_now_would_join(link: ClusterLink, mirror: MirrorTopic) -> None:
    (row,) = next_slices(link, *plans.partition_keys(mirror))

    for ids in ({"mirror_topic_id": "first"}, {"mirror_topic_id": "restored", "source_topic_id": "new"}):
        MirrorTopic.objects.filter(pk=mirror.pk).update(**ids)
        mirror.refresh_from_db()
        planned = plans.copy_plan(row, mirrors=[mirror], slice_ms=1).assignments
        assert {one.life for one in planned} == {slicing.lives_of([mirror])[plans.mirror_key(mirror)]}


def test_reports_of_topics_that_a_mirror_joins_no_more_are_left_out(make_mirror: MakeMirror, link: ClusterLink) -> None:
    mirror = make_mirror("orders", source_topic_id="there", mirror_topic_id="here")
    key = f"{plans.mirror_key(mirror)}/0"
    seen = [
        PartitionProgress(key=name, slice_id="s", phase=PartitionPhase.COPYING, observed_at_ms=1, life=life)
        for name in (key, "gone/0")
        for life in (life_of("there", "here"), life_of("there", "before"), "")
    ]

    assert slicing.of_these_lives([mirror], seen) == [seen[0], seen[2], seen[5]]


def test_a_partition_that_a_living_slice_has_let_go_of_gets_another_job(link: ClusterLink, mirror: MirrorTopic) -> None:
    first, second = keys = plans.partition_keys(mirror)
    (row,) = next_slices(link, *keys)
    slicing.take(slice_id=row.slice_id, now=NOW)
    told = {"mirror": mirror, "slice_id": row.slice_id, "observed_at": NOW}
    rows = {
        first: MirrorPartition(partition=0, phase=PartitionPhase.RELEASED, **told),
        second: MirrorPartition(partition=1, phase=PartitionPhase.COPYING, **told),
    }

    (fresh,) = slicing.next_slices(link=link, wanted=keys, rows=rows, now=NOW)

    row.refresh_from_db()
    assert (fresh.keys, row.keys) == ([first], [second])


def test_a_slice_that_no_worker_took_is_sent_again(link: ClusterLink) -> None:
    (row,) = next_slices(link, "a")

    assert next_slices(link, "a", after_s=3) == [row]
    assert next_slices(link, "a", after_s=-10)[0] == row  # a clock was set back
    assert slicing.take(slice_id=row.slice_id, now=NOW + timedelta(seconds=61)) is None


def test_slices_of_old_settings_answer_for_nothing(link: ClusterLink) -> None:
    next_slices(link, "a")
    link.revision += 1

    (fresh,) = next_slices(link, "a", after_s=1)

    assert fresh.revision == link.revision
    assert CopySlice.objects.exclude(finished_at=None).get().keys == []


def test_an_engine_that_is_away_is_shown_and_waited_for(link: ClusterLink) -> None:
    waits = []
    for number in range(8):
        (row,) = next_slices(link, "a")
        slicing.note_finished(row=row, error="No Spark.", now=NOW)
        link.refresh_from_db()
        assert link.engine_retry_at is not None
        waits.append((link.engine_retry_at - NOW).total_seconds())
        assert next_slices(link, "a") == []
        ClusterLink.objects.update(engine_retry_at=None)
        link.engine_retry_at = None
        assert link.engine_failures == number + 1

    assert link.engine_error == "Copy engine unavailable: No Spark."
    assert waits[0] < 2
    assert max(waits) <= 30 * 1.25
    (row,) = next_slices(link, "a")
    assert slicing.note_copying(link=link, heard=[heard(row.slice_id)], now=NOW)
    link.refresh_from_db()
    assert (link.engine_error, link.engine_failures) == ("", 0)


def heard(slice_id: str, *, phase: PartitionPhase = PartitionPhase.COPYING) -> tuple[Verdict, list[MirrorPartition]]:
    return Verdict(phase=phase), [MirrorPartition(slice_id=slice_id)]


def test_a_failure_of_the_engine_is_forgotten_once_all_that_is_to_be_copied_is_heard_of_by_living_jobs(
    link: ClusterLink,
) -> None:
    (dead,) = next_slices(link, "a")
    slicing.note_finished(row=dead, error="It failed.", now=NOW)
    link.refresh_from_db()
    later = NOW + timedelta(seconds=2)
    (row,) = next_slices(link, "a", "b", after_s=2)
    of_a, of_b = heard(row.slice_id), heard(row.slice_id, phase=PartitionPhase.SOURCE_UNREACHABLE)

    assert not slicing.note_copying(link=link, heard=[of_a, of_b], now=NOW)  # the pause before the next try is not over
    assert not slicing.note_copying(link=link, heard=[of_a, (None, [])], now=later)
    assert not slicing.note_copying(link=link, heard=[of_a, heard(dead.slice_id)], now=later)
    assert not slicing.note_copying(link=link, heard=[of_b], now=later)
    assert not slicing.note_copying(link=link, heard=[], now=later)
    assert slicing.note_copying(link=link, heard=[of_a, of_b], now=later)


@pytest.mark.parametrize(("ahead", "submitted"), [(timedelta(seconds=37), 0), (timedelta(hours=1), 1)])
def test_an_engine_is_not_waited_for_longer_because_a_clock_was_set_back(
    link: ClusterLink, ahead: timedelta, submitted: int
) -> None:
    link.engine_retry_at = NOW + ahead

    assert len(next_slices(link, "a")) == submitted


def test_a_spark_that_takes_a_job_and_does_not_begin_it_is_shown_and_waited_for(link: ClusterLink) -> None:
    (row,) = next_slices(link, "a")
    slicing.take(slice_id=row.slice_id, now=NOW)
    assert next_slices(link, "a", after_s=30) == []
    link.refresh_from_db()
    assert link.engine_error == ""

    assert next_slices(link, "a", after_s=31) == []
    link.refresh_from_db()
    assert "Spark may hang" in link.engine_error
    assert next_slices(link, "a", after_s=33) != []


def test_a_job_that_no_thread_takes_is_shown(link: ClusterLink) -> None:
    next_slices(link, "a")

    next_slices(link, "a", after_s=31)

    link.refresh_from_db()
    assert "CLUSTERLINK_WORKER_THREADS" in link.engine_error


def test_the_job_of_a_worker_that_died_is_followed_at_once_and_is_no_failure_of_spark(link: ClusterLink) -> None:
    (row,) = next_slices(link, "a")
    slicing.take(slice_id=row.slice_id, now=NOW)
    after = NOW + timedelta(seconds=5)
    assert slicing.starting(link=link, now=NOW) == []
    assert slicing.starting(link=link, now=after) == [row.slice_id]

    (fresh,) = slicing.next_slices(link=link, wanted=["a"], rows={}, now=after, orphans=[row.slice_id])

    link.refresh_from_db()
    assert (fresh.keys, link.engine_error) == (["a"], "")
    assert slicing.starting(link=link, now=after + timedelta(minutes=2)) == []


def test_a_job_that_is_over_at_once_is_not_followed_at_once(link: ClusterLink) -> None:
    (row,) = next_slices(link, "a")
    slicing.note_finished(row=row, error="", now=NOW + timedelta(seconds=1))
    link.refresh_from_db()

    assert next_slices(link, "a", after_s=2) == []
    assert next_slices(link, "a", after_s=5) != []
    assert link.engine_error == ""


def test_old_rows_are_forgotten(link: ClusterLink) -> None:
    next_slices(link, "a")

    slicing.forget_old(now=NOW + timedelta(hours=2))

    assert not CopySlice.objects.exists()
