"""What is still to be done for mirrors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.models import ClusterLink, LinkConfig, MirrorTopic
from console.reconciling.chores import SYNCS_PER_ROUND, chores_of, is_over
from linkengine.domain.states import LinkState, MirrorState
from tests.console.conftest import NOW, MakeMirror

S = MirrorState


def tasks(link: ClusterLink, *mirrors: MirrorTopic) -> list[str]:
    return [task for task, _ in chores_of(link=link, mirrors=mirrors, now=NOW)]


@pytest.mark.parametrize(
    ("state", "changes", "task"),
    [
        (S.PENDING_SETUP, {}, ["setup_mirror"]),
        (S.PENDING_STOPPED, {}, ["advance_stop"]),
        (S.STOPPED, {}, []),
        (S.STOPPED, {"deletion_requested_at": NOW}, ["delete_mirror"]),
        (S.PENDING_SETUP, {"deletion_requested_at": NOW}, ["delete_mirror"]),
        (S.ACTIVE, {}, ["sync_mirror"]),
        (S.ACTIVE, {"synced_at": NOW - timedelta(seconds=4)}, []),
        (S.PAUSED, {}, []),
        (S.PENDING_SETUP, {"retry_at": NOW + timedelta(seconds=1)}, []),
        (S.PENDING_SETUP, {"retry_at": NOW}, ["setup_mirror"]),
    ],
)
def test_a_mirror_gets_the_task_it_needs(
    state: S, changes: dict[str, Any], task: list[str], make_mirror: MakeMirror, link: ClusterLink
) -> None:
    assert tasks(link, make_mirror("orders", state, **changes)) == task


def test_the_link_says_how_often_configs_follow(make_mirror: MakeMirror, link: ClusterLink) -> None:
    mirror = make_mirror(synced_at=NOW - timedelta(seconds=6))
    assert tasks(link, mirror) == ["sync_mirror"]

    LinkConfig.objects.create(link=link, name="topic.config.sync.ms", value="10000")

    assert tasks(link, mirror) == []


def test_a_paused_link_does_not_follow(mirror: MirrorTopic, link: ClusterLink) -> None:
    link.state = LinkState.PAUSED
    assert tasks(link, mirror) == []


def test_a_round_has_a_bound_and_begins_with_the_longest_waiting(make_mirror: MakeMirror, link: ClusterLink) -> None:
    mirrors = [make_mirror(f"m{n}", partitions=0, synced_at=NOW - timedelta(hours=n)) for n in range(1, 31)]

    due = [pk for _, pk in chores_of(link=link, mirrors=mirrors, now=NOW)]

    assert len(due) == SYNCS_PER_ROUND
    assert due[0] == mirrors[-1].pk


def test_a_link_goes_when_its_last_mirror_is_stopped(make_mirror: MakeMirror, link: ClusterLink) -> None:
    mirrors = [make_mirror("a", S.STOPPED), make_mirror("b", S.PENDING_STOPPED)]
    assert not is_over(link=link, mirrors=[])
    link.deletion_requested_at = NOW

    assert not is_over(link=link, mirrors=mirrors)
    assert is_over(link=link, mirrors=mirrors[:1])
