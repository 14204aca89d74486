"""Offsets of groups are not changed if the group is in use or was moved, or if the topic was recreated."""

import time
from collections.abc import Collection
from typing import Any

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import GroupStatus, OffsetOutcome
from linkengine.kafka import admin_groups
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.admin_groups import Offsets
from linkengine.kafka.cluster import Cluster
from tests.exactlyonce import open_transaction
from tests.linkengine.sync.conftest import WAIT_S, Link, commit, fill, member, offsets_of

pytestmark = pytest.mark.kafka


def test_a_group_with_members_at_the_destination_is_not_touched_even_if_the_source_rewinds(
    link: Link, group: str, twin_topic: str, destination_cluster: KafkaCluster
) -> None:
    commit(link.there, group, twin_topic, {0: 50})
    link.run()

    with member(destination_cluster, group, twin_topic):
        commit(link.there, group, twin_topic, {0: 10})
        used = link.outcome(group)
    freed = link.outcome(group)

    assert used.status is GroupStatus.IN_USE
    assert used.partitions[0].outcome is OffsetOutcome.IN_USE
    assert "active members" in used.message
    assert freed.partitions[0].outcome is OffsetOutcome.REWOUND
    assert offsets_of(link.here, group, twin_topic) == {0: 10}


def test_the_coordinator_refuses_a_commit_if_a_member_joined_since_the_read(
    link: Link, group: str, twin_topic: str, destination_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(link.there, group, twin_topic, {0: 50})
    monkeypatch.setattr(link.here, "groups", lambda: ({}, ""))

    with member(destination_cluster, group, twin_topic):
        outcome = link.outcome(group)

    assert outcome.status is GroupStatus.IN_USE
    assert offsets_of(link.here, group, twin_topic) == {}


def test_a_partition_that_is_ahead_does_not_delay_the_others(link: Link, group: str, twin_topic: str) -> None:
    commit(link.here, group, twin_topic, {0: 55})
    commit(link.there, group, twin_topic, {0: 20, 1: 20})

    outcome = link.outcome(group)

    assert outcome.status is GroupStatus.PARTLY_SYNCED
    assert [partition.outcome for partition in outcome.partitions] == [OffsetOutcome.AHEAD, OffsetOutcome.ADVANCED]
    assert "never moved backwards" in outcome.message
    assert offsets_of(link.here, group, twin_topic) == {0: 55, 1: 20}


def test_a_group_moved_back_at_the_destination_stays_until_the_source_commits_again(
    link: Link, group: str, twin_topic: str
) -> None:
    commit(link.there, group, twin_topic, {0: 50})
    link.run()
    commit(link.here, group, twin_topic, {0: 5})

    held = link.outcome(group)
    commit(link.there, group, twin_topic, {0: 51})
    link.run()

    assert held.partitions[0].outcome is OffsetOutcome.CHANGED_HERE
    assert offsets_of(link.here, group, twin_topic) == {0: 51}


def test_offsets_of_a_mirror_stopped_before_the_first_commit_are_not_changed(link: Link, group: str, twin_topic: str) -> None:
    commit(link.there, group, twin_topic, {0: 40, 1: 5})
    commit(link.here, group, twin_topic, {1: 5})
    link.following = lambda topics: set(topics) - {twin_topic}

    outcome = link.outcome(group)

    assert (outcome.status, outcome.partitions) == (GroupStatus.NO_MIRROR_TOPIC, ())
    assert offsets_of(link.here, group, twin_topic) == {1: 5}


def test_a_mirror_stopped_between_two_commits_gets_no_further_commits(link: Link, group: str, twin_topic: str) -> None:
    names = [f"{group}-{number}" for number in range(3)]
    for name in names:
        commit(link.there, name, twin_topic, {0: 40})

    def following(topics: Collection[str]) -> Collection[str]:
        return () if any(offsets_of(link.here, name, twin_topic) for name in names) else topics

    link.following = following
    groups = [outcome for outcome in link.run().groups if outcome.name in names]

    committed = {name: offsets_of(link.here, name, twin_topic) for name in names}
    reported = {outcome.name: {place.partition: place.target for place in outcome.partitions} for outcome in groups}
    assert reported == committed
    assert sorted(committed.values(), key=len) == [{}, {}, {0: 40}]


@pytest.mark.parametrize("before", [{0: 40}, {}], ids=["committed before", "its first commit"])
def test_a_strict_run_fails_while_a_transaction_has_a_pending_offset(
    link: Link, group: str, twin_topic: str, source_cluster: KafkaCluster, before: dict[int, int]
) -> None:
    commit(link.there, group, twin_topic, {1: 7, **before})

    with open_transaction(source_cluster, group, twin_topic, {0: 50}) as commit_transaction:
        strict, plain = link.outcome(group, strict=True, batch=None), link.outcome(group)
        seen = offsets_of(link.here, group, twin_topic)
        commit_transaction()  # returns once that is decided; the group's marker may be late
    deadline = time.monotonic() + WAIT_S
    while (after := link.outcome(group, strict=True, batch=None)).status is GroupStatus.FAILED:
        assert time.monotonic() < deadline

    assert (strict.status, strict.partitions) == (GroupStatus.FAILED, ())
    assert "A transaction that commits offsets of the group has not ended" in strict.message
    assert (plain.status, seen) == (GroupStatus.SYNCED, {1: 7, **before})  # the committed offsets of the source's group
    assert after.status is GroupStatus.SYNCED
    assert offsets_of(link.here, group, twin_topic) == {0: 50, 1: 7}


@pytest.mark.parametrize("side", ["there", "here"])
def test_offsets_of_a_recreated_topic_are_not_synced(link: Link, group: str, twin_topic: str, side: str) -> None:
    commit(link.there, group, twin_topic, {0: 40})
    link.run()
    replaced: ClusterAdmin = getattr(link, side)
    replaced.delete_topic(twin_topic)
    replaced.create_topic(twin_topic, partitions=2)
    before = {0: 40} if side == "there" else {0: 30}
    commit(link.here, group, twin_topic, before)
    commit(link.there, group, twin_topic, {0: 3})

    outcome = link.outcome(group)
    with pytest.raises(LinkEngineError) as raised:
        link.run(strict=True, batch=None)

    assert (outcome.status, outcome.partitions) == (GroupStatus.NO_MIRROR_TOPIC, ())
    assert raised.value.code == {"there": ErrorCode.SOURCE_TOPIC_ID_CHANGED, "here": ErrorCode.MIRROR_TOPIC_MISSING}[side]
    assert offsets_of(link.here, group, twin_topic) == before


def test_commits_before_a_coordinator_stopped_responding_are_reported(
    link: Link, group: str, twin_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, commit_request, requested = [f"{group}-{number}" for number in range(3)], admin_groups._commit_request, []
    for name in names:
        commit(link.there, name, twin_topic, {1: 95})

    def stop_responding(cluster: Cluster, broker: int, name: str, offsets: Offsets) -> object:
        requested.append(name)
        if len(requested) > 1:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The broker did not respond.")
        return commit_request(cluster, broker, name, offsets)

    monkeypatch.setattr(admin_groups, "_commit_request", stop_responding)
    first = {outcome.name: outcome.partitions[0].outcome for outcome in link.run().groups if outcome.name in names}

    assert list(first.values()) == [OffsetOutcome.ADVANCED, OffsetOutcome.FAILED, OffsetOutcome.FAILED]
    assert requested == names[:2]  # each further request would wait for the timeout


def test_a_commit_whose_response_was_lost_does_not_count_as_a_users_commit(
    link: Link, group: str, twin_topic: str, destination_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(link.there, group, twin_topic, {1: 95})
    link.run()
    commit_request = admin_groups._commit_request

    def lose_the_response(*arguments: Any) -> None:
        commit_request(*arguments)
        raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The broker did not respond.")

    fill(destination_cluster, twin_topic, partition=1, count=20)
    monkeypatch.setattr(admin_groups, "_commit_request", lose_the_response)
    lost = link.outcome(group)
    monkeypatch.undo()
    fill(destination_cluster, twin_topic, partition=1, count=20)
    link.run()

    assert lost.status is GroupStatus.FAILED
    assert offsets_of(link.here, group, twin_topic) == {1: 95}
