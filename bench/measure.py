"""Rates and CPU time of a copy, measured from outside: log ends of the destination, CPU seconds of a process tree."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.steal_time import Stolen
from devcluster.access import admin_client
from devcluster.kafka import KafkaCluster

WARM_UP_SHARE = 0.05  # start-up, connects and first assignments are not compared
POLL_S, MOST_POLL_S = 0.02, 0.2
COPY_TIMEOUT_S = 300.0
MEMORY_EVERY_S = 0.5
COUNT_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """CPU seconds of a process tree: in total, of its Python workers alone (the copy loops), and of the JVM itself."""

    total_s: float
    python_s: float
    jvm_s: float = 0.0  # never decreases: ended workers take their seconds with them, the JVM stays


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Measurements of a copy between 5 % and 100 % of the records."""

    share: float  # of the log, copied between the two
    seconds: float
    cpu: CpuTimes
    peak_mb: float  # of the largest worker, from the beginning
    stolen: float  # steal time, as a share of the machine


class PeakMemory:
    """The largest resident size of a worker in a process tree: of Python workers, or of the JVM if there are none."""

    def __init__(self, pid: int, *, every_s: float = MEMORY_EVERY_S) -> None:
        self._pid, self._every_s = pid, every_s
        self.megabytes = self._next_at = 0.0

    def sample(self) -> None:
        """Take a sample if the previous sample is old enough: a sample of all processes takes some milliseconds itself."""
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + self._every_s
        tree = [psutil.Process(self._pid), *psutil.Process(self._pid).children(recursive=True)]
        sizes = {True: 0.0, False: 0.0}
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                python = process.name().startswith("python")
                sizes[python] = max(sizes[python], process.memory_info().rss / 1e6)
        self.megabytes = max(self.megabytes, sizes[True] or sizes[False])


def cpu_times(pid: int) -> CpuTimes:
    """Return the CPU time of a process, its living descendants and the descendants it has waited for."""
    root = psutil.Process(pid)
    total = python = jvm = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            times, name = process.cpu_times(), process.name()
        except psutil.NoSuchProcess:
            continue
        spent = times.user + times.system + times.children_user + times.children_system
        total += spent
        if name.startswith("python"):
            python += spent
        else:
            jvm += times.user + times.system
    return CpuTimes(total_s=total, python_s=python, jvm_s=jvm)


def end_offsets(cluster: KafkaCluster, topic: str, *, partitions: int) -> list[int]:
    """Return the log end offset of each partition; empty while the topic does not exist (MirrorMaker creates it late)."""
    admin = admin_client(cluster)
    return ends_of(admin, topic, partitions=partitions)


def ends_of(admin: AdminClient, topic: str, *, partitions: int) -> list[int]:
    """Return the same with a client that the caller keeps."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    specs = {TopicPartition(topic, number): latest for number in range(partitions)}
    try:
        return [future.result(timeout=10).offset for future in admin.list_offsets(specs).values()]
    except KafkaException:
        return []  # callers wait with a deadline


def count_records(cluster: KafkaCluster, topic: str) -> int:
    """Return the number of records that a read-committed consumer of the whole topic reads."""
    consumer = Consumer(
        {
            **cluster.client(),
            "group.id": f"bench-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    count, deadline = 0, time.monotonic() + COUNT_TIMEOUT_S
    while partitions and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                count += 1
            else:
                partitions.discard(message.partition())
    consumer.close()
    return count


def watch_copy(
    cluster: KafkaCluster,
    topic: str,
    *,
    partitions: int,
    end: int,
    pid: Callable[[], int],
    memory_every_s: float = MEMORY_EVERY_S,
) -> Copy:
    """Wait until the topic's log end offsets add up to ``end``; return the measurements.

    Raises TimeoutError if they do not within COPY_TIMEOUT_S, or if the copy was over before it could be observed.
    """
    admin = admin_client(cluster)
    deadline = time.monotonic() + COPY_TIMEOUT_S
    memory = PeakMemory(pid(), every_s=memory_every_s)

    def wait_for(goal: int, *, since: float | None = None) -> tuple[int, float, CpuTimes]:
        while (reached := sum(ends_of(admin, topic, partitions=partitions))) < goal:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} has come to {reached} of {end} offsets after {COPY_TIMEOUT_S:.0f} s")
            memory.sample()
            time.sleep(POLL_S if since is None else _pause_s(time.monotonic() - since, done=reached, missing=goal - reached))
        return reached, time.monotonic(), cpu_times(pid())

    first, began, cpu_before = wait_for(max(1, int(end * WARM_UP_SHARE)))
    stolen = Stolen()
    last, ended, cpu_after = wait_for(end, since=began)
    if last == first:
        raise TimeoutError(f"{topic} was copied before its log ends could be seen")
    cpu = CpuTimes(total_s=cpu_after.total_s - cpu_before.total_s, python_s=cpu_after.python_s - cpu_before.python_s)
    return Copy(share=(last - first) / end, seconds=ended - began, cpu=cpu, peak_mb=memory.megabytes, stolen=stolen.share())


def _pause_s(seconds: float, *, done: int, missing: int) -> float:
    """Return a long pause while much is missing: each request slows the copy a little, and a bare writer is not observed."""
    return min(MOST_POLL_S, max(POLL_S, seconds * missing / done / 4))
