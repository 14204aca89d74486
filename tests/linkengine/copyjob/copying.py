"""Helpers of the copy tests: topics and mirrors on real clusters, a copy worker in a thread, and an independent reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec

from devcluster.kafka import KafkaCluster
from linkengine.coordination.pool import key_for
from linkengine.copyjob.coordination_thread import CoordinationPorts
from linkengine.copyjob.source.side import SourceSide
from linkengine.copyjob.stop.fence import Fence, FenceOrError, fence_partitions
from linkengine.copyjob.worker import run_worker
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import (
    CopyPlan,
    CopyTuning,
    PartitionAssignment,
    PartitionProgress,
    producer_id_for,
)
from linkengine.domain.producers import ProducerState
from linkengine.domain.workers import WorkerSetup
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.producers import describe_producers
from tests.linkengine.copyjob.memory import MemoryAssignments, MemoryLease, MemoryProgress
from tests.signing import SECRETS, SIGNER
from tests.watermarks import watermarks

DEADLINE_S = 60.0
T = TypeVar("T")
Pair = tuple[KafkaCluster, KafkaCluster]  # source, destination
_mirrors = iter(range(1, 1 << 20))


def address(cluster: KafkaCluster, user: str = "link", *, mechanism: str = "SCRAM-SHA-512") -> ClusterAddress:
    """Return the cluster's address for a link."""
    return address_from_properties(cluster.client_properties(user, mechanism=mechanism))


