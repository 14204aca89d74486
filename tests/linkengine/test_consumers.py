"""Mirrors with fillers of every kind, read by the clients that install from registries, in both isolation levels.

Clients for Go and Node.js do the same in ``make clients ARGS=consumers``; docs/consumers.md has the results.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from devcluster.kafka import KafkaCluster
from devcluster.parts import VAR
from linkengine.domain.states import GapReason
from tests.fillers import MAKERS
from tests.linkengine.copyjob.copying import Pair, read_topic

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
LEVELS = ("read_committed", "read_uncommitted")
IDLE_S = 3.0
POLL_MS = 100
Rows = list[tuple[int, str]]
Read = Callable[[KafkaCluster, str, str], Rows]


@pytest.fixture(scope="module")
def clusters(source_cluster: KafkaCluster, destination_cluster: KafkaCluster) -> Pair:
    return source_cluster, destination_cluster


@pytest.fixture(scope="module")
def mirrors(clusters: Pair) -> Mapping[GapReason, str]:
    """One mirror per kind of filler, by kind."""
    topics = {reason: f"consumers-{reason.lower().replace('_', '-')}" for reason in MAKERS}
    for reason, topic in topics.items():
        results = MAKERS[reason](clusters, topic)
        assert reason is GapReason.HEAD or reason in {gap.reason for result in results for gap in result.gaps}
    return topics


@pytest.fixture(scope="module")
def records(clusters: Pair, mirrors: Mapping[GapReason, str]) -> Mapping[GapReason, Rows]:
    """The records that a read-committed consumer reads from the source, preceded by those that only the mirror still has."""
    found = {reason: rows_of(clusters[0], topic) for reason, topic in mirrors.items()}
    before = [row for row in rows_of(clusters[1], mirrors[GapReason.LOST]) if row[0] < 5]
    return {**found, GapReason.LOST: before + found[GapReason.LOST]}


def rows_of(cluster: KafkaCluster, topic: str) -> Rows:
    return [(record[1], (record[3] or b"").decode()) for record in read_topic(cluster, topic)]


class Idle:
    """A time without records after which a reader stops. It stops at once where its position is the log's end."""

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + IDLE_S

    def is_over(self) -> bool:
        return time.monotonic() > self._ends_at


def read_librdkafka(cluster: KafkaCluster, topic: str, level: str) -> Rows:
    settings = {"group.id": "consumers", "isolation.level": level, "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**cluster.client("app"), **settings, "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    rows: Rows = []
    while True:
        message = consumer.poll(30.0)
        assert message is not None
        error, offset = message.error(), message.offset()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            consumer.close()
            return rows
        assert offset is not None
        rows.append((offset, (message.value() or b"").decode()))


def security(cluster: KafkaCluster) -> dict[str, Any]:
    user = cluster.client("app")
    return {
        "bootstrap_servers": user["bootstrap.servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user["sasl.username"],
        "sasl_plain_password": user["sasl.password"],
    }


def read_kafka_python(cluster: KafkaCluster, topic: str, level: str) -> Rows:
    consumer = KafkaConsumer(**security(cluster), isolation_level=level, group_id=None)
    partition = KafkaPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end, idle = consumer.end_offsets([partition])[partition], Idle()
    rows: Rows = []
    while consumer.position(partition) < end and not idle.is_over():
        for messages in consumer.poll(timeout_ms=POLL_MS).values():
            rows += [(message.offset, (message.value or b"").decode()) for message in messages]
            idle = Idle()
    consumer.close()
    return rows


def read_aiokafka(cluster: KafkaCluster, topic: str, level: str) -> Rows:
    async def read() -> Rows:
        consumer = AIOKafkaConsumer(**security(cluster), isolation_level=level, group_id=None)
        await consumer.start()
        try:
            partition = AioPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            end, idle = (await consumer.end_offsets([partition]))[partition], Idle()
            rows: Rows = []
            while await consumer.position(partition) < end and not idle.is_over():
                if found := await consumer.getmany(timeout_ms=POLL_MS):
                    rows += [(message.offset, (message.value or b"").decode()) for message in found[partition]]
                    idle = Idle()
            return rows
        finally:
            await consumer.stop()

    with ThreadPoolExecutor(1) as pool:  # a browser test of the same process leaves a loop running in this thread
        return pool.submit(asyncio.run, read()).result(120)


CLIENTS: Mapping[str, Read] = {
    "confluent-kafka": read_librdkafka,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
}


@pytest.mark.parametrize("reason", list(MAKERS))
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("client", list(CLIENTS))
def test_python_clients_read_the_records_and_no_filler(
    clusters: Pair,
    mirrors: Mapping[GapReason, str],
    records: Mapping[GapReason, Rows],
    client: str,
    level: str,
    reason: GapReason,
) -> None:
    assert CLIENTS[client](clusters[1], mirrors[reason], level) == records[reason]


@pytest.mark.parametrize("level", LEVELS)
def test_the_java_client_reads_the_records_and_no_filler(
    records: Mapping[GapReason, Rows], found_by_java: Mapping[str, Rows], level: str
) -> None:
    assert found_by_java[level] == sorted(row for rows in records.values() for row in rows)


@pytest.fixture(scope="module")
def found_by_java(
    clusters: Pair, mirrors: Mapping[GapReason, str], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Rows]:
    """What Kafka's console consumer reads of all mirrors, by isolation level; both at once, since each waits for 15 s."""
    topics = "|".join(mirrors.values())

    def read(level: str) -> Rows:
        return read_java(clusters[1], topics, level, config=tmp_path_factory.mktemp("java") / "client.properties")

    with ThreadPoolExecutor() as pool:
        return dict(zip(LEVELS, pool.map(read, LEVELS), strict=True))


def read_java(cluster: KafkaCluster, topics: str, level: str, *, config: Path) -> Rows:
    """Run Kafka's console consumer with the jars of the development clusters."""
    properties = {**cluster.client_properties("app"), "group.id": f"java-{level}", "auto.offset.reset": "earliest"}
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    program = ["java", "-cp", f"{VAR}/parts/kafka/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    what = ["--include", topics, "--isolation-level", level, "--from-beginning", "--timeout-ms", "15000"]
    shown = ["--formatter-property", "print.offset=true", "--formatter-property", "key.separator=|"]
    server = ["--bootstrap-server", cluster.bootstrap, "--command-config", str(config)]
    done = subprocess.run([*program, *server, *what, *shown], capture_output=True, text=True, timeout=240, check=False)
    rows = re.findall(r"^Offset:(\d+)\|(.*)$", done.stdout, re.MULTILINE)
    assert rows, done.stdout[-2000:] + done.stderr[-4000:]
    return sorted((int(offset), value) for offset, value in rows)
