"""Helpers for the tests of reversals and restores: both sides of a link, and an application's producers and consumers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from console.actors import SYSTEM
from console.mirrors import diverged_exports
from console.mirrors.operation_actions import operate, operate_many
from console.models import Cluster, ClusterLink, MirrorTopic, RestoreRun
from console.tasks.links import reconcile
from console.tasks.mirrors import setup_mirror
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import MirrorEvent
from tests.console.conftest import NOW
from tests.watermarks import watermarks

Records = dict[tuple[int, int], bytes]
Worker = Callable[[], None]
Drive = Callable[[Callable[[], bool]], None]
_NOT_WRITTEN = {KafkaError.TOPIC_AUTHORIZATION_FAILED}


def side_of(here: Cluster, there: Cluster) -> ClusterLink:
    """Create the row of a bidirectional link at either of its clusters."""
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


def request_operation(mirror: MirrorTopic, operation: MirrorEvent) -> MirrorTopic:
    """Request an operation as a user does."""
    return operate(mirror=fresh(mirror), operation=operation, by=SYSTEM, now=NOW)


def set_up(mirror: MirrorTopic) -> MirrorTopic:
    """Run the set-up of a new mirror and return its row."""
    setup_mirror(mirror_id=mirror.pk)
    return fresh(mirror)


def state_of(mirror: MirrorTopic) -> str:
    return MirrorTopic.objects.values_list("state", flat=True).get(pk=mirror.pk)


def states(*rows: MirrorTopic) -> list[str]:
    """Return the current states of rows."""
    return [state_of(row) for row in rows]


def restore(back: ClusterLink, name: str) -> MirrorTopic:
    """Request the restore of an ordinary topic."""
    rows = operate_many(link=back, names=[name], operation=MirrorEvent.RESTORE, by=SYSTEM, now=NOW)
    assert [row.error_code for row in rows] == [None], rows
    assert rows[0].truncation is not None  # counted before the restore
    return MirrorTopic.objects.get(link=back, name=name)


def lines(run: RestoreRun) -> list[dict[str, Any]]:
    """Return the records in a restore's export file."""
    with gzip.open(diverged_exports.path_of(run.export_name)) as file:
        return [json.loads(line) for line in file]


def lose_the_fence() -> None:
    """Make the restore find a record in place of partition 0's fence, as after an unclean leader election."""
    run = RestoreRun.objects.get()
    RestoreRun.objects.update(parts=[{**part, "fences": [[0, 101], *part["fences"][1:]]} for part in run.parts])


def beat(worker: Worker) -> None:
    """Do what the product does once a second."""
    reconcile()
    worker()


def write(cluster: KafkaCluster, topic: str, *values: str, partition: int = 0, user: str = "app") -> list[int | None]:
    """Produce records as an application or another user. Returns the error code of each, None if it was acknowledged."""
    errors: list[int | None] = []

    def note(error: KafkaError | None, _: object) -> None:
        errors.append(None if error is None else error.code())  # comparing a KafkaError with None raises

    producer = Producer({**cluster.client(user), "message.timeout.ms": 20_000})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=note)
    assert producer.flush(60) == 0
    return errors


def write_record(cluster: KafkaCluster, topic: str, value: str) -> int | None:
    """Produce a record to partition 0 as an application. Returns its offset, None if it was not acknowledged."""
    offsets: list[int | None] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets.append(message.offset())

    producer = Producer({**cluster.client("app"), "enable.idempotence": True, "message.timeout.ms": 20_000})
    producer.produce(topic, value, partition=0, on_delivery=note)
    assert producer.flush(60) == 0
    return offsets[0] if offsets else None


class Application:
    """Produces numbered values to a topic on whichever of two clusters accepts them, and retries until they are acknowledged.

    It is as careful as an application can be: a record at a time per partition, and the next after the acknowledgement.
    A record whose acknowledgement was lost may have been written, so it is retried by the same idempotent producer only, or
    counted as unknown.
    """

    def __init__(self, topic: str, clusters: Sequence[KafkaCluster], *, partition: int) -> None:
        """Start with the first cluster, once entered."""
        self._clusters, self._topic, self._partition = clusters, topic, partition
        self._producer = self._connect(0)
        self.acknowledged: dict[bytes, int] = {}  # value -> offset, in the order of the acknowledgements
        self.sides: list[int] = []  # which cluster accepted it
        self.unknown: set[bytes] = set()
        self._over = Event()
        self._thread = Thread(target=self._run, name=f"application-{partition}", daemon=True)

    def __enter__(self) -> Application:
        """Start producing."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop producing and wait for the last acknowledgement."""
        self._over.set()
        self._thread.join(90)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number, side = 0, 0
        while not self._over.is_set():
            value = f"live {self._partition}-{number}".encode()
            error, offset = self._write(value)
            if error is None:
                self.acknowledged[value] = offset
                self.sides.append(side)
                number += 1
            elif error in _NOT_WRITTEN:
                side = 1 - side
                self._producer = self._connect(side)  # a producer remembers a refusal for minutes
            else:
                self.unknown.add(value)
                number += 1

    def _connect(self, side: int) -> Producer:
        settings = {"enable.idempotence": True, "message.timeout.ms": 60_000, "linger.ms": 0}
        return Producer({**self._clusters[side].client("app"), **settings})

    def _write(self, value: bytes) -> tuple[int | None, int]:
        results: list[tuple[int | None, int]] = []

        def note(error: KafkaError | None, message: Message) -> None:
            results.append((None if error is None else error.code(), message.offset() or 0))

        try:
            self._producer.produce(self._topic, value, partition=self._partition, on_delivery=note)
            self._producer.flush(90)
        except KafkaException as refused:
            return refused.args[0].code(), 0
        return results[0] if results else (KafkaError._MSG_TIMED_OUT, 0)


def records(cluster: KafkaCluster, topic: str, *, partitions: int = 2) -> Records:
    """Read a topic with read_committed, by partition and offset; works while its beginning is deleted."""
    anew = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**cluster.client("app"), "group.id": "reader", **anew})
    partitions_read = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    bounds = {assigned.partition: watermarks(consumer, assigned) for assigned in partitions_read}
    consumer.assign(partitions_read)
    found: Records = {}
    while any(
        consumer.position([TopicPartition(topic, number)])[0].offset < high
        for number, (low, high) in bounds.items()
        if high > low
    ):
        for record in consumer.consume(1000, timeout=0.1):
            assert not record.error()
            found[record.partition() or 0, record.offset() or 0] = record.value() or b""
    consumer.close()
    return found