def create_topic(cluster: KafkaCluster, name: str, *, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
    """Create a topic; return when the leaders of its partitions have begun to lead them."""
    admin = AdminClient(cluster.client("admin"))
    topic = NewTopic(name, partitions, replicas, config={key.replace("_", "."): value for key, value in configs.items()})
    admin.create_topics([topic])[name].result(DEADLINE_S)
    ends = {TopicPartition(name, partition): OffsetSpec.latest() for partition in range(partitions)}  # type: ignore[no-untyped-call]
    wait_for(lambda: all(found.exception(DEADLINE_S) is None for found in admin.list_offsets(ends).values()))


def set_config(cluster: KafkaCluster, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(cluster.client("admin"))  # its futures resolve only while the client exists
    admin.incremental_alter_configs([resource])[resource].result(30)


def topic_id(cluster: KafkaCluster, name: str) -> str:
    session = Cluster(address(cluster, "admin"))
    try:
        return wait_for(lambda: session.topics([name])[name].topic_id_text)
    finally:
        session.close()


def assignments_for(
    source: KafkaCluster, source_topic: str, mirror_topic: str, *, partitions: int = 1
) -> tuple[PartitionAssignment, ...]:
    number = next(_mirrors)
    source_id = topic_id(source, source_topic)
    return tuple(
        PartitionAssignment(
            mirror_id=str(number),
            partition=partition,
            source_topic=source_topic,
            mirror_topic=mirror_topic,
            source_topic_id=source_id,
            producer_id=producer_id_for(1, number, partition),
        )
        for partition in range(partitions)
    )


def plan_for(
    source: ClusterAddress,
    destination: ClusterAddress,
    assignments: tuple[PartitionAssignment, ...],
    *,
    link_id: str = "link-1",
    **tuning: int,
) -> CopyPlan:
    return CopyPlan(
        link_id=link_id,
        revision=1,
        source=source,
        destination=destination,
        assignments=assignments,
        tuning=CopyTuning(**({"progress_ms": 50} | tuning)),
        signing_keys=SIGNER.texts(),
    )


def setup_for(worker_id: str = "0000-worker", *, redis_url: str = "", lease_ttl_ms: int = 4_000) -> WorkerSetup:
    key = key_for(SECRETS[0], worker_id)
    return WorkerSetup(worker_id=worker_id, redis_url=redis_url, key=key, lease_ttl_ms=lease_ttl_ms, poll_ms=20)


@dataclass
class Copier:
    """A copy worker in a thread that copies a plan; leaving the context ends it."""

    plan: CopyPlan
    lease: MemoryLease = field(default_factory=MemoryLease)
    progress: MemoryProgress = field(default_factory=MemoryProgress)
    worker_id: str = "0000-worker"
    results: list[PartitionProgress] = field(default_factory=list)
    error: BaseException | None = None

    def __enter__(self) -> Copier:
        self.assignments = MemoryAssignments(self.plan)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    def stop(self) -> None:
        """End the worker without waiting for it."""
        self.assignments.end()

    def release_buffers(self) -> None:
        """Make the worker release all partitions; it keeps running without them."""
        self.assignments.assign(replace(self.plan, assignments=()))

    def join(self) -> list[PartitionProgress]:
        """End the worker and return the last observation of every partition."""
        self.stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the copy worker does not end"
        if self.error is not None:
            raise self.error
        assert self.assignments.errors == []
        return self.results

    def wait_until(self, condition: Callable[[PartitionProgress], bool], *, deadline_s: float = DEADLINE_S) -> None:
        """Wait until the newest report of every partition meets the condition."""

        def met() -> bool:
            latest = self.progress.latest
            return len(latest) == len(self.plan.assignments) and all(condition(progress) for progress in latest.values())

        try:
            wait_for(met, deadline_s=deadline_s, stop=lambda: self.error is not None)
        except AssertionError:
            raise AssertionError(f"not within {deadline_s} s: {self.progress.latest}") from self.error

    def wait_for_ends(self, ends: dict[int, int], *, deadline_s: float = DEADLINE_S) -> None:
        """Wait until the mirror has these log ends, by partition."""
        self.wait_until(lambda progress: progress.mirror_end == ends[int(progress.key.split("/")[1])], deadline_s=deadline_s)

    def _run(self) -> None:
        ports = CoordinationPorts(lease=self.lease, assignments=self.assignments, progress=self.progress)
        try:
            run_worker(setup_for(self.worker_id), ports=ports)
            self.results = [self.progress.last_of(assignment.key) for assignment in self.plan.assignments]
        except BaseException as error:  # noqa: BLE001 - raised again in join
            self.error = error


def plan_of(clusters: Pair, topic: str, *, partitions: int = 1, **tuning: int) -> CopyPlan:
    """Return a plan that copies a topic to a mirror of the same name."""
    source, destination = clusters
    assignments = assignments_for(source, topic, topic, partitions=partitions)
    return plan_for(address(source), address(destination), assignments, link_id="link-1", **tuning)


def copy_all(clusters: Pair, topic: str, *, partitions: int = 1, **tuning: int) -> list[PartitionProgress]:
    """Copy the topic to its end; it must exist on both sides."""
    with Copier(plan_of(clusters, topic, partitions=partitions, **tuning)) as copier:
        copier.wait_for_ends(ends_of(clusters[0], topic, partitions=partitions))
    return copier.join()


def fence(plan: CopyPlan, *, generation: int = 100, patient: bool = True) -> dict[int, int]:
    """Fence the partitions of a plan; return the mirrored ends by partition, or raise the error."""
    generations = {assignment.key: generation for assignment in plan.assignments}
    found: dict[str, FenceOrError] = {}
    for results in fence_partitions(plan.destination, plan.assignments, generations=generations, patient=patient):
        found |= results
    for result in found.values():
        if isinstance(result, LinkEngineError):
            raise result
    return {each.partition: result.end for each in plan.assignments if isinstance(result := found[each.key], Fence)}


def create_pair(clusters: Pair, topic: str, *, partitions: int = 1, **configs: str) -> None:
    """Create a topic on both clusters."""
    for cluster in clusters:
        create_topic(cluster, topic, partitions=partitions, replicas=1, **configs)


def wait_for(check: Callable[[], T | None], *, deadline_s: float = DEADLINE_S, stop: Callable[[], bool] = lambda: False) -> T:
    """Call ``check`` until it returns a true value, and return that value."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline and not stop():
        began = time.monotonic()
        found = check()
        if found:
            return found
        time.sleep(max(0.02, time.monotonic() - began))  # a look that opens connections leaves half of the time to others
    raise AssertionError(f"did not become true within {deadline_s} s")


def noted_location(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that is set once a copy worker has located source leaders and has noted them."""
    located, real = threading.Event(), SourceSide._located

    def noted(side: SourceSide, *args: Any) -> None:
        real(side, *args)
        located.set()

    monkeypatch.setattr(SourceSide, "_located", noted)
    return located


Record = tuple[int, int, bytes | None, bytes | None, tuple[int, int], list[tuple[str, bytes | None]] | None]


def read_topic(cluster: KafkaCluster, topic: str, *, partitions: int = 1, **client: int) -> list[Record]:
    """Return all records that a read-committed consumer gets, by partition and offset, with all their fields."""
    settings = {
        "group.id": "witness",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "check.crcs": True,
    }
    named = {key.replace("_", "."): value for key, value in client.items()}
    consumer = Consumer({**cluster.client("admin"), **settings, **named})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    records: list[Record] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(at_end) < partitions:
        assert time.monotonic() < deadline, "reading takes too long"
        for message in consumer.consume(5000, 1.0):
            partition, offset, headers = message.partition(), message.offset(), message.headers()
            if partition is None:  # an error of the client, which connects again
                continue
            if message.error():
                at_end.add(partition)
            else:
                assert offset is not None
                fields = message.key(), message.value(), message.timestamp()
                records.append((partition, offset, *fields, headers))  # type: ignore[arg-type]  # their values are bytes
    consumer.close()
    return sorted(records, key=lambda record: record[:2])


def ends_of(cluster: KafkaCluster, topic: str, *, partitions: int = 1) -> dict[int, int]:
    """Return the high watermark of each partition."""
    consumer = Consumer({**cluster.client("admin"), "group.id": "ends"})
    ends = {partition: watermarks(consumer, TopicPartition(topic, partition))[1] for partition in range(partitions)}
    consumer.close()
    return ends


def starts_of(cluster: KafkaCluster, topic: str, *, partitions: int = 1) -> dict[int, int]:
    """Return the log start offset of each partition."""
    consumer = Consumer({**cluster.client("admin"), "group.id": "starts"})
    starts = {partition: watermarks(consumer, TopicPartition(topic, partition))[0] for partition in range(partitions)}
    consumer.close()
    return starts


def producer_for(cluster: KafkaCluster, **settings: object) -> Producer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({**cluster.client("admin"), "linger.ms": 5, **named})


def producer_state(cluster: KafkaCluster, plan: CopyPlan) -> ProducerState:
    """Return what the leader of a plan's first partition remembers of its producer (DescribeProducers)."""
    session = Cluster(address(cluster))
    assignment = plan.assignments[0]
    place = (assignment.mirror_topic, assignment.partition)
    session.topics([assignment.mirror_topic])
    try:
        return describe_producers(session, session.brokers()[0], {place: assignment.producer_id})[place][1]
    finally:
        session.close()


def assert_equal_topics(
    source: KafkaCluster, topic: str, mirror: KafkaCluster, mirror_topic: str, *, partitions: int = 1
) -> int:
    """Assert equal records at equal offsets and equal end offsets; return the number of records."""
    expected = read_topic(source, topic, partitions=partitions)
    found = read_topic(mirror, mirror_topic, partitions=partitions)
    differences = [(record, copied) for record, copied in zip(expected, found, strict=False) if record != copied][:3]
    assert not differences, differences
    assert len(found) == len(expected)
    assert ends_of(mirror, mirror_topic, partitions=partitions) == ends_of(source, topic, partitions=partitions)
    return len(found)
