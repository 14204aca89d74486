"""Recurring tasks of links: when they are due, and the stored results of their runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.models import ClusterLink, LinkConfig, LinkTask
from console.reconciling.due_tasks import begin_task_run, due_tasks, finish_task_run
from linkengine.domain.linktasks import ERRORS_KEPT, TaskError, TaskName, TaskOutcome
from linkengine.domain.states import LinkState
from tests.console.conftest import NOW

CONFIGS, AUTO = TaskName.TOPIC_CONFIGS, TaskName.AUTO_CREATE
SECOND = timedelta(seconds=1)


def due(link: ClusterLink, *, mirrors: bool = True) -> list[TaskName]:
    return due_tasks(link=link, mirrors=mirrors, now=NOW)


def test_a_task_that_has_never_run_is_due_when_it_is_enabled(link: ClusterLink) -> None:
    assert due(link) == [CONFIGS]
    assert due(link, mirrors=False) == []

    LinkConfig.objects.create(link=link, name="auto.create.mirror.topics.enable", value="true")

    assert due(link, mirrors=False) == [AUTO]


@pytest.mark.parametrize(
    ("fields", "is_due"),
    [
        ({"next_run_at": NOW}, True),
        ({"next_run_at": NOW + SECOND}, False),
        ({"next_run_at": NOW + 30 * SECOND}, False),
        ({"next_run_at": None}, True),
        ({"next_run_at": NOW + SECOND, "requested_at": NOW}, True),
    ],
)
def test_a_task_waits_for_its_next_run_unless_a_run_is_requested(
    link: ClusterLink, fields: dict[str, Any], is_due: bool
) -> None:
    LinkConfig.objects.create(link=link, name="topic.config.sync.ms", value="30000")
    LinkTask.objects.create(link=link, name=CONFIGS, **fields)

    assert (CONFIGS in due(link)) is is_due


@pytest.mark.parametrize("state", [LinkState.PAUSED, LinkState.FAILED, LinkState.UNAVAILABLE])
def test_a_link_that_is_not_active_has_no_due_tasks(link: ClusterLink, state: LinkState) -> None:
    link.state = state
    assert due(link) == []


def test_the_source_side_of_a_link_has_no_due_tasks(link: ClusterLink) -> None:
    """Otherwise it would create mirrors in the wrong direction."""
    LinkConfig.objects.create(link=link, name="auto.create.mirror.topics.enable", value="true")
    link.mode = "SOURCE"

    assert due(link) == []


def test_a_link_that_is_being_deleted_has_no_due_tasks(link: ClusterLink) -> None:
    link.deletion_requested_at = NOW
    assert due(link) == []


def test_the_start_of_a_run_clears_the_request_and_schedules_the_next_run(link: ClusterLink) -> None:
    LinkConfig.objects.create(link=link, name="topic.config.sync.ms", value="9000")
    LinkTask.objects.create(link=link, name=CONFIGS, requested_at=NOW, next_run_at=NOW + SECOND)

    assert begin_task_run(link=link, name=CONFIGS, mirrors=True, now=NOW) is not None

    row = LinkTask.objects.get()
    assert (row.started_at, row.requested_at, row.next_run_at) == (NOW, None, NOW + 9 * SECOND)
    assert begin_task_run(link=ClusterLink.objects.get(), name=CONFIGS, mirrors=True, now=NOW) is None


def run(link: ClusterLink, outcome: TaskOutcome, *, at: Any = NOW) -> LinkTask:
    row, _ = LinkTask.objects.get_or_create(link=link, name=CONFIGS)
    finish_task_run(row=row, outcome=outcome, now=at)
    return LinkTask.objects.get(pk=row.pk)


def test_errors_of_a_run_are_kept_until_a_run_succeeds(link: ClusterLink) -> None:
    broken = TaskOutcome(errors=(TaskError(code="TIMEOUT_ERROR", message="no response"),) * (ERRORS_KEPT + 1), changes=2)

    row = run(link, broken)
    assert (row.error_count, len(row.errors), row.failing_since, row.succeeded_at) == (ERRORS_KEPT + 1, ERRORS_KEPT, NOW, None)
    row = run(link, broken, at=NOW + SECOND)
    assert (row.failing_since, row.failures, row.changes) == (NOW, 2, 4)
    row = run(link, TaskOutcome(summary="All is done."), at=NOW + 2 * SECOND)

    assert (row.errors, row.error_count, row.failing_since) == ([], 0, None)
    assert (row.runs, row.failures, row.succeeded_at, row.summary) == (3, 2, NOW + 2 * SECOND, "All is done.")


def test_a_run_updates_pages_only_if_its_result_changed(link: ClusterLink) -> None:
    run(link, TaskOutcome())
    first = ClusterLink.objects.get().sequence
    run(link, TaskOutcome())

    assert first == link.sequence + 1
    assert ClusterLink.objects.get().sequence == first


def test_a_run_that_stopped_at_its_limit_is_repeated_immediately(link: ClusterLink) -> None:
    LinkTask.objects.create(link=link, name=CONFIGS, next_run_at=NOW + timedelta(hours=1))

    row = run(link, TaskOutcome(more=True))

    assert row.next_run_at is not None
    assert row.next_run_at <= NOW + SECOND


@pytest.mark.parametrize(
    ("took_s", "outcome", "next_s"),
    [
        (0.1, TaskOutcome(), 5.0),
        (2.0, TaskOutcome(), 22.0),
        (20.0, TaskOutcome(), 50.0),
        (2.0, TaskOutcome(errors=(TaskError(code="TIMEOUT_ERROR", message="no response"),)), 5.0),
    ],
    ids=["short", "long", "longest pause", "failed"],
)
def test_long_run_is_followed_by_a_pause(link: ClusterLink, took_s: float, outcome: TaskOutcome, next_s: float) -> None:
    row = begin_task_run(link=link, name=CONFIGS, mirrors=True, now=NOW)
    assert row is not None

    finish_task_run(row=row, outcome=outcome, now=NOW + took_s * SECOND)

    assert LinkTask.objects.get().next_run_at == NOW + next_s * SECOND
    link = ClusterLink.objects.get()
    assert begin_task_run(link=link, name=CONFIGS, mirrors=True, now=NOW + (next_s - 0.1) * SECOND) is None
    assert begin_task_run(link=link, name=CONFIGS, mirrors=True, now=NOW + next_s * SECOND) is not None
