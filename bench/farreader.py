"""Bare readers of a distant source: what the proxies and this machine allow, without anything that copies.

As many connections as a copy worker opens to a broker (``linkengine.copyjob.source.read_ahead``) each read a part of the topic
and discard it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from bench.measure import end_offsets
from bench.reader import SessionReader
from devcluster.kafka import KafkaCluster
from linkengine.copyjob.source.read_ahead import MOST_CONNECTIONS

FIRST, LAST = 0.05, 0.95  # shares of the records between which is measured: start and the slowest connections are not compared
TIMEOUT_S = 300.0
_POLL_S = 0.02


class _Readers:
    """The readers, and how many records they have read."""

    def __init__(self, cluster: KafkaCluster, topic: str, *, partitions: int, properties: Mapping[str, str]) -> None:
        self._cluster, self._topic, self._partitions, self._properties = cluster, topic, partitions, properties
        self._lock = threading.Lock()
        self.read = 0
        self.errors: list[BaseException] = []
        self.stopped = threading.Event()

    def run(self, partition: int, start: int, end: int) -> None:
        """Read a part of a partition in a thread."""
        try:
            reader = SessionReader(
                self._cluster, self._topic, partitions=self._partitions, timeout_s=TIMEOUT_S,
                properties=self._properties, starts={partition: start},
            )  # fmt: skip
            try:
                while not self.stopped.is_set() and (before := reader.position(partition)) < end:
                    reader.skim()
                    with self._lock:
                        self.read += min(end, reader.position(partition)) - before
            finally:
                with suppress(OSError):
                    reader.close()
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            self.errors.append(error)


def measure_far_readers(
    cluster: KafkaCluster, topic: str, *, partitions: int, properties: Mapping[str, str]
) -> tuple[int, float]:
    """Read a topic without compaction through ``properties``; return (records, seconds) between 5 % and 95 % of it."""
    readers = _Readers(cluster, topic, partitions=partitions, properties=properties)
    ends, each = end_offsets(cluster, topic, partitions=partitions), max(1, MOST_CONNECTIONS // partitions)
    parts = [
        (partition, end * number // each, end * (number + 1) // each)
        for number in range(each)
        for partition, end in enumerate(ends)
    ]
    threads = [threading.Thread(target=readers.run, args=part, daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    try:
        first, began = _wait_for(readers, int(sum(ends) * FIRST))
        last, ended = _wait_for(readers, int(sum(ends) * LAST))
    finally:
        readers.stopped.set()
        for thread in threads:
            thread.join(timeout=TIMEOUT_S)
    return last - first, ended - began


def _wait_for(readers: _Readers, goal: int) -> tuple[int, float]:
    deadline = time.monotonic() + TIMEOUT_S
    while (reached := readers.read) < goal:
        if readers.errors:
            raise RuntimeError("A bare reader failed.") from readers.errors[0]
        if time.monotonic() > deadline:
            raise TimeoutError(f"The bare readers have read {reached} records after {TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)
    return reached, time.monotonic()
