"""The scenario of reading mirrors: programs with Go and Node clients read every kind of filler in both isolation levels.

The Python clients and the Java client do the same in ``tests/linkengine/test_consumers.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from clients.environment import ROOT, ClientEnvironment, StepFailedError, run_program
from devcluster.kafka import KafkaCluster

FOLDER = ROOT / "clients" / "consumers"
NODE = FOLDER / "node" / "node_modules" / ".bin" / "node"  # of the version in package.json: the system's may be too old
LEVELS = ("read_committed", "read_uncommitted")
LINK = "consumers"
TIMEOUT_S = 300.0
AT_ONCE = 6
RETURN_CONTROL_BATCHES = frozenset({"segmentio"})  # return control batches as messages, on every transactional topic
_COMPACT: Mapping[str, str] = MappingProxyType(
    {"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100000"}
)
Rows = list[tuple[int, str]]


def run(environment: ClientEnvironment) -> None:
    """Mirror five topics, then read each with every client; raise StepFailedError if a client behaves in a new way."""
    topics = _mirror(environment)
    read_with_all(
        environment.source, environment.destination, topics, program=environment.directory.parent / "clients-consumers"
    )


def read_with_all(source: KafkaCluster, destination: KafkaCluster, topics: Mapping[str, str], *, program: Path) -> None:
    """Read the mirrors (by kind of filler) with every client; print and check the result of each."""
    run_program(["go", "build", "-o", str(program), "."], folder=FOLDER / "go", environment=os.environ)
    run_program(["npm", "ci", "--no-audit", "--no-fund"], folder=FOLDER / "node", environment=os.environ)
    expected = {topic: _expected(source, destination, topic) for topic in topics.values()}
    commands = {
        **{name: [str(program), name] for name in ("franz-go", "sarama", "segmentio")},
        **{name: [str(NODE), str(FOLDER / "node" / "read.mjs"), name] for name in ("kafkajs", "platformatic")},
    }
    with ThreadPoolExecutor(AT_ONCE) as pool:  # each client waits several seconds to see that no more records follow
        results = {
            (client, level, kind): pool.submit(_read_with, destination, [*command, topic, level])
            for client, command in commands.items()
            for level in LEVELS
            for kind, topic in topics.items()
        }
    surprises = []
    for (client, level, kind), result in results.items():
        outcome, is_known = _compare(client, result.result(), expected=expected[topics[kind]])
        print(f"  {client:13} {level:17} {kind:19} {outcome}")
        if not is_known:
            surprises.append(f"{client}, {level}, {kind}: {outcome}")
    if surprises:
        raise StepFailedError("\n".join(["Clients that read a mirror in an unexpected way:", *surprises]))


def _expected(source: KafkaCluster, destination: KafkaCluster, topic: str) -> Rows:
    """Return the source's records, preceded by those that retention has deleted there and the mirror still has."""
    records = read(source, topic)
    return [row for row in read(destination, topic) if row[0] < records[0][0]] + records


def _read_with(cluster: KafkaCluster, command: list[str]) -> subprocess.CompletedProcess[str]:
    user = cluster.client("admin")
    variables = {
        **os.environ,
        "BROKERS": user["bootstrap.servers"],
        "USERNAME": user["sasl.username"],
        "PASSWORD": user["sasl.password"],
    }
    return run_program(command, folder=FOLDER, environment=variables, expect=(0, 1))


def _compare(client: str, done: subprocess.CompletedProcess[str], *, expected: Rows) -> tuple[str, bool]:
    """Return how the records that a client read differ from the expected records, and whether that is known of the client."""
    if done.returncode:
        lines = done.stdout.strip().splitlines()
        return f"ends with an error: {lines[0][:120] if lines else ''}", False
    found: Rows = [(offset, value) for offset, value in json.loads(done.stdout.strip().splitlines()[-1])]
    if found == expected:
        return f"equal ({len(found)} records)", True
    more, missing = len(set(found) - set(expected)), len(set(expected) - set(found))
    return f"{more} more and {missing} missing of {len(expected)} records", client in RETURN_CONTROL_BATCHES and not missing


def read(cluster: KafkaCluster, topic: str) -> Rows:
    """Return the records of a topic as librdkafka's read-committed consumer reads them."""
    settings = {
        "group.id": "witness",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**cluster.client("admin"), **settings})
    consumer.assign([TopicPartition(topic, 0, -2)])
    rows: Rows = []
    while True:
        message = consumer.poll(10.0)
        if message is None or message.error():
            consumer.close()
            return rows
        rows.append((int(message.offset() or 0), (message.value() or b"").decode()))


