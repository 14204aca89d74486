"""Fixtures for mirrors to set up and stop, and producers on both sides."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import AclRule
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.jobs import browsing
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from tests.linkengine.jobs.stops import assignments_of

SEND_TIMEOUT_S = 60.0
Send = Callable[..., None]


def _send(cluster: KafkaCluster, topic: str, *, user: str, partition: int, count: int) -> None:
    refusals = []
    producer = Producer({**cluster.client(user), "linger.ms": 5})
    for number in range(count):
        producer.produce(
            topic,
            b"v",
            str(number),
            partition=partition,
            on_delivery=lambda error, _: refusals.append(error) if error else None,
        )
    assert producer.flush(SEND_TIMEOUT_S) == 0
    assert refusals == []


@pytest.fixture
def send_there(source_cluster: KafkaCluster) -> Send:
    """Return a function that writes to the source as an ordinary client."""
    return lambda topic, *, partition=0, count=1: _send(source_cluster, topic, user="app", partition=partition, count=count)


@pytest.fixture
def send_here(destination_cluster: KafkaCluster) -> Send:
    """Return a function that writes to the destination, by default as the link's principal, which may write to mirrors."""
    return lambda topic, *, partition=0, count=1, user="link": _send(
        destination_cluster, topic, user=user, partition=partition, count=count
    )


@pytest.fixture
def setup_plan(source: ClusterAddress, destination: ClusterAddress, topic_name: str) -> MirrorSetup:
    """A mirror with the name of its source topic; neither exists yet."""
    return MirrorSetup(
        link_id="1",
        mirror_id="7",
        source=source,
        destination=destination,
        source_topic=topic_name,
        mirror_topic=topic_name,
    )


@pytest.fixture
def assignments(setup_plan: MirrorSetup) -> AssignmentsFactory:
    """Return a factory for the assignments of that mirror."""
    return assignments_of(setup_plan)


@pytest.fixture
def source_topic(there: ClusterAdmin, topic_name: str) -> str:
    """A source topic with two empty partitions."""
    there.create_topic(topic_name, partitions=2)
    deadline = time.monotonic() + SEND_TIMEOUT_S
    while not _has_leaders(there, topic_name) and time.monotonic() < deadline:
        time.sleep(0.1)  # brokers learn of a new topic one after the other
    return topic_name


@pytest.fixture
def rules(destination: ClusterAddress) -> Iterator[list[AclRule]]:
    """ACLs that are deleted after the test."""
    made: list[AclRule] = []
    yield made
    for rule in made:
        browsing.delete_acls(destination, rule, guarded=())


def _has_leaders(admin: ClusterAdmin, topic: str) -> bool:
    try:
        return len(admin.offsets(topic, OffsetKind.END, partitions=2)) == 2
    except LinkEngineError:
        return False
