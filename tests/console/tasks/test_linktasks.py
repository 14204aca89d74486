"""The task that runs tasks: outcomes become rows, trouble stays within its row, nothing runs twice at once."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from console import store
from console.models import ClusterLink, LinkTask, MirrorTopic
from console.tasks import linktasks, reconcile
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TaskName, TaskOutcome
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW

CONFIGS = TaskName.TOPIC_CONFIGS
pytestmark = pytest.mark.kafka
Install = Callable[[Callable[[ClusterLink], TaskOutcome]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put another sync in the place of the real one."""

    def put(sync: Callable[[ClusterLink], TaskOutcome]) -> None:
        monkeypatch.setattr(linktasks, "SYNCS", MappingProxyType({CONFIGS: sync}))

    return put


@pytest.fixture
def mirrored(link: ClusterLink) -> MirrorTopic:
    """Something to work on."""
    dated = {"state_since": NOW, "created_at": NOW}
    return MirrorTopic.objects.create(link=link, name="a", source_topic="a", state=MirrorState.ACTIVE, **dated)


def run(link: ClusterLink) -> LinkTask | None:
    linktasks.run_link_task(link_id=link.pk, task=CONFIGS)
    return LinkTask.objects.first()


def test_a_run_leaves_its_outcome(link: ClusterLink, mirrored: MirrorTopic, install: Install) -> None:
    install(lambda _link: TaskOutcome(summary="Two set.", changes=2))

    row = run(link)

    assert row is not None
    assert (row.summary, row.changes, row.runs, row.errors) == ("Two set.", 2, 1, [])
    assert run(link).runs == 1  # type: ignore[union-attr]  # its time has not come


def test_what_the_engine_says_is_kept(link: ClusterLink, mirrored: MirrorTopic, install: Install) -> None:
    def refused(_link: ClusterLink) -> TaskOutcome:
        raise LinkEngineError(ErrorCode.AUTHORIZATION_ERROR, "Grant DESCRIBE.")

    install(refused)

    row = run(link)

    assert row is not None
    assert row.errors == [{"code": "AUTHORIZATION_ERROR", "message": "Grant DESCRIBE."}]


def test_a_bug_is_shown_without_its_inside(link: ClusterLink, mirrored: MirrorTopic, install: Install) -> None:
    def buggy(_link: ClusterLink) -> TaskOutcome:
        raise ZeroDivisionError("password=secret")

    install(buggy)

    row = run(link)

    assert row is not None
    assert row.errors[0]["code"] == "INTERNAL_ERROR"
    assert "secret" not in str(row.errors)


def test_a_second_worker_lets_the_first_one_work(link: ClusterLink, mirrored: MirrorTopic, install: Install) -> None:
    install(lambda _link: TaskOutcome())

    with store.hold(f"linktask:{link.pk}:{CONFIGS}"):
        assert run(link) is None
    assert run(link) is not None


def test_the_heart_beat_sends_the_tasks_that_are_due(
    link: ClusterLink, mirrored: MirrorTopic, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    reconcile.reconcile_link(link_id=link.pk)

    assert [one for one in sent if one[0] == "run_link_task"] == [("run_link_task", {"link_id": link.pk, "task": CONFIGS})]
