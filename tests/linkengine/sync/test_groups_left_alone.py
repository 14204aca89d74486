"""Offsets of consumer groups are left alone where somebody uses or moved them, and where they mean something else by now."""

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


def test_a_member_that_joins_between_look_and_commit_is_noticed_by_the_coordinator(
    link: Link, group: str, twin_topic: str, destination_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(link.there, group, twin_topic, {0: 50})
    monkeypatch.setattr(link.here, "groups", lambda: ({}, ""))

    with member(destination_cluster, group, twin_topic):
        outcome = link.outcome(group)

    assert outcome.status is GroupStatus.IN_USE
    assert offsets_of(link.here, group, twin_topic) == {}


def test_one_partition_ahead_or_moved_back_does_not_hold_up_the_others(link: Link, group: str, twin_topic: str) -> None:
    commit(link.here, group, twin_topic, {0: 55})
    commit(link.there, group, twin_topic, {0: 20, 1: 20})

    outcome = link.outcome(group)

    assert outcome.status is GroupStatus.PARTLY_SYNCED
    assert [one.outcome for one in outcome.partitions] == [OffsetOutcome.AHEAD, OffsetOutcome.ADVANCED]
    assert "never moved backwards" in outcome.message
    assert offsets_of(link.here, group, twin_topic) == {0: 55, 1: 20}


def test_a_group_moved_back_here_stays_until_the_source_commits_again(link: Link, group: str, twin_topic: str) -> None:
    commit(link.there, group, twin_topic, {0: 50})
    link.run()
    commit(link.here, group, twin_topic, {0: 5})

    held = link.outcome(group)
    commit(link.there, group, twin_topic, {0: 51})
    link.run()

    assert held.partitions[0].outcome is OffsetOutcome.CHANGED_HERE
    assert offsets_of(link.here, group, twin_topic) == {0: 51}


def test_a_mirror_that_is_stopped_before_the_first_commit_is_left_as_it_is(link: Link, group: str, twin_topic: str) -> None:
    commit(link.there, group, twin_topic, {0: 40, 1: 5})
    commit(link.here, group, twin_topic, {1: 5})
    link.following = lambda topics: set(topics) - {twin_topic}

    outcome = link.outcome(group)

    assert (outcome.status, outcome.partitions) == (GroupStatus.NO_MIRROR_TOPIC, ())
    assert offsets_of(link.here, group, twin_topic) == {1: 5}


def test_a_mirror_that_is_stopped_between_two_commits_gets_no_further_ones(link: Link, group: str, twin_topic: str) -> None:
    names = [f"{group}-{number}" for number in range(3)]
    for name in names:
        commit(link.there, name, twin_topic, {0: 40})

    def following(topics: Collection[str]) -> Collection[str]:
        return () if any(offsets_of(link.here, name, twin_topic) for name in names) else topics

    link.following = following
    groups = [one for one in link.run().groups if one.name in names]

    there_are = {name: offsets_of(link.here, name, twin_topic) for name in names}
    told = {one.name: {place.partition: place.target for place in one.partitions} for one in groups}
    assert told == there_are
    assert sorted(there_are.values(), key=len) == [{}, {}, {0: 40}]


@pytest.mark.parametrize("before", [{0: 40}, {}], ids=["committed before", "its first commit"])
def test_a_strict_run_does_not_know_an_offset_that_a_transaction_has_not_decided(
    link: Link, group: str, twin_topic: str, source_cluster: KafkaCluster, before: dict[int, int]
) -> None:
    commit(link.there, group, twin_topic, {1: 7, **before})

    with open_transaction(source_cluster, group, twin_topic, {0: 50}) as commit_transaction:
        strict, plain = link.outcome(group, strict=True, batch=None), link.outcome(group)
        seen = offsets_of(link.here, group, twin_topic)
        commit_transaction()  # is over as soon as that is decided; the group's marker may be late
    deadline = time.monotonic() + WAIT_S
    while (after := link.outcome(group, strict=True, batch=None)).status is GroupStatus.FAILED:
        assert time.monotonic() < deadline

    assert (strict.status, strict.partitions) == (GroupStatus.FAILED, ())
    assert "A transaction that commits offsets of the group has not ended" in strict.message
    assert (plain.status, seen) == (GroupStatus.SYNCED, {1: 7, **before})  # where the source's group is, by now
    assert after.status is GroupStatus.SYNCED
    assert offsets_of(link.here, group, twin_topic) == {0: 50, 1: 7}


@pytest.mark.parametrize("side", ["there", "here"])
def test_offsets_of_a_topic_that_was_deleted_and_made_anew_have_another_meaning(
    link: Link, group: str, twin_topic: str, side: str
) -> None:
    commit(link.there, group, twin_topic, {0: 40})
    link.run()
    replaced: ClusterAdmin = getattr(link, side)
    replaced.delete_topic(twin_topic)
    replaced.create_topic(twin_topic, partitions=2)
    before = {0: 40} if side == "there" else {0: 30}
    commit(link.here, group, twin_topic, before)
    commit(link.there, group, twin_topic, {0: 3})

    outcome = link.outcome(group)
    with pytest.raises(LinkEngineError) as told:
        link.run(strict=True, batch=None)

    assert (outcome.status, outcome.partitions) == (GroupStatus.NO_MIRROR_TOPIC, ())
    assert told.value.code == {"there": ErrorCode.SOURCE_TOPIC_ID_CHANGED, "here": ErrorCode.MIRROR_TOPIC_MISSING}[side]
    assert offsets_of(link.here, group, twin_topic) == before


def test_what_a_coordinator_took_before_it_fell_silent_is_told(
    link: Link, group: str, twin_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, commit_one, asked = [f"{group}-{number}" for number in range(3)], admin_groups._commit_request, []
    for name in names:
        commit(link.there, name, twin_topic, {1: 95})

    def fall_silent(cluster: Cluster, broker: int, name: str, offsets: Offsets) -> object:
        asked.append(name)
        if len(asked) > 1:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The broker did not answer.")
        return commit_one(cluster, broker, name, offsets)

    monkeypatch.setattr(admin_groups, "_commit_request", fall_silent)
    first = {one.name: one.partitions[0].outcome for one in link.run().groups if one.name in names}

    assert list(first.values()) == [OffsetOutcome.ADVANCED, OffsetOutcome.FAILED, OffsetOutcome.FAILED]
    assert asked == names[:2]  # each would be waited for


def test_a_commit_whose_answer_was_lost_is_not_taken_for_somebodys(
    link: Link, group: str, twin_topic: str, destination_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(link.there, group, twin_topic, {1: 95})
    link.run()
    commit_one = admin_groups._commit_request

    def lose_the_answer(*arguments: Any) -> None:
        commit_one(*arguments)
        raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The broker did not answer.")

    fill(destination_cluster, twin_topic, partition=1, count=20)
    monkeypatch.setattr(admin_groups, "_commit_request", lose_the_answer)
    lost = link.outcome(group)
    monkeypatch.undo()
    fill(destination_cluster, twin_topic, partition=1, count=20)
    link.run()

    assert lost.status is GroupStatus.FAILED
    assert offsets_of(link.here, group, twin_topic) == {1: 95}
