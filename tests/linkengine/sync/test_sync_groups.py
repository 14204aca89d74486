import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.filters import FilterType, NameFilter, PatternType
from linkengine.domain.groupplans import GroupOutcome, GroupReport, GroupSync, MirroredTopic
from linkengine.domain.groups import SETTLED, GroupStatus, Memory, OffsetOutcome, Remembered
from linkengine.kafka import admin_groups
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.admin_groups import Offsets
from linkengine.kafka.cluster import Cluster
from linkengine.sync.groups import Following, sync_groups
from tests.exactlyonce import open_transaction
from tests.linkengine.sync.conftest import WAIT_S, commit, commit_as, fill, member, offsets_of

pytestmark = pytest.mark.kafka


class Link:
    """Runs of one link, which remembers as the console does."""

    def __init__(self, there: ClusterAdmin, here: ClusterAdmin, sync: GroupSync) -> None:
        self.there, self.here, self.sync = there, here, sync
        self.memory: dict[str, dict[tuple[str, int], Remembered]] = {}
        self.following: Following = lambda topics: topics

    def run(self, **changes: object) -> GroupReport:
        sync = replace(self.sync, **changes)  # type: ignore[arg-type]
        report = sync_groups(self.there, self.here, sync, recall=self._recall, following=self.following)
        for group in report.groups:
            for one in group.partitions:
                if one.outcome in SETTLED:
                    memory = self.memory.setdefault(group.name, {})
                    memory[one.mirror_topic, one.partition] = Remembered(source=one.source, destination=one.target)
        return report

    def outcome(self, group: str, **changes: object) -> GroupOutcome:
        return next(one for one in self.run(**changes).groups if one.name == group)

    def _recall(self, names: Sequence[str]) -> Mapping[str, Memory]:
        return {name: self.memory[name] for name in names if name in self.memory}


@pytest.fixture
def link(there: ClusterAdmin, here: ClusterAdmin, twin_topic: str) -> Link:
    """A link that carries over all groups whose name begins with the topic's."""
    filters = (NameFilter(name=twin_topic, pattern_type=PatternType.PREFIXED),)
    ids = {"source_topic_id": there.describe(twin_topic).topic_id, "mirror_topic_id": here.describe(twin_topic).topic_id}
    topics = (MirroredTopic(source_topic=twin_topic, mirror_topic=twin_topic, partitions=2, **ids),)
    return Link(there, here, GroupSync(filters=filters, topics=topics))


@pytest.fixture
def group(twin_topic: str) -> str:
    return f"{twin_topic}-app"


def test_offsets_follow_the_source_as_far_as_the_mirror_reaches(link: Link, group: str, twin_topic: str) -> None:
    commit(link.there, group, twin_topic, {0: 40, 1: 95}, metadata="kept")

    first = link.outcome(group)
    fill_rest = offsets_of(link.here, group, twin_topic)
    again = link.outcome(group)

    assert first.status is GroupStatus.SYNCED
    assert fill_rest == {0: 40, 1: 60}
    assert [one.written for one in again.partitions] == [False, False]
    found, _ = link.here.committed([group])
    assert {one.metadata for one in found[group].values()} == {"kept"}


def test_leader_epochs_of_the_source_stay_there(
    link: Link, group: str, twin_topic: str, source_cluster: KafkaCluster, destination_cluster: KafkaCluster
) -> None:
    """The other cluster counts its leaders by itself: who believed the source's epochs would look for a truncation."""
    settings = {"group.id": group, "enable.auto.commit": False}
    places = [TopicPartition(twin_topic, number, 40, leader_epoch=0) for number in (0, 1)]
    commit(link.there, group, twin_topic, {0: 1})  # its coordinator is there
    with closing(Consumer({**source_cluster.client("link"), **settings})) as consumer:
        consumer.commit(offsets=places, asynchronous=False)
        before = consumer.committed(places, timeout=20)
    link.run()
    with closing(Consumer({**destination_cluster.client("link"), **settings})) as consumer:
        after = consumer.committed(places, timeout=20)

    assert [(one.offset, one.leader_epoch) for one in before] == [(40, 0), (40, 0)]
    assert [(one.offset, one.leader_epoch) for one in after] == [(40, None), (40, None)]


def test_an_offset_held_back_by_the_mirror_follows_as_it_grows(
    link: Link, group: str, twin_topic: str, destination_cluster: KafkaCluster
) -> None:
    commit(link.there, group, twin_topic, {1: 95})
    link.run()

    fill(destination_cluster, twin_topic, partition=1, count=40)
    link.run()

    assert offsets_of(link.here, group, twin_topic) == {1: 95}


def test_an_offset_before_the_mirrors_start_is_raised_to_it(link: Link, group: str, twin_topic: str) -> None:
    link.here.trim(twin_topic, {0: 30})
    commit(link.there, group, twin_topic, {0: 7})

    link.run()

    assert offsets_of(link.here, group, twin_topic) == {0: 30}


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


