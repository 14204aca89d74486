"""What is still to be done for mirrors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.models import ClusterLink, MirrorTopic
from console.reconciling.chores import chores_of, is_over
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror

S = MirrorState


def tasks(*mirrors: MirrorTopic) -> list[str]:
    return [task for task, _ in chores_of(mirrors=mirrors, now=NOW)]


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
    ],
)
def test_a_mirror_gets_the_task_it_needs(state: S, changes: dict[str, Any], task: list[str], make_mirror: MakeMirror) -> None:
    assert tasks(make_mirror("orders", state, **changes)) == task


def test_a_link_goes_when_its_last_mirror_is_stopped(make_mirror: MakeMirror, link: ClusterLink) -> None:
    mirrors = [make_mirror("a", S.STOPPED), make_mirror("b", S.PENDING_STOPPED)]
    assert not is_over(link=link, mirrors=[])
    link.deletion_requested_at = NOW

    assert not is_over(link=link, mirrors=mirrors)
    assert is_over(link=link, mirrors=mirrors[:1])
