"""MirrorMaker 2 in its dedicated mode, tuned fairly.

The same topic names (IdentityReplicationPolicy), as many tasks as partitions, large fetches and the workload's own batch size
and codec on the producing side. Heartbeats and the syncs of configs, ACLs and groups are off: this engine does not run
them here either. Offset syncs stay on: without them, its consumers could not be moved. This engine preserves offsets instead.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.workloads import KAFKA_VERSION
from devcluster import parts
from devcluster.kafka import LOG_SETTINGS, KafkaCluster
from devcluster.ports import free_port
from devcluster.processes import Process

HEAP = "2g"  # the default of its start script; with half of it, small records caused constant garbage collection


def settings(
    source: Mapping[str, str],
    destination: KafkaCluster,
    *,
    number: int,
    topic: str,
    partitions: int,
    batch_bytes: int,
    codec: str,
) -> dict[str, object]:
    """Return the properties of a run, with credentials. ``source``: its client properties.

    A run with a new number does not see the offsets of previous runs.
    """
    name_of_source = f"source{number}"
    return {
        "clusters": f"{name_of_source},target",
        **{f"{name_of_source}.{name}": value for name, value in source.items()},
        **{f"target.{name}": value for name, value in destination.client_properties("link").items()},
        f"{name_of_source}->target.enabled": "true",
        f"target->{name_of_source}.enabled": "false",
        f"{name_of_source}->target.topics": topic,
        f"{name_of_source}->target.emit.heartbeats.enabled": "false",
        "emit.heartbeats.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "sync.group.offsets.enabled": "false",
        "refresh.groups.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
        "heartbeats.topic.replication.factor": 1,
        "config.storage.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "tasks.max": partitions,
        "listeners": f"http://127.0.0.1:{free_port()}",
        f"{name_of_source}.consumer.auto.offset.reset": "earliest",
        f"{name_of_source}.consumer.isolation.level": "read_committed",
        f"{name_of_source}.consumer.fetch.max.bytes": 64 << 20,
        f"{name_of_source}.consumer.max.partition.fetch.bytes": 8 << 20,
        f"{name_of_source}.consumer.max.poll.records": 5000,
        f"{name_of_source}.consumer.receive.buffer.bytes": 1 << 20,
        "target.producer.batch.size": batch_bytes,
        "target.producer.linger.ms": 5 if batch_bytes > 16_384 else 0,
        "target.producer.buffer.memory": 128 << 20,
        "target.producer.compression.type": codec,
        "target.producer.acks": "all",
        "offset.flush.interval.ms": 10_000,
    }


class MirrorMaker:
    """A MirrorMaker 2 process; a context manager."""

    def __init__(self, properties: dict[str, object]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="mirrormaker-")
        directory = Path(self._directory.name)
        file = directory / "mm2.properties"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()))
        java = parts.program("java", package="openjdk-17-jre-headless")
        jars, log = parts.kafka_classpath(version=KAFKA_VERSION), f"-Dlog4j2.configurationFile={LOG_SETTINGS}"
        command = [java, f"-Xmx{HEAP}", "-XX:+UseG1GC", log, "-cp", jars,
                   "org.apache.kafka.connect.mirror.MirrorMaker", str(file)]  # fmt: skip
        self._process = Process(command, name="mirrormaker", log=directory / "mm2.log")

    @property
    def pid(self) -> int:
        return self._process.pid

    def log_tail(self) -> str:
        """Return the last lines of its log."""
        return self._process.log_tail()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.stop()
        self._directory.cleanup()
