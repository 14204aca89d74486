"""A source whose leader can be cut off from its controller: it still responds to clients, with outdated metadata."""

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

FAR, NEAR = 0, 1  # broker 1 is on the controller's side; many clients contact the first broker first


class SplitCluster:
    """Two brokers on two sides of a proxy, which can separate them; a context manager."""

    def __init__(self, directory: Path) -> None:
        self.cluster, way = KafkaCluster("split", directory=directory, brokers=2), free_port()
        far, near = self.cluster._plans
        self.cluster._plans = [_far_broker(far, way), _controller(near, way)]
        self._topic = ""
        self._proxy = Proxy([(way, near.controller_port)])

    def __enter__(self) -> Self:
        try:
            self.cluster.start()
        except BaseException:
            self._proxy.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()
        self._proxy.close()

    def create_far_topic(self, topic: str) -> None:
        """Create a topic with one partition on both brokers, and wait until the far broker leads it."""
        wanted = NewTopic(topic, replica_assignment=[[FAR, NEAR]], num_partitions=1)
        admin = AdminClient(self.cluster.client("admin"))  # must stay referenced while its futures are pending
        admin.create_topics([wanted])[topic].result(60)
        self._topic = topic
        wait_for(lambda: leader_as_seen_by(self.cluster, FAR, topic) == FAR)

    def shut(self) -> None:
        """Cut the far broker off from the controller, and wait until the near broker leads."""
        self._proxy.cut()
        wait_for(lambda: leader_as_seen_by(self.cluster, NEAR, self._topic) == NEAR)

    def open(self) -> None:
        """Connect the far broker to the controller again, and wait until it leads its partition again."""
        self._proxy.heal()
        wait_for(lambda: all(leader_as_seen_by(self.cluster, broker, self._topic) == FAR for broker in (FAR, NEAR)))


def _controller(plan: BrokerPlan, way: int) -> BrokerPlan:
    """Return the only controller, which is a broker as well; it advertises the port ``way`` to other brokers."""
    advertised: dict[str, object] = {"advertised.listeners": f"{_listeners(plan)},CONTROLLER://{LOOPBACK}:{way}"}
    soon = {"leader.imbalance.check.interval.seconds": 1}  # a returned leader leads again; by default after five minutes
    return replace(plan, voters=f"{NEAR}@{LOOPBACK}:{plan.controller_port}", extra=advertised | soon)


def _far_broker(plan: BrokerPlan, way: int) -> BrokerPlan:
    """Return a broker that reaches the controller by the port ``way`` only."""
    only_broker = {"process.roles": "broker", "listeners": _listeners(plan), "advertised.listeners": _listeners(plan)}
    return replace(plan, voters=f"{NEAR}@{LOOPBACK}:{way}", extra=only_broker)


def _listeners(plan: BrokerPlan) -> str:
    return f"CLIENT://{LOOPBACK}:{plan.client_port},INTERNAL://{LOOPBACK}:{plan.internal_port}"


def leader_as_seen_by(cluster: KafkaCluster, broker: int, topic: str) -> int:
    """Return the leader of partition 0 in the metadata of this broker only; -1 if it does not have the topic."""
    with closing(_session(cluster, broker)) as session:
        leader = session.topics([topic])[topic].partitions.get(0)
        return -1 if leader is None else leader.broker


def write(cluster: KafkaCluster, topic: str, count: int, *, broker: int) -> None:
    """Write as a client that reaches only that broker."""
    producer = producer_for(cluster, bootstrap_servers=server(cluster, broker), acks="all")
    for number in range(count):
        producer.produce(topic, value=f"{number}")
    assert producer.flush(60) == 0


def commit(cluster: KafkaCluster, group: str, topic: str, offset: int, *, broker: int) -> None:
    """Commit an offset of partition 0 as a consumer that reaches only that broker; retry while the coordinator starts."""
    consumer = Consumer({**cluster.client("admin"), "bootstrap.servers": server(cluster, broker), "group.id": group})

    def is_done() -> bool:
        with suppress(KafkaException):
            return bool(consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False))
        return False

    wait_for(is_done)
    consumer.close()


def far_group(cluster: KafkaCluster, groups: Sequence[str]) -> str:
    """Return a group of these that the far broker coordinates; the first request creates the topic of offsets."""

    def look() -> list[str]:
        with closing(_session(cluster, FAR)) as session:
            return [group for group, broker in _coordinators(session, groups).items() if broker == FAR]

    return wait_for(look)[0]


def server(cluster: KafkaCluster, broker: int) -> str:
    """Return the address of a single broker."""
    return cluster.bootstrap.split(",")[broker]


def _session(cluster: KafkaCluster, broker: int) -> Cluster:
    return Cluster(replace(address(cluster, "admin"), bootstrap_servers=server(cluster, broker)))
