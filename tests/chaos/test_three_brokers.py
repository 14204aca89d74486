"""Clusters of three brokers: a short storm over the copy loop, and the calm things that happen to brokers in production."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from chaos import judge
from chaos.environment import TOPICS, ChaosEnvironment, Side, spares
from chaos.history import Journal
from chaos.loops import LoopEngine
from chaos.reading import Ends, read_topic
from chaos.schedule import ENGINE_FAULTS, SHORT_S, SHORT_SEED, Fault, short_storm
from chaos.storm import Storm
from chaos.writers import TransactionalWriter
from linkengine.domain.client_properties import address_from_properties
from linkengine.kafka.cluster import Cluster

T = TypeVar("T")
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
TIMEOUT_S = 240.0
KEPT = 60  # records of the compacted topic, for the check that needs them
REPEATS = 3  # of a fault that broke nothing: that depends on which process holds what when it scheduled
UNREACHABLE = "BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR"
TOO_FEW_REPLICAS = "NOT_ENOUGH_REPLICAS_ERROR"


def test_a_storm_of_a_minute_with_every_fault_leaves_nothing_lost_doubled_or_moved(environment: ChaosEnvironment) -> None:
    spare = spares(2 + REPEATS)  # one is failed over, one promoted; a repeated fault needs another one
    with LoopEngine(environment, {**TOPICS, **spare}) as engine:
        verdict = Storm(environment, engine, seed=SHORT_SEED, spare=spare).run(
            short_storm(), seconds=SHORT_S, repeats=REPEATS, kept=KEPT
        )

    assert not verdict.findings, [str(finding) for finding in verdict.findings[:10]]
    # a second copier gets a lease only while another fault moves leases, which no repetition can arrange
    assert set(ENGINE_FAULTS) - {Fault.SECOND_COPIER} <= verdict.effective.keys(), verdict.idle()
    assert verdict.records > 500
    assert verdict.samples > 50
    assert verdict.kept > 50
    assert verdict.line().endswith("0 findings")
    assert verdict.status() == 0


def test_copying_survives_moved_replicas_lost_brokers_and_too_few_replicas(
    environment: ChaosEnvironment, topic_name: str
) -> None:
    sides = (environment.source, environment.destination)
    with copied(environment, topic_name) as engine:
        for side in sides:
            reassign(side, topic_name, {0: [2, 0], 1: [2, 0]})  # the second partition loses a replica as well
            reassign(side, topic_name, {0: [1, 2, 0], 1: [0, 1, 2]})
        key, ends = engine.assignments[topic_name][0].key, Ends(environment.source.cluster.client(), {topic_name: 2})
        leaders = [described(side, topic_name)[0].leader for side in sides]
        for side, leader in zip(sides, leaders, strict=True):
            side.cluster.kill(leader)
        try:
            before = until(ends.all)
            until(lambda: all(end > before[place] for place, end in until(ends.all).items()))  # the writer continues
            engine.settle([topic_name], timeout_s=TIMEOUT_S)
            set_config(environment.destination, topic_name, "min.insync.replicas", "3")
            until(lambda: engine.phases().get(key) == TOO_FEW_REPLICAS)
        finally:
            for side, leader in zip(sides, leaders, strict=True):
                side.cluster.restart(leader, wait=False)
        until(lambda: engine.phases().get(key) == "COPYING")
        for side in sides:
            side.cluster.wait_ready()


def test_all_brokers_are_restarted_in_turn_while_copying(environment: ChaosEnvironment, topic_name: str) -> None:
    with copied(environment, topic_name) as engine, ThreadPoolExecutor(2) as both:
        for done in [both.submit(restart_in_turn, side, topic_name) for side in (environment.source, environment.destination)]:
            done.result(TIMEOUT_S)
        key = engine.assignments[topic_name][0].key
        until(lambda: engine.phases().get(key) == "COPYING")


def test_full_disks_are_waited_out_on_both_sides(environment: ChaosEnvironment, topic_name: str) -> None:
    source, destination = environment.source.cluster, environment.destination.cluster
    full = [(source, 0), (destination, 1), (destination, 2)]
    with copied(environment, topic_name) as engine:
        keys = {assignment.key for assignment in engine.assignments[topic_name]}
        for cluster, node in full:
            cluster.fill_disk(node)
        until(lambda: not any(cluster.running(node) for cluster, node in full))  # a broker without a disk ends
        until(lambda: UNREACHABLE in engine.phases().values())
        for cluster, node in full:
            cluster.restart(node, wait=False)
        until(lambda: all(engine.phases().get(key) == "COPYING" for key in keys))


@contextmanager
def copied(environment: ChaosEnvironment, topic: str) -> Iterator[LoopEngine]:
    """Copy a topic while transactions are written to it; compare both sides in the end."""
    journal, topics = Journal(), {topic: 2}
    with LoopEngine(environment, topics) as engine:
        writer = TransactionalWriter(
            f"calm-{topic}",
            client=environment.source.cluster.client("app"),
            topics=topics,
            journal=journal,
            seed=1,
            pause_s=0.05,
        )
        writer.start()
        try:
            until(lambda: len(journal.of_topic(topic)) > 50)
            yield engine
        finally:
            writer.stop()
            writer.join()
        engine.settle([topic], timeout_s=TIMEOUT_S)
    source, mirror = (
        read_topic(side.cluster.client(), topic, partitions=2, committed=True)
        for side in (environment.source, environment.destination)
    )
    assert [str(finding) for finding in judge.compare(topic, source, mirror)] == []
    assert [str(finding) for finding in judge.check_history(topic, mirror, journal.of_topic(topic))] == []


def restart_in_turn(side: Side, topic: str) -> None:
    """Restart the brokers in turn, each after the previous broker is in sync again, as an upgrade does."""
    cluster = side.cluster
    for node in cluster.brokers:
        cluster.restart(node)
        until(lambda: in_sync(described(side, topic)))


def in_sync(partitions: list[Any]) -> bool:
    return bool(partitions) and all(len(partition.isrs) == len(partition.replicas) for partition in partitions)


def described(side: Side, topic: str) -> list[Any]:
    try:
        found = AdminClient(side.cluster.client()).list_topics(topic, timeout=30).topics[topic]
    except KafkaException:
        return []
    return list(found.partitions.values())


def reassign(side: Side, topic: str, replicas: dict[int, Sequence[int]]) -> None:
    """Move replicas, and with them leaders, and wait until it is done."""
    request = AlterPartitionReassignmentsRequest
    wanted = request.ReassignableTopic(
        name=topic,
        partitions=[
            request.ReassignableTopic.ReassignablePartition(partition_index=number, replicas=list(nodes))
            for number, nodes in replicas.items()
        ],
    )
    cluster = Cluster(address_from_properties(side.cluster.client_properties()))
    try:
        cluster.topics([topic])
        broker = cluster.brokers()[0]
        response: Any = cluster.call(
            broker,
            lambda _: request(version=0, timeout_ms=30_000, topics=[wanted]),
            response=AlterPartitionReassignmentsResponse,
        )
        assert not response.error_code
        assert not any(partition.error_code for topic in response.responses for partition in topic.partitions)
        until(lambda: not running(cluster, broker))
    finally:
        cluster.close()


def running(cluster: Cluster, broker: int) -> list[Any]:
    response: Any = cluster.call(
        broker,
        lambda _: ListPartitionReassignmentsRequest(version=0, timeout_ms=30_000, topics=None),
        response=ListPartitionReassignmentsResponse,
    )
    return list(response.topics)


def set_config(side: Side, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(side.cluster.client())
    [future] = admin.incremental_alter_configs([resource]).values()
    future.result(30)


def until(check: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := check()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
    return found