def _mirror(environment: ClientEnvironment) -> dict[str, str]:
    """Fill a source topic per kind of filler and mirror it; return the topics by kind."""
    credentials = (environment.key["api_key"], environment.key["api_secret"])
    rest = httpx.Client(base_url=environment.console.base_url, auth=credentials, timeout=120.0)
    path = f"/kafka/v3/clusters/{environment.destination.cluster_id}/links"
    properties = environment.source.client_properties("link")
    body = {
        "source_cluster_id": environment.source.cluster_id,
        "configs": [{"name": name, "value": value} for name, value in properties.items()],
    }
    _check_response(rest.post(path, params={"link_name": LINK}, json=body))
    makers: dict[str, Callable[[ClientEnvironment, str], None]] = {
        "TRANSACTION_MARKER": _markers,
        "ABORTED": _aborted,
        "COMPACTED": _compacted,
        "HEAD": _head,
        "LOST": _plain,
    }
    topics = {kind: f"consumers-{kind.lower().replace('_', '-')}" for kind in makers}
    for kind, make in makers.items():
        make(environment, topics[kind])
        _check_response(rest.post(f"{path}/{LINK}/mirrors", json={"source_topic_name": topics[kind]}))
    for topic in topics.values():
        _wait_copied(environment, topic)
    _lose(environment, rest, path, topics["LOST"])
    _wait_copied(environment, topics["LOST"])
    return topics


def _lose(environment: ClientEnvironment, rest: httpx.Client, path: str, topic: str) -> None:
    """Make retention overtake the copy: pause, produce, delete what is not copied, resume."""
    body = {"mirror_topic_names": [topic]}
    _check_response(rest.post(f"{path}/{LINK}/mirrors:pause", json=body))
    _produce(environment.source, topic, count=30)
    end = _ends(environment.source, topic)[1]
    admin = AdminClient(environment.source.client("admin"))
    admin.delete_records([TopicPartition(topic, 0, end - 5)])[TopicPartition(topic, 0)].result(30)
    _check_response(rest.post(f"{path}/{LINK}/mirrors:resume", json=body))


def _check_response(response: httpx.Response) -> None:
    if not response.is_success:
        raise StepFailedError(f"{response.request.method} {response.request.url}: {response.status_code} {response.text}")


def _create(environment: ClientEnvironment, topic: str, configs: Mapping[str, str] | None = None) -> None:
    admin = AdminClient(environment.source.client("admin"))
    admin.create_topics([NewTopic(topic, 1, 1, config=dict(configs or {}))])[topic].result(30)


def _produce(cluster: KafkaCluster, topic: str, *, count: int, producer: Producer | None = None, what: str = "value") -> None:
    producer = producer or Producer(cluster.client("admin"))
    for number in range(count):
        producer.produce(topic, value=f"{what} {number}", key=f"key {number % 7}")
    if producer.flush(60):
        raise StepFailedError(f"Topic {topic} could not be filled.")


def _transactions(environment: ClientEnvironment, topic: str, commits: Callable[[int], bool]) -> None:
    _create(environment, topic)
    producer = Producer({**environment.source.client("admin"), "transactional.id": topic})
    producer.init_transactions()
    for number in range(9):
        producer.begin_transaction()
        _produce(environment.source, topic, count=3, producer=producer, what=f"transaction {number}:")
        producer.commit_transaction() if commits(number) else producer.abort_transaction()


def _markers(environment: ClientEnvironment, topic: str) -> None:
    _transactions(environment, topic, lambda _: True)


def _aborted(environment: ClientEnvironment, topic: str) -> None:
    _transactions(environment, topic, lambda number: number % 3 == 2)


def _plain(environment: ClientEnvironment, topic: str) -> None:
    _create(environment, topic)
    _produce(environment.source, topic, count=10)


def _head(environment: ClientEnvironment, topic: str) -> None:
    _plain(environment, topic)
    admin = AdminClient(environment.source.client("admin"))
    admin.delete_records([TopicPartition(topic, 0, 6)])[TopicPartition(topic, 0)].result(30)


def _compacted(environment: ClientEnvironment, topic: str) -> None:
    _create(environment, topic, _COMPACT)
    _produce(environment.source, topic, count=100)
    deadline = time.monotonic() + TIMEOUT_S
    while len(read(environment.source, topic)) > 60:
        if time.monotonic() > deadline:
            raise StepFailedError(f"Topic {topic} was not compacted.")
        _produce(environment.source, topic, count=1, what=f"roll {time.time_ns()}")
        time.sleep(0.35)
    rest = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)  # during the comparison
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[rest])
    admin = AdminClient(environment.source.client("admin"))
    admin.incremental_alter_configs([resource])[resource].result(30)


def _ends(cluster: KafkaCluster, topic: str) -> tuple[int, int]:
    consumer = Consumer({**cluster.client("admin"), "group.id": "ends"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    return low, high


def _wait_copied(environment: ClientEnvironment, topic: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    seen: Any = None
    while time.monotonic() < deadline:
        try:
            seen = _ends(environment.destination, topic)
        except Exception as error:  # noqa: BLE001 - the topic is being created
            seen = error
        if isinstance(seen, tuple) and seen[1] == _ends(environment.source, topic)[1]:
            return
        time.sleep(0.5)
    raise StepFailedError(f"Mirror topic {topic} did not become equal: {seen}.")
