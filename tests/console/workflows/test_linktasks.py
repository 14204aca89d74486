"""The Celery task of all recurring tasks: outcomes become rows, failures are isolated, nothing runs twice at once."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from console.models import ClusterLink, LinkTask, MirrorTopic
from console.redis import locks
from console.tasks.links import reconcile_link, run_link_task
from console.workflows import links
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TaskName, TaskOutcome
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW

CONFIGS = TaskName.TOPIC_CONFIGS
pytestmark = pytest.mark.kafka
Install = Callable[[Callable[[ClusterLink], TaskOutcome]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Replace the real sync."""

    def put(sync: Callable[[ClusterLink], TaskOutcome]) -> None:
        monkeypatch.setattr(links, "SYNCS", MappingProxyType({CONFIGS: sync}))

    return put


@pytest.fixture
def mirrored(link: ClusterLink) -> MirrorTopic:
    """A mirror for the task to work on."""
    dated = {"state_since": NOW, "created_at": NOW}
    return MirrorTopic.objects.create(link=link, name="a", source_topic="a", state=MirrorState.ACTIVE, **dated)


def run(link: ClusterLink) -> LinkTask | None:
    run_link_task(link_id=link.pk, task=CONFIGS)
    return LinkTask.objects.first()


def test_run_stores_its_outcome(link: ClusterLink, mirrored: MirrorTopic, install: Install) -> None:
    install(lambda _link: TaskOutcome(summary="Two set.", changes=2))

    row = run(link)

    assert row is not None
    assert (row.summary, row.changes, row.runs, row.errors) == ("Two set.", 2, 1, [])
    run(link)  # not due yet
    assert LinkTask.objects.get().runs == 1


def test_error_of_the_engine_is_stored(link: ClusterLink, mirrored: MirrorTopic, install: Install) -> None:
    def refused(_link: ClusterLink) -> TaskOutcome:
        raise LinkEngineError(ErrorCode.AUTHORIZATION_ERROR, "Grant DESCRIBE.")

    install(refused)

    row = run(link)

    assert row is not None
    assert row.errors == [{"code": "AUTHORIZATION_ERROR", "message": "Grant DESCRIBE."}]


def test_unexpected_exception_is_shown_without_its_message(link: ClusterLink, mirrored: MirrorTopic, install: Install) -> None:
    def buggy(_link: ClusterLink) -> TaskOutcome:
        raise ZeroDivisionError("password=secret")

    install(buggy)

    row = run(link)

    assert row is not None
    assert row.errors[0]["code"] == "INTERNAL_ERROR"
    assert "secret" not in str(row.errors)


def test_task_does_not_run_twice_at_once(link: ClusterLink, mirrored: MirrorTopic, install: Install) -> None:
    install(lambda _link: TaskOutcome())

    with locks.lock(f"linktask:{link.pk}:{CONFIGS}"):
        assert run(link) is None
    assert run(link) is not None


def test_reconcile_pass_sends_the_tasks_that_are_due(
    link: ClusterLink, mirrored: MirrorTopic, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    reconcile_link(link_id=link.pk)

    assert [task for task in sent if task[0] == "run_link_task"] == [("run_link_task", {"link_id": link.pk, "task": CONFIGS})]
