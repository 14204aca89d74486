"""The tasks that are due for mirrors and links."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.models import ClusterLink, MirrorTopic
from console.reconciling.due_tasks import AT_A_TIME, FEW_FAILURES, can_be_removed, due_mirror_tasks
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror

S = MirrorState


def tasks(*mirrors: MirrorTopic) -> list[str]:
    return [task for task, _ in due_mirror_tasks(mirrors=mirrors, now=NOW)]


@pytest.mark.parametrize(
    ("state", "changes", "task"),
    [
        (S.PENDING_SETUP, {}, ["setup_mirror"]),
        (S.PENDING_STOPPED, {}, ["advance_stop"]),
        (S.STOPPED, {}, []),
        (S.STOPPED, {"deletion_requested_at": NOW}, ["delete_mirror"]),
        (S.PENDING_SETUP, {"deletion_requested_at": NOW}, ["delete_mirror"]),
        (S.ACTIVE, {}, []),
        (S.PAUSED, {}, []),
        (S.PENDING_SETUP, {"retry_at": NOW + timedelta(seconds=1)}, []),
        (S.PENDING_SETUP, {"retry_at": NOW}, ["setup_mirror"]),
        (S.PENDING_STOPPED, {"retry_at": NOW + timedelta(minutes=5), "stop_reason": "promote"}, []),
        (S.PENDING_STOPPED, {"retry_at": NOW + timedelta(seconds=375), "stop_reason": "failover"}, []),
    ],
)
def test_mirror_gets_the_task_of_its_state(state: S, changes: dict[str, Any], task: list[str], make_mirror: MakeMirror) -> None:
    assert tasks(make_mirror("orders", state, **changes)) == task


@pytest.mark.parametrize(
    ("state", "changes", "sent"),
    [
        (S.PENDING_SETUP, {}, AT_A_TIME),
        (S.STOPPED, {"deletion_requested_at": NOW}, AT_A_TIME),
        (S.PENDING_STOPPED, {}, AT_A_TIME + 2),  # stops are not limited
        (S.PENDING_STOPPED, {"stop_reason": "failover", "retry_count": FEW_FAILURES}, AT_A_TIME + 2),
        (S.PENDING_STOPPED, {"stop_reason": "failover", "retry_count": FEW_FAILURES + 1}, AT_A_TIME),  # an outage
        (S.PENDING_STOPPED, {"retry_count": FEW_FAILURES + 1}, AT_A_TIME + 2),  # checks of a promotion
    ],
)
def test_tasks_without_urgency_are_limited_per_link(
    state: S, changes: dict[str, Any], sent: int, make_mirror: MakeMirror
) -> None:
    several = [make_mirror(f"orders-{number:02}", state, **changes) for number in range(AT_A_TIME + 2)]
    assert len(tasks(*several)) == sent

    several[0].retry_at = NOW + timedelta(seconds=1)  # failed: the next mirror gets its turn
    due = [key for _, key in due_mirror_tasks(mirrors=several, now=NOW)]
    assert due == [mirror.pk for mirror in several[1:]][:sent]


def test_link_can_be_deleted_once_its_last_mirror_is_stopped(make_mirror: MakeMirror, link: ClusterLink) -> None:
    mirrors = [make_mirror("a", S.STOPPED), make_mirror("b", S.PENDING_STOPPED)]
    assert not can_be_removed(link=link, mirrors=[])
    link.deletion_requested_at = NOW

    assert not can_be_removed(link=link, mirrors=mirrors)
    assert can_be_removed(link=link, mirrors=mirrors[:1])
