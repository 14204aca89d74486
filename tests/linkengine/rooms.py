"""A source whose leader can be cut off from its controller: it answers its clients on, and hears of nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.proxy import Proxy
from devcluster.broker_settings import BrokerPlan
from devcluster.kafka import KafkaCluster
from devcluster.ports import LOOPBACK, free_port
from linkengine.kafka.admin_groups import _coordinators
from linkengine.kafka.cluster import Cluster
from tests.linkengine.copyjob.copying import address, producer_for, wait_for

FAR, NEAR = 0, 1  # broker 1 is in the controller's room; many a client asks the first one first


class Rooms:
    """Two brokers in two rooms, and the door between them; a context manager."""

    def __init__(self, directory: Path) -> None:
        self.cluster, way = KafkaCluster("rooms", directory=directory, brokers=2), free_port()
        far, near = self.cluster._plans
        self.cluster._plans = [_far_broker(far, way), _controller(near, way)]
        self._topic = ""
        self._door = Proxy([(way, near.controller_port)])

    def __enter__(self) -> Self:
        try:
            self.cluster.start()
        except BaseException:
            self._door.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()
        self._door.close()

    def create_far_topic(self, topic: str) -> None:
        """One partition on both brokers, led by the far one, which has heard of it."""
        wanted = NewTopic(topic, replica_assignment=[[FAR, NEAR]], num_partitions=1)
        admin = AdminClient(self.cluster.client("admin"))  # its answers need it alive
        admin.create_topics([wanted])[topic].result(60)
        self._topic = topic
        wait_for(lambda: leader_as_seen_by(self.cluster, FAR, topic) == FAR)

    def shut(self) -> None:
        """Cut the far broker off from the controller, and wait until the near one leads."""
        self._door.cut()
        wait_for(lambda: leader_as_seen_by(self.cluster, NEAR, self._topic) == NEAR)

    def open(self) -> None:
        """Let the far broker hear of everything again, and wait until it leads what it led."""
        self._door.heal()
        wait_for(lambda: all(leader_as_seen_by(self.cluster, one, self._topic) == FAR for one in (FAR, NEAR)))


def _controller(plan: BrokerPlan, way: int) -> BrokerPlan:
    """The one controller, which is a broker as well; others are told to come by the port ``way``."""
    told: dict[str, object] = {"advertised.listeners": f"{_listeners(plan)},CONTROLLER://{LOOPBACK}:{way}"}
    soon = {"leader.imbalance.check.interval.seconds": 1}  # who is back leads again; after five minutes otherwise
    return replace(plan, voters=f"{NEAR}@{LOOPBACK}:{plan.controller_port}", extra=told | soon)


def _far_broker(plan: BrokerPlan, way: int) -> BrokerPlan:
    """A broker that reaches the controller by the port ``way`` and nowhere else."""
    only_broker = {"process.roles": "broker", "listeners": _listeners(plan), "advertised.listeners": _listeners(plan)}
    return replace(plan, voters=f"{NEAR}@{LOOPBACK}:{way}", extra=only_broker)


def _listeners(plan: BrokerPlan) -> str:
    return f"CLIENT://{LOOPBACK}:{plan.client_port},INTERNAL://{LOOPBACK}:{plan.internal_port}"


def leader_as_seen_by(cluster: KafkaCluster, broker: int, topic: str) -> int:
    """Answer whom this broker, and no other one, takes for the leader of partition 0; -1 while it has not heard of it."""
    with closing(_session(cluster, broker)) as session:
        leader = session.topics([topic])[topic].partitions.get(0)
        return -1 if leader is None else leader.broker


def write(cluster: KafkaCluster, topic: str, count: int, *, broker: int) -> None:
    """Write as a client that is in the room of that broker."""
    producer = producer_for(cluster, bootstrap_servers=server(cluster, broker), acks="all")
    for number in range(count):
        producer.produce(topic, value=f"{number}")
    assert producer.flush(60) == 0


def commit(cluster: KafkaCluster, group: str, topic: str, offset: int, *, broker: int) -> None:
    """Commit an offset of partition 0 as a consumer that is in the room of that broker; again while a coordinator begins."""
    consumer = Consumer({**cluster.client("admin"), "bootstrap.servers": server(cluster, broker), "group.id": group})

    def is_done() -> bool:
        with suppress(KafkaException):
            return bool(consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False))
        return False

    wait_for(is_done)
    consumer.close()


def far_group(cluster: KafkaCluster, groups: Sequence[str]) -> str:
    """Answer one of these groups that the far broker coordinates; the first question has the topic of offsets made."""

    def look() -> list[str]:
        with closing(_session(cluster, FAR)) as session:
            return [group for group, broker in _coordinators(session, groups).items() if broker == FAR]

    return wait_for(look)[0]


def server(cluster: KafkaCluster, broker: int) -> str:
    """The address of one broker alone."""
    return cluster.bootstrap.split(",")[broker]


def _session(cluster: KafkaCluster, broker: int) -> Cluster:
    return Cluster(replace(address(cluster, "admin"), bootstrap_servers=server(cluster, broker)))
