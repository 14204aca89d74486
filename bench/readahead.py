"""Reads a topic in a thread, at most AHEAD_BYTES ahead of its user. The bytes are discarded."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from bench.reader import SessionReader
from devcluster.kafka import KafkaCluster

AHEAD_BYTES = 16 << 20
TIMEOUT_S = 30.0


class AheadReader:
    """A reader thread; a context manager. ``use`` waits until as many bytes have been read."""

    def __init__(self, cluster: KafkaCluster, topic: str, *, partitions: int) -> None:
        self._reader = SessionReader(cluster, topic, partitions=partitions, timeout_s=TIMEOUT_S)
        self._changed = threading.Condition()
        self._ready = 0  # number of bytes read and not used yet
        self._ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join(timeout=TIMEOUT_S)
        self._reader.close()

    def use(self, size: int) -> None:
        """Use ``size`` of the bytes read; raise TimeoutError if they do not arrive within TIMEOUT_S."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ready >= size, timeout=TIMEOUT_S):
                raise TimeoutError(f"the source has not been read within {TIMEOUT_S:.0f} s")
            self._ready -= size
            self._changed.notify_all()

    def _read(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._ready < AHEAD_BYTES)
                if self._ended:
                    return
            size = self._reader.skim()
            with self._changed:
                self._ready += size
                self._changed.notify_all()