def test_groups_are_skipped_with_the_reason(link: Link, group: str, twin_topic: str, there: ClusterAdmin) -> None:
    there.create_topic(f"{twin_topic}.other", partitions=1)
    commit(there, group, f"{twin_topic}.other", {0: 0})
    commit(there, f"{group}-secret", twin_topic, {0: 1})
    filters = (*link.sync.filters, NameFilter(name=f"{group}-secret", filter_type=FilterType.EXCLUDE))

    found = {one.name: one for one in link.run(filters=filters).groups}

    assert found[group].status is GroupStatus.NO_MIRROR_TOPIC
    assert found[f"{group}-secret"].status is GroupStatus.EXCLUDED
    assert offsets_of(link.here, f"{group}-secret", twin_topic) == {}


def test_prefixed_topics_and_groups_are_mapped(link: Link, group: str, twin_topic: str, there: ClusterAdmin) -> None:
    there.create_topic(f"{twin_topic}-plain", partitions=1)
    commit(there, group, f"{twin_topic}-plain", {0: 0})
    link.here.create_topic(f"us_{twin_topic}-plain", partitions=1)
    topic = MirroredTopic(source_topic=f"{twin_topic}-plain", mirror_topic=f"us_{twin_topic}-plain", partitions=1)

    link.run(topics=(topic,), group_prefix="us_")

    assert offsets_of(link.here, f"us_{group}", f"us_{twin_topic}-plain") == {0: 0}


def test_batches_go_round_and_the_rest_is_told_to_wait(link: Link, group: str, twin_topic: str) -> None:
    for number in range(3):
        commit(link.there, f"{group}-{number}", twin_topic, {0: number})

    first = link.run(batch=2)
    second = link.run(batch=2, after=first.next_after)

    assert [one.name for one in first.groups if one.status is GroupStatus.WAITING] == [f"{group}-2"]
    assert offsets_of(link.here, f"{group}-2", twin_topic) == {0: 2}
    assert second.next_after == ""


def test_a_group_that_cannot_be_read_stops_no_other(
    link: Link, group: str, twin_topic: str, there: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that Kafka refuses stands in for a group whose coordinator is away."""
    commit(there, group, twin_topic, {0: 9})
    listed, _ = there.groups()
    bad = replace(listed[group], name="")
    monkeypatch.setattr(there, "groups", lambda: ({"": bad, group: listed[group]}, ""))

    found = {one.name: one for one in link.run(filters=(NameFilter(name="*"),)).groups}

    assert found[group].status is GroupStatus.SYNCED
    assert found[""].status is not GroupStatus.SYNCED


def test_offsets_never_pass_the_mirror_and_arrive_while_the_source_commits_all_the_time(
    link: Link, group: str, twin_topic: str, source_cluster: KafkaCluster
) -> None:
    stop, names = Event(), [f"{group}-{number}" for number in range(3)]

    def consume(name: str) -> None:
        with member(source_cluster, name, twin_topic) as consumer:
            for offset in range(1, 61):
                commit_as(consumer, twin_topic, {0: offset, 1: offset // 2})
                if stop.wait(0.01):
                    return

    threads = [Thread(target=consume, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    seen = []
    while any(thread.is_alive() for thread in threads):
        link.run()
        seen.append([offsets_of(link.here, name, twin_topic).get(0, 0) for name in names])
    stop.set()
    link.run()

    assert all(later >= earlier for row, following in pairwise(seen) for earlier, later in zip(row, following, strict=True))
    assert [offsets_of(link.here, name, twin_topic) for name in names] == [{0: 60, 1: 30}] * 3


@pytest.mark.parametrize("ending", ["x" * 255, "\0x"])
def test_a_name_that_cannot_be_kept_is_told_and_stops_no_other(
    link: Link, group: str, twin_topic: str, there: ClusterAdmin, ending: str
) -> None:
    commit(there, group + ending, twin_topic, {0: 9})
    commit(there, group, twin_topic, {0: 9})

    report = link.run()

    assert "more than 255 characters" in report.incomplete
    assert offsets_of(link.here, group, twin_topic) == {0: 9}


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
    names, commit_one, asked = [f"{group}-{number}" for number in range(3)], admin_groups._commit_one, []
    for name in names:
        commit(link.there, name, twin_topic, {1: 95})

    def fall_silent(cluster: Cluster, broker: int, name: str, offsets: Offsets) -> object:
        asked.append(name)
        if len(asked) > 1:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The broker did not answer.")
        return commit_one(cluster, broker, name, offsets)

    monkeypatch.setattr(admin_groups, "_commit_one", fall_silent)
    first = {one.name: one.partitions[0].outcome for one in link.run().groups if one.name in names}

    assert list(first.values()) == [OffsetOutcome.ADVANCED, OffsetOutcome.FAILED, OffsetOutcome.FAILED]
    assert asked == names[:2]  # each would be waited for


def test_a_commit_whose_answer_was_lost_is_not_taken_for_somebodys(
    link: Link, group: str, twin_topic: str, destination_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(link.there, group, twin_topic, {1: 95})
    link.run()
    commit_one = admin_groups._commit_one

    def lose_the_answer(*arguments: Any) -> None:
        commit_one(*arguments)
        raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The broker did not answer.")

    fill(destination_cluster, twin_topic, partition=1, count=20)
    monkeypatch.setattr(admin_groups, "_commit_one", lose_the_answer)
    lost = link.outcome(group)
    monkeypatch.undo()
    fill(destination_cluster, twin_topic, partition=1, count=20)
    link.run()

    assert lost.status is GroupStatus.FAILED
    assert offsets_of(link.here, group, twin_topic) == {1: 95}
