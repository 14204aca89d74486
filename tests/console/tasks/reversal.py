"""What the tests of reversals and restores share: both sides of a link, writers and readers of an application."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from console import exports
from console.actions.operations import operate, operate_many
from console.actors import SYSTEM
from console.models import Cluster, ClusterLink, MirrorTopic, RestoreRun
from console.tasks import mirrors, reconcile
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import MirrorEvent
from tests.console.conftest import NOW
from tests.watermarks import watermarks

Records = dict[tuple[int, int], bytes]
Worker = Callable[[], None]
Drive = Callable[[Callable[[], bool]], None]
_NOT_WRITTEN = {KafkaError.TOPIC_AUTHORIZATION_FAILED}


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


def set_up(mirror: MirrorTopic) -> MirrorTopic:
    """Let a worker make the topic of a new mirror; answer the row of then."""
    mirrors.setup_mirror(mirror_id=mirror.pk)
    return fresh(mirror)


def state_of(mirror: MirrorTopic) -> str:
    return MirrorTopic.objects.values_list("state", flat=True).get(pk=mirror.pk)


def states(*rows: MirrorTopic) -> list[str]:
    """Answer the states of rows, as they are now."""
    return [state_of(row) for row in rows]


def restore(back: ClusterLink, name: str) -> MirrorTopic:
    """Ask for the restore of an ordinary topic."""
    rows = operate_many(link=back, names=[name], operation=MirrorEvent.RESTORE, by=SYSTEM, now=NOW)
    assert [row.error_code for row in rows] == [None], rows
    assert rows[0].truncation is not None  # counted beforehand
    return MirrorTopic.objects.get(link=back, name=name)


def lines(run: RestoreRun) -> list[dict[str, Any]]:
    """Read what a restore has set aside."""
    with gzip.open(exports.path_of(run.export_name)) as file:
        return [json.loads(line) for line in file]


def lose_the_fence() -> None:
    """Let the restore look for partition 0's fence where an application's record stands, as after an unclean election."""
    run = RestoreRun.objects.get()
    RestoreRun.objects.update(parts=[{**one, "fences": [[0, 101], *one["fences"][1:]]} for one in run.parts])


def beat(worker: Worker) -> None:
    """Do what the product does once a second."""
    reconcile.reconcile()
    worker()


def write(cluster: KafkaCluster, topic: str, *values: str, partition: int = 0, user: str = "app") -> list[int | None]:
    """Write as an application, or somebody else; answer the error code of each record, None where it was acknowledged."""
    errors: list[int | None] = []

    def note(error: KafkaError | None, _: object) -> None:
        errors.append(None if error is None else error.code())  # an error cannot be compared with None

    producer = Producer({**cluster.client(user), "message.timeout.ms": 20_000})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=note)
    assert producer.flush(60) == 0
    return errors


def write_one(cluster: KafkaCluster, topic: str, value: str) -> int | None:
    """Write one record to partition 0 as an application; answer its offset, None where it was not acknowledged."""
    offsets: list[int | None] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets.append(message.offset())

    producer = Producer({**cluster.client("app"), "enable.idempotence": True, "message.timeout.ms": 20_000})
    producer.produce(topic, value, partition=0, on_delivery=note)
    assert producer.flush(60) == 0
    return offsets[0] if offsets else None


class Application:
    """Writes numbered values to a topic on whichever of two clusters takes them, again and again until it is acknowledged.

    It is as careful as an application can be: one record at a time per partition, and a new one only once the last was taken.
    A record whose acknowledgement was lost may have been written, so it is retried by the same idempotent producer alone, or
    given up as unknown.
    """

    def __init__(self, topic: str, clusters: Sequence[KafkaCluster], *, partition: int) -> None:
        """Begin on the first cluster, once entered."""
        self._clusters, self._topic, self._partition = clusters, topic, partition
        self._producer = self._connect(0)
        self.acknowledged: dict[bytes, int] = {}  # value -> offset, in the order of the acknowledgements
        self.sides: list[int] = []  # which side took it
        self.unknown: set[bytes] = set()
        self._over = Event()
        self._thread = Thread(target=self._run, name=f"application-{partition}", daemon=True)

    def __enter__(self) -> Application:
        """Begin to write."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write no more, and wait for the last acknowledgement."""
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
                self._producer = self._connect(side)  # one that was refused remembers it for minutes
            else:
                self.unknown.add(value)
                number += 1

    def _connect(self, side: int) -> Producer:
        settings = {"enable.idempotence": True, "message.timeout.ms": 60_000, "linger.ms": 0}
        return Producer({**self._clusters[side].client("app"), **settings})

    def _write(self, value: bytes) -> tuple[int | None, int]:
        answers: list[tuple[int | None, int]] = []

        def note(error: KafkaError | None, message: Message) -> None:
            answers.append((None if error is None else error.code(), message.offset() or 0))

        try:
            self._producer.produce(self._topic, value, partition=self._partition, on_delivery=note)
            self._producer.flush(90)
        except KafkaException as refused:
            return refused.args[0].code(), 0
        return answers[0] if answers else (KafkaError._MSG_TIMED_OUT, 0)


def records(cluster: KafkaCluster, topic: str, *, partitions: int = 2) -> Records:
    """Read everything, as a committed reader sees it, by partition and offset; also where a beginning is deleted meanwhile."""
    anew = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**cluster.client("app"), "group.id": "reader", **anew})
    places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    bounds = {place.partition: watermarks(consumer, place) for place in places}
    consumer.assign(places)
    found: Records = {}
    while any(
        consumer.position([TopicPartition(topic, number)])[0].offset < high
        for number, (low, high) in bounds.items()
        if high > low
    ):
        for one in consumer.consume(1000, timeout=0.1):
            assert not one.error()
            found[one.partition() or 0, one.offset() or 0] = one.value() or b""
    consumer.close()
    return found
