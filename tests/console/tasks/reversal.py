"""What the tests of reversals and restores share: both sides of a link, writers and readers of an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from console.actions.operations import operate
from console.actors import SYSTEM
from console.models import Cluster, ClusterLink, MirrorTopic
from console.tasks import reconcile
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import MirrorEvent
from tests.console.conftest import NOW

Records = dict[tuple[int, int], bytes]
Worker = Callable[[], None]
Drive = Callable[[Callable[[], bool]], None]


def side_of(here: Cluster, there: Cluster) -> ClusterLink:
    """Make the row of a bidirectional link at one of its clusters."""
    return ClusterLink.objects.create(
        name="pair",
        mode="BIDIRECTIONAL",
        destination=here,
        source=there,
        source_cluster_id=there.cluster_id,
        properties=there.properties,
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )


def fresh(mirror: MirrorTopic) -> MirrorTopic:
    """Read a row again."""
    return MirrorTopic.objects.select_related("link__destination__environment").get(pk=mirror.pk)


def do(mirror: MirrorTopic, operation: MirrorEvent) -> MirrorTopic:
    """Operate as a person does."""
    return operate(mirror=fresh(mirror), operation=operation, by=SYSTEM, now=NOW)


def states(*rows: MirrorTopic) -> list[str]:
    """Answer the states of rows, as they are now."""
    return [MirrorTopic.objects.values_list("state", flat=True).get(pk=row.pk) for row in rows]


def beat(worker: Worker) -> None:
    """Do what the product does once a second."""
    reconcile.reconcile()
    worker()


def write(cluster: KafkaCluster, topic: str, *values: str, partition: int = 0, user: str = "app") -> list[int | None]:
    """Write as an application, or somebody else; answer the error code of each record, None where it was acknowledged."""
    errors: list[int | None] = []

    def note(error: KafkaError | None, _: object) -> None:
        errors.append(None if error is None else error.code())  # an error cannot be compared with None

    producer = Producer({**cluster.client(user), "message.timeout.ms": 20_000, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=note)
    assert producer.flush(60) == 0
    return errors


def records(cluster: KafkaCluster, topic: str, *, partitions: int = 2) -> Records:
    """Read everything, as a committed reader sees it, by partition and offset."""
    consumer = Consumer({**cluster.client("app"), "group.id": "reader", "enable.auto.commit": False, "log_level": 0})
    places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    bounds: dict[int, Any] = {place.partition: consumer.get_watermark_offsets(place, timeout=20) for place in places}
    consumer.assign(places)
    found: Records = {}
    while any(
        consumer.position([TopicPartition(topic, number)])[0].offset < high
        for number, (low, high) in bounds.items()
        if high > low
    ):
        for one in consumer.consume(1000, timeout=1):
            assert not one.error()
            found[one.partition() or 0, one.offset() or 0] = one.value() or b""
    consumer.close()
    return found
