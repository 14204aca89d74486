"""Samples both sides during the storm: a mirror must never be beyond what is committed at its source."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import KafkaException

from chaos.environment import ChaosEnvironment
from chaos.judge import Finding, TopicPartition
from chaos.reading import Ends

EVERY_S = 0.5
JOIN_TIMEOUT_S = 60.0


class EndSampler:
    """A sampling thread; ``findings`` and ``samples`` are complete after ``stop``, unless there is an ``error``."""

    def __init__(self, environment: ChaosEnvironment, topics: Mapping[str, int]) -> None:
        """Prepare the clients; ``start`` begins to sample."""
        self.findings: list[Finding] = []
        self.samples, self.error = 0, ""
        self.passed: dict[TopicPartition, list[tuple[int, float]]] = {}  # ends of the mirrors, and when each was first observed
        self._mirror = Ends(environment.destination.cluster.client(), topics)
        self._source = Ends(environment.source.cluster.client(), topics, stable=True)
        self._forgotten: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def forget(self, topic: str) -> None:
        """Ignore a topic from now on: its mirror is about to be stopped, and the fence takes one offset."""
        self._forgotten.add(topic)

    def stop(self) -> None:
        """Stop the thread before mirrors are promoted, since a fence takes one offset. Safe to repeat."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_TIMEOUT_S)
            if self._thread.is_alive():
                self.error = f"it did not end within {JOIN_TIMEOUT_S:.0f} s"

    def _run(self) -> None:
        try:
            self._sample()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            raise

    def _sample(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                mirror = self._mirror.available()
                self._note(mirror, time.monotonic())
                source = self._source.available()  # after the mirror: it only grows
            except KafkaException:
                continue
            self._compare(mirror, source)

    def _note(self, mirror: Mapping[TopicPartition, int], now: float) -> None:
        for place, end in mirror.items():
            seen = self.passed.setdefault(place, [])
            if not seen or end > seen[-1][0]:
                seen.append((end, now))

    def _compare(self, mirror: Mapping[TopicPartition, int], source: Mapping[TopicPartition, int]) -> None:
        for (topic, partition), end in mirror.items():
            stable = source.get((topic, partition))
            self.samples += stable is not None
            if stable is not None and end > stable and topic not in self._forgotten:
                detail = f"the source is committed up to {stable} only"
                self.findings.append(Finding(kind="ahead", topic=topic, partition=partition, offset=end, detail=detail))
