"""Fill a source topic: with Kafka's own producer benchmark tool, for batches like those of Java producers, or worse."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from bench.measure import end_offsets
from bench.transactions import ALL_TO_ALL, STREAMS, write_transactions
from bench.workloads import KAFKA_VERSION, Shape, Workload
from bench.writer import BareWriter, single_batches
from devcluster import parts
from devcluster.access import admin_client
from devcluster.kafka import KafkaCluster
from devcluster.processes import run

LOAD_TIMEOUT_S = 300
LEADERS_TIMEOUT_S = 60
DELETED_S = 30.0
TOPICS_AT_ONCE = 50
WORDS = (b"carrier", b"departure", b"delay", b"tail number", b"air time", b"distance", b"origin", b"gate", b"hour", b"JFK")


def create_topic(cluster: KafkaCluster, name: str, *, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    """Create a topic with a single replica and wait until all partitions have a leader."""
    admin = admin_client(cluster)  # referenced until the result: its futures end with it
    [future] = admin.create_topics([NewTopic(name, partitions, 1, config={**(configs or {})})]).values()
    future.result(timeout=30)
    deadline = time.monotonic() + LEADERS_TIMEOUT_S
    while len(end_offsets(cluster, name, partitions=partitions)) < partitions:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} has no leaders after {LEADERS_TIMEOUT_S} s")
        time.sleep(0.1)


def delete_topic(cluster: KafkaCluster, name: str) -> None:
    """Delete a topic, so that its disk space does not affect the next run; return when the broker no longer shows it."""
    admin = admin_client(cluster)
    [future] = admin.delete_topics([name]).values()
    future.result(timeout=30)
    deadline = time.monotonic() + DELETED_S
    while name in admin.list_topics(timeout=10).topics:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Topic {name} still exists {DELETED_S:.0f} s after its deletion")
        time.sleep(0.1)


def create_topics(cluster: KafkaCluster, names: Sequence[str], *, partitions: int = 1) -> None:
    """Create topics with a single replica, some at a time."""
    admin = admin_client(cluster)
    for first in range(0, len(names), TOPICS_AT_ONCE):
        some = [NewTopic(name, partitions, 1) for name in names[first : first + TOPICS_AT_ONCE]]
        for future in admin.create_topics(some, operation_timeout=60, request_timeout=90).values():
            future.result(timeout=120)


def discard_topics(cluster: KafkaCluster, names: Sequence[str]) -> None:
    """Delete topics as far as possible, also after a failed measurement: the next measurement needs the disk and the names."""
    admin = admin_client(cluster)
    for future in admin.delete_topics(list(names)).values() if names else ():
        with suppress(KafkaException):
            future.result(timeout=60)


def fill(cluster: KafkaCluster, topic: str, workload: Workload) -> int:
    """Write the workload's records; return the sum of the log end offsets. Payloads compress about as well as JSON."""
    create_topic(cluster, topic, partitions=workload.partitions)
    payloads = [_payload(number, workload.record_bytes) for number in range(500)]
    if workload.shape.transactional:
        rhythm = STREAMS if workload.shape is Shape.STREAMS else ALL_TO_ALL
        counts = {"partitions": workload.partitions, "records": workload.records}
        write_transactions(cluster, topic, payloads=payloads, rhythm=rhythm, **counts)
    elif workload.shape is Shape.SINGLES:
        _write_singles(cluster, topic, workload, payloads)
    else:
        _run_tool(cluster, topic, workload, payloads)
    return sum(end_offsets(cluster, topic, partitions=workload.partitions))


def _write_singles(cluster: KafkaCluster, topic: str, workload: Workload, payloads: list[bytes]) -> None:
    batches = single_batches(payloads)
    each = workload.records // workload.partitions
    writer = BareWriter(cluster, topic)
    try:
        writer.write([[batches[number % len(batches)] for number in range(each)]] * workload.partitions)
    finally:
        writer.close()


def _run_tool(cluster: KafkaCluster, topic: str, workload: Workload, lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        payloads = Path(directory) / "payloads"
        payloads.write_bytes(b"\n".join(lines) + b"\n")
        settings = Path(directory) / "producer.properties"
        settings.touch(mode=0o600)
        settings.write_text("".join(f"{name}={value}\n" for name, value in _settings(cluster, workload).items()))
        java, jars = parts.program("java", package="openjdk-17-jre-headless"), parts.kafka_classpath(version=KAFKA_VERSION)
        command = [
            java, "-Xmx512m", "-cp", jars,
            "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(workload.records),
            "--payload-file", str(payloads), "--throughput", "-1", "--command-config", str(settings),
        ]  # fmt: skip
        result = run(command, env={}, cwd=parts.ROOT, timeout_s=LOAD_TIMEOUT_S)  # killed with this process
    if result.returncode != 0:
        raise RuntimeError(f"Filling {topic} failed: {result.stdout[-500:]} {result.stderr[-1500:]}")


def _settings(cluster: KafkaCluster, workload: Workload) -> dict[str, str]:
    batching = {"batch.size": str(workload.batch_bytes), "compression.type": workload.codec, "acks": "all"}
    if workload.batch_bytes > 16_384:
        batching |= {"linger.ms": "50", "buffer.memory": str(64 << 20)}
    return {**cluster.client_properties("admin"), **batching}


def _payload(number: int, size: int) -> bytes:
    words = b" ".join(
        WORDS[(number * 7 + step * step) % len(WORDS)] + b"%d" % (number * step % 9973) for step in range(size // 6)
    )
    return words[:size].ljust(size, b".")
