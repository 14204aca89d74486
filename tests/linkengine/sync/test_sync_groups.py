"""Consumer group offsets follow the source, up to the mirror's log end."""

from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, TopicPartition

from devcluster.kafka import KafkaCluster
from linkengine.domain.groups import GroupStatus, MirroredTopic
from linkengine.domain.names import FilterType, NameFilter
from linkengine.kafka.admin import ClusterAdmin
from tests.linkengine.sync.conftest import Link, commit, commit_as, fill, member, offsets_of

pytestmark = pytest.mark.kafka


def test_offsets_follow_the_source_up_to_the_mirrors_end(link: Link, group: str, twin_topic: str) -> None:
    commit(link.there, group, twin_topic, {0: 40, 1: 95}, metadata="kept")

    first = link.outcome(group)
    after_first = offsets_of(link.here, group, twin_topic)
    again = link.outcome(group)

    assert first.status is GroupStatus.SYNCED
    assert after_first == {0: 40, 1: 60}
    assert [partition.written for partition in again.partitions] == [False, False]
    found, _ = link.here.committed([group])
    assert {offset.metadata for offset in found[group].values()} == {"kept"}


def test_leader_epochs_of_the_source_are_not_committed(
    link: Link, group: str, twin_topic: str, source_cluster: KafkaCluster, destination_cluster: KafkaCluster
) -> None:
    """Leader epochs of the two clusters are unrelated: a consumer with the source's epoch would detect a truncation."""
    settings = {"group.id": group, "enable.auto.commit": False}
    places = [TopicPartition(twin_topic, number, 40, leader_epoch=0) for number in (0, 1)]
    commit(link.there, group, twin_topic, {0: 1})  # waits for the coordinator
    with closing(Consumer({**source_cluster.client("link"), **settings})) as consumer:
        consumer.commit(offsets=places, asynchronous=False)
        before = consumer.committed(places, timeout=60)
    link.run()
    with closing(Consumer({**destination_cluster.client("link"), **settings})) as consumer:
        after = consumer.committed(places, timeout=60)

    assert [(place.offset, place.leader_epoch) for place in before] == [(40, 0), (40, 0)]
    epochs: list[int | None] = [place.leader_epoch for place in after]
    assert [place.offset for place in after] == [40, 40]
    assert epochs == [None, None]


def test_an_offset_limited_by_the_mirrors_end_follows_as_the_mirror_grows(
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


def test_groups_are_skipped_with_the_reason(link: Link, group: str, twin_topic: str, there: ClusterAdmin) -> None:
    there.create_topic(f"{twin_topic}.other", partitions=1)
    commit(there, group, f"{twin_topic}.other", {0: 0})
    commit(there, f"{group}-secret", twin_topic, {0: 1})
    filters = (*link.sync.filters, NameFilter(name=f"{group}-secret", filter_type=FilterType.EXCLUDE))

    found = {outcome.name: outcome for outcome in link.run(filters=filters).groups}

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


def test_groups_are_synced_in_batches_and_the_rest_is_WAITING(link: Link, group: str, twin_topic: str) -> None:
    for number in range(3):
        commit(link.there, f"{group}-{number}", twin_topic, {0: number})

    first = link.run(batch=2)
    second = link.run(batch=2, after=first.next_after)

    assert [outcome.name for outcome in first.groups if outcome.status is GroupStatus.WAITING] == [f"{group}-2"]
    assert offsets_of(link.here, f"{group}-2", twin_topic) == {0: 2}
    assert second.next_after == ""


def test_a_group_that_cannot_be_read_does_not_stop_others(
    link: Link, group: str, twin_topic: str, there: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that Kafka refuses represents a group whose coordinator is not available."""
    commit(there, group, twin_topic, {0: 9})
    listed, _ = there.groups()
    bad = replace(listed[group], name="")
    monkeypatch.setattr(there, "groups", lambda: ({"": bad, group: listed[group]}, ""))

    found = {outcome.name: outcome for outcome in link.run(filters=(NameFilter(name="*"),)).groups}

    assert found[group].status is GroupStatus.SYNCED
    assert found[""].status is not GroupStatus.SYNCED


def test_offsets_only_increase_and_arrive_while_the_source_commits_continuously(
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
