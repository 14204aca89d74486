"""Promotions check ever more rarely, and at once when their obstacle is gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling import due_tasks, transition_errors
from console.reconciling.plans import mirror_key
from console.workflows.mirrors import note_delay
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TaskName, TaskOutcome
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror

S = MirrorState
LATER = NOW + timedelta(minutes=3)


def rows_of(mirror: MirrorTopic) -> dict[str, MirrorPartition]:
    return {f"{mirror_key(mirror)}/{row.partition}": row for row in mirror.partitions.all()}


def waiting(make_mirror: MakeMirror, code: ErrorCode) -> MirrorTopic:
    mirror = make_mirror("orders", MirrorState.PENDING_STOPPED, retry_at=LATER, retry_count=9)
    transition_errors.note(mirror=mirror, code=code, message="not yet", now=NOW)
    return mirror


@pytest.mark.parametrize(("waiting", "longest_s"), [(1, 30), (90, 30), (400, 120), (1_000, 300), (3_000, 300)], ids="{}".format)
def test_pauses_double_from_a_tenth_of_a_second_to_a_limit_that_grows_with_the_mirrors_that_wait(
    make_mirror: MakeMirror, waiting: int, longest_s: float
) -> None:
    mirror = make_mirror("orders", S.PENDING_STOPPED, stop_reason="promote", retry_at=LATER)
    shared: dict[str, Any] = {
        "link": mirror.link,
        "source_topic": "a",
        "state": S.PENDING_STOPPED,
        "stop_reason": "promote",
        "retry_at": LATER,
    }
    dated = {"state_since": NOW, "created_at": NOW}
    MirrorTopic.objects.bulk_create(MirrorTopic(name=f"other-{n}", **shared, **dated) for n in range(waiting - 1))

    pauses = [due_tasks.promote_pause_s(mirror, checks) for checks in range(40)]

    assert 0.07 < pauses[0] < 0.13
    assert all(0.75 * 0.1 * 2**n <= pauses[n] <= 1.25 * 0.1 * 2**n for n in range(8))
    assert 0.75 * longest_s <= min(pauses[12:]) <= max(pauses) == longest_s


@pytest.mark.parametrize(
    ("state", "facts", "longest_s"),
    [
        (S.PENDING_STOPPED, {"stop_reason": "failover"}, 6.25),
        (S.PENDING_STOPPED, {"fencing_at": NOW}, 6.25),
        (S.PENDING_STOPPED, {"reversal": "reverse-and-start"}, 6.25),
        (S.PENDING_SYNCHRONIZE, {}, 6.25),
        (S.PENDING_MIRROR, {}, 6.25),
        (S.PENDING_STOPPED, {}, 37.5),
        (S.PENDING_SETUP, {}, 37.5),
    ],
)
def test_failed_step_is_retried_soon_while_producers_are_kept_out(
    make_mirror: MakeMirror, state: S, facts: dict[str, Any], longest_s: float
) -> None:
    mirror = make_mirror("orders", state, retry_count=40, **facts)

    note_delay(mirror, LinkEngineError(ErrorCode.TIMEOUT_ERROR, "unavailable"))

    mirror.refresh_from_db()
    assert mirror.retry_at is not None
    assert 0.59 * longest_s < (mirror.retry_at - timezone.now()).total_seconds() <= longest_s


def test_lag_zero_triggers_the_promotion_that_waits_for_it(make_mirror: MakeMirror) -> None:
    mirror = waiting(make_mirror, ErrorCode.WAITING_FOR_LAG)

    assert list(due_tasks.caught_up(mirrors=[mirror], rows=rows_of(mirror), now=NOW)) == [mirror]


@pytest.mark.parametrize("source_end", [11, None], ids=["behind", "unknown"])
def test_positive_or_unknown_lag_triggers_no_promotion(make_mirror: MakeMirror, source_end: int | None) -> None:
    mirror = waiting(make_mirror, ErrorCode.WAITING_FOR_LAG)
    mirror.partitions.filter(partition=1).update(source_end=source_end)

    assert not list(due_tasks.caught_up(mirrors=[mirror], rows=rows_of(mirror), now=NOW))


def test_lag_zero_does_not_trigger_a_promotion_that_waits_for_groups(make_mirror: MakeMirror) -> None:
    mirror = waiting(make_mirror, ErrorCode.WAITING_FOR_GROUPS)

    assert not list(due_tasks.caught_up(mirrors=[mirror], rows=rows_of(mirror), now=NOW))


@pytest.mark.parametrize(
    ("code", "task", "changes", "woken"),
    [
        (ErrorCode.WAITING_FOR_GROUPS, TaskName.CONSUMER_OFFSETS, 0, True),
        (ErrorCode.CONSUMER_GROUP_IN_USE_ERROR, TaskName.CONSUMER_OFFSETS, 2, True),
        (ErrorCode.WAITING_FOR_CONFIGS, TaskName.TOPIC_CONFIGS, 1, True),
        (ErrorCode.WAITING_FOR_CONFIGS, TaskName.TOPIC_CONFIGS, 0, False),
        (ErrorCode.WAITING_FOR_LAG, TaskName.CONSUMER_OFFSETS, 1, False),
        (ErrorCode.WAITING_FOR_GROUPS, TaskName.ACLS, 1, False),
    ],
)
def test_run_of_a_task_triggers_promotions_that_wait_for_it(
    make_mirror: MakeMirror, link: ClusterLink, code: ErrorCode, task: TaskName, changes: int, *, woken: bool
) -> None:
    mirror = waiting(make_mirror, code)

    assert due_tasks.wake_after(link=link, task=task, outcome=TaskOutcome(changes=changes)) is woken

    mirror.refresh_from_db()
    assert (mirror.retry_at is None) is woken


@pytest.mark.parametrize(
    "row", [{"stop_reason": "failover"}, {"stop_reason": "promote", "fencing_at": NOW}], ids=["failover", "marked promotion"]
)
def test_failover_ordered_since_and_marked_promotion_are_not_postponed(make_mirror: MakeMirror, row: dict[str, Any]) -> None:
    """The fence of a marked promotion has failed: neither copy workers nor producers may write to its topic until the retry."""
    mirror = make_mirror("orders", MirrorState.PENDING_STOPPED, **row)

    due_tasks.postpone_promote(mirror=mirror, checks=6, wait_s=6.4, now=NOW)

    mirror.refresh_from_db()
    assert mirror.retry_at is None
