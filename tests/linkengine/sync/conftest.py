"""Topics of the same name on both clusters, and consumer groups that commit offsets on either."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from devcluster.kafka import KafkaCluster
from linkengine.domain.groups import SETTLED, Committed, GroupOutcome, GroupReport, GroupSync, Memory, MirroredTopic, Remembered
from linkengine.domain.names import NameFilter, PatternType
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync.groups import Following, sync_groups

WAIT_S = 60
Commit = Callable[..., None]


class Link:
    """Runs of the offset sync of a link; keeps the memory that the console would keep."""

    def __init__(self, there: ClusterAdmin, here: ClusterAdmin, sync: GroupSync) -> None:
        self.there, self.here, self.sync = there, here, sync
        self.memory: dict[str, dict[tuple[str, int], Remembered]] = {}
        self.following: Following = lambda topics: topics

    def run(self, **changes: object) -> GroupReport:
        sync = replace(self.sync, **changes)  # type: ignore[arg-type]
        report = sync_groups(self.there, self.here, sync, recall=self._recall, following=self.following)
        for group in report.groups:
            for partition in group.partitions:
                if partition.outcome in SETTLED:
                    memory = self.memory.setdefault(group.name, {})
                    memory[partition.mirror_topic, partition.partition] = Remembered(
                        source=partition.source, destination=partition.target
                    )
        return report

    def outcome(self, group: str, **changes: object) -> GroupOutcome:
        return next(outcome for outcome in self.run(**changes).groups if outcome.name == group)

    def _recall(self, names: Sequence[str]) -> Mapping[str, Memory]:
        return {name: self.memory[name] for name in names if name in self.memory}


@pytest.fixture
def link(there: ClusterAdmin, here: ClusterAdmin, twin_topic: str) -> Link:
    """Return a link that syncs all groups whose name begins with the topic's name."""
    filters = (NameFilter(name=twin_topic, pattern_type=PatternType.PREFIXED),)
    ids = {"source_topic_id": there.describe(twin_topic).topic_id, "mirror_topic_id": here.describe(twin_topic).topic_id}
    topics = (MirroredTopic(source_topic=twin_topic, mirror_topic=twin_topic, partitions=2, **ids),)
    return Link(there, here, GroupSync(filters=filters, topics=topics))


@pytest.fixture
def group(twin_topic: str) -> str:
    return f"{twin_topic}-app"


@pytest.fixture
def twin_topic(
    there: ClusterAdmin, here: ClusterAdmin, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic_name: str
) -> str:
    """Create a topic with two partitions on both clusters: 100 records on the source, the first 60 on the destination."""
    for admin, cluster, count in ((there, source_cluster, 100), (here, destination_cluster, 60)):
        admin.create_topic(topic_name, partitions=2)
        fill(cluster, topic_name, partition=0, count=count)
        fill(cluster, topic_name, partition=1, count=count)
    return topic_name


def fill(cluster: KafkaCluster, topic: str, *, partition: int, count: int) -> None:
    """Append records to a partition."""
    producer = Producer(cluster.client("link"))
    for number in range(count):
        producer.produce(topic, str(number), partition=partition)
    assert producer.flush(WAIT_S) == 0


def commit(admin: ClusterAdmin, group: str, topic: str, offsets: dict[int, int], *, metadata: str = "") -> None:
    """Commit offsets for a group without members."""
    wanted = {(topic, partition): Committed(offset=offset, metadata=metadata) for partition, offset in offsets.items()}
    deadline = time.monotonic() + WAIT_S
    while any(refused := list(admin.commit({group: wanted})[group].values())):  # the first coordinator is being created
        assert time.monotonic() < deadline, refused
        time.sleep(0.2)


def offsets_of(admin: ClusterAdmin, group: str, topic: str) -> dict[int, int]:
    """Return what a group has committed for a topic, by partition."""
    found, failures = admin.committed([group])
    assert not failures
    return {partition: offset.offset for (name, partition), offset in found[group].items() if name == topic}


def member(
    cluster: KafkaCluster, group: str, topic: str, *, user: str = "link", settings: Mapping[str, str] | None = None
) -> "closing[Consumer]":
    """Join a group as its only member, owning all partitions; closing the result leaves the group."""
    consumer = Consumer({**cluster.client(user), "group.id": group, "enable.auto.commit": False, **(settings or {})})
    consumer.subscribe([topic])
    deadline = time.monotonic() + WAIT_S
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    return closing(consumer)


def commit_as(consumer: Consumer, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets as a member of the group."""
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
