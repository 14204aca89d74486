"""Rates and CPU time of a copy, seen from outside: log ends of the destination, CPU seconds of a process tree."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from devcluster.kafka import KafkaCluster

WARM_UP_SHARE = 0.05  # start-up, connects and first assignments are not what is compared
POLL_S = 0.02
COPY_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """CPU seconds of a process tree: all of it, and its Python workers alone (the copy loops, no JVM)."""

    total_s: float
    python_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What happened between 5 % and 100 % of the records."""

    records: int
    seconds: float
    cpu: CpuTimes


def cpu_times(pid: int) -> CpuTimes:
    """Add up the CPU time of a process, its living descendants and the descendants it has waited for."""
    root = psutil.Process(pid)
    total = python = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            times, name = process.cpu_times(), process.name()
        except psutil.NoSuchProcess:
            continue
        spent = times.user + times.system + times.children_user + times.children_system
        total += spent
        python += spent if name.startswith("python") else 0.0
    return CpuTimes(total_s=total, python_s=python)


def end_offset(admin: AdminClient, topic: str, *, partitions: int) -> int:
    """Add up the log ends of a topic; 0 while it does not exist (MirrorMaker creates it late)."""
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    try:
        return sum(future.result(timeout=10).offset for future in admin.list_offsets(asked).values())
    except KafkaException:
        return 0  # the wait around it has a deadline


def watch_copy(cluster: KafkaCluster, topic: str, *, partitions: int, records: int, pid: Callable[[], int]) -> Copy:
    """Wait until the topic holds all records; raises TimeoutError if it does not within COPY_TIMEOUT_S."""
    admin = AdminClient(cluster.client())
    deadline = time.monotonic() + COPY_TIMEOUT_S

    def wait_for(goal: int) -> tuple[int, float, CpuTimes]:
        while (reached := end_offset(admin, topic, partitions=partitions)) < goal:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} holds {reached} of {records} records after {COPY_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)
        return reached, time.monotonic(), cpu_times(pid())

    first, began, cpu_before = wait_for(max(1, int(records * WARM_UP_SHARE)))
    last, ended, cpu_after = wait_for(records)
    cpu = CpuTimes(total_s=cpu_after.total_s - cpu_before.total_s, python_s=cpu_after.python_s - cpu_before.python_s)
    return Copy(records=last - first, seconds=ended - began, cpu=cpu)
