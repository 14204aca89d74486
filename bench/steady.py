"""A steady writer in a process of its own, and a reader that times each record: for the rows about many topics.

The writer shares no interpreter with the reader: a reader that waits for the writer would show delays that no copy has caused.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing.synchronize import Event
from operator import itemgetter
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from devcluster.kafka import KafkaCluster

CAUGHT_UP_S = 3.0  # time without stale records until the copy counts as caught up
FRESH_MS = 500.0
CATCH_UP_S = 120.0
LATE_S = 2.0  # time after a take in which its records may still arrive
STAMP = 17  # number of characters of the time in a record
WORST = 10  # records that are printed
_FLUSH_S, _JOIN_S = 10.0, 20.0

Place = tuple[str, int]  # topic and partition
Arrival = tuple[Place, float, float]  # place, time sent (ms), time received (ms); a plain tuple costs the collector least


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Records at a steady rate: a batch to each place in turn, evenly over time."""

    places: tuple[Place, ...]
    rate: int  # records/s over all places
    batch: int = 1  # consecutive records of a place; with a request per record the writer would be the bottleneck
    record_bytes: int = 20


class SteadyWriter:
    """The running writer."""

    def __init__(self, cluster: KafkaCluster, load: Load) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._stop = spawn.Event()
        self._process = spawn.Process(target=_write, args=(cluster.client(), load, self._stop, os.getpid()), daemon=True)
        self._process.start()

    def check(self) -> None:
        """Raise RuntimeError if the writer has ended."""
        if self._process.exitcode is not None:
            raise RuntimeError(f"The writer has ended with status {self._process.exitcode}; its error is printed above.")

    def end(self) -> None:
        """Stop writing and wait for the acknowledgements."""
        self._stop.set()
        self._process.join(_JOIN_S)
        if self._process.is_alive():
            self._process.kill()


@contextmanager
def writing(cluster: KafkaCluster, load: Load) -> Iterator[SteadyWriter]:
    """Write within the block; raise RuntimeError if the writer has ended before its end."""
    writer = SteadyWriter(cluster, load)
    try:
        yield writer
        writer.check()
    finally:
        writer.end()


_MOST_BUFFERED = 1_000_000  # records


def _write(settings: Mapping[str, str], load: Load, stop: Event, parent: int) -> None:
    """Run in the writer's process. An error ends it: a full buffer or a failed delivery makes every figure wrong."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops it
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    # while Spark starts, this machine may be busy for half a minute; nothing is measured until all records are fresh again
    producer = Producer({**settings, "linger.ms": 0, "acks": "all", "queue.buffering.max.messages": _MOST_BUFFERED})
    due, number = time.monotonic(), 0
    while not stop.is_set() and os.getppid() == parent:
        topic, partition = load.places[number % len(load.places)]
        for _ in range(load.batch):
            stamp = f"{time.time() * 1000:.3f}".ljust(load.record_bytes)
            producer.produce(topic, stamp, partition=partition, on_delivery=note)
        producer.poll(0)
        if failed:
            raise RuntimeError(f"The source cluster refused a record: {failed[0]}")
        number += 1
        due += load.batch / load.rate
        time.sleep(max(0.0, due - time.monotonic()))
    if left := producer.flush(_FLUSH_S):
        raise RuntimeError(f"{left} records were not acknowledged within {_FLUSH_S:.0f} s")


class TimedReader:
    """A consumer of all places from their beginning; the writer is checked while it reads."""

    def __init__(
        self, cluster: KafkaCluster, places: Sequence[Place], *, writer: SteadyWriter, every_ms: int | None = None
    ) -> None:
        """Connect. ``every_ms``: fetch at this interval; the client names all places in each request."""
        settings: dict[str, str | int | bool] = {"group.id": "bench-steady", "enable.auto.commit": False}
        settings["fetch.wait.max.ms"], settings["fetch.min.bytes"] = (10, 1) if every_ms is None else (every_ms, 10_000_000)
        self._consumer = Consumer({**cluster.client(), **settings})
        self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
        self.places = frozenset(places)  # records of others are not counted; may be changed
        self._writer = writer

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def read(self, *, until_s: float) -> list[Arrival]:
        """Return the records that arrive until then."""
        found: list[Arrival] = []
        while time.monotonic() < until_s:
            for message in self._consumer.consume(1_000, 0.005):
                if message.error() is None:
                    place = (message.topic() or "", message.partition() or 0)
                    found.append((place, float((message.value() or b"")[:STAMP]), time.time() * 1000))
        self._writer.check()
        return found

    def catch_up(self) -> float:
        """Read until for CAUGHT_UP_S only fresh records arrive, from every place; return the seconds that took.

        Raises TimeoutError after CATCH_UP_S. The start of copying is not measured: a broker needs long for the first pages of
        a new log's indexes.
        """
        began = caught_up_since = time.monotonic()
        seen: set[Place] = set()
        while time.monotonic() < began + CATCH_UP_S:
            found = [arrival for arrival in self.read(until_s=time.monotonic() + 0.1) if arrival[0] in self.places]
            if any(came - sent >= FRESH_MS for _, sent, came in found):
                caught_up_since = time.monotonic()
                seen.clear()
            seen.update(place for place, _, _ in found)
            if time.monotonic() - caught_up_since >= CAUGHT_UP_S and seen == self.places:
                return time.monotonic() - began
        silent = sorted(self.places - seen)
        raise TimeoutError(
            f"{len(silent)} of {len(self.places)} partitions had no fresh record after {CATCH_UP_S:.0f} s: {silent[:3]}"
        )

    def take(self, seconds: float, *, during: Callable[[], None] = lambda: None) -> Latencies:
        """Measure the records sent within ``seconds``; ``during`` is called once a second."""
        began_ms = time.time() * 1000
        until_s, found = time.monotonic() + seconds, []
        while (now := time.monotonic()) < until_s:
            found += self.read(until_s=min(until_s, now + 1.0))
            during()
        ended_ms = time.time() * 1000
        found += self.read(until_s=time.monotonic() + LATE_S)
        return summarize(found, places=self.places, began_ms=began_ms, ended_ms=ended_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latencies, gaps and rate of the records that were sent within a span of time, as a reader saw them."""

    p50_ms: float
    p99_ms: float
    worst_ms: float
    gaps_s: Mapping[Place, float]  # longest time in which a place received nothing, between beginning and end of the take
    records_per_s: float
    counts: Mapping[Place, int]
    worst: tuple[str, ...]  # lines about the records with the longest delays

    @property
    def gap_s(self) -> float:
        """Return the longest gap of all places."""
        return max(self.gaps_s.values())


def summarize(found: Sequence[Arrival], *, places: frozenset[Place], began_ms: float, ended_ms: float) -> Latencies:
    """Return the figures of the records sent in ``[began_ms, ended_ms)``; raise RuntimeError if none has arrived.

    A place that was silent all the time has all of it as gap.
    """
    found = [arrival for arrival in found if arrival[0] in places]
    sent = [arrival for arrival in found if began_ms <= arrival[1] < ended_ms]
    if not sent:
        raise RuntimeError("No record of the measured time arrived.")
    delays = sorted(came - sent_ms for _, sent_ms, came in sent)
    worst = sorted(sent, key=lambda arrival: arrival[1] - arrival[2])
    return Latencies(
        p50_ms=delays[len(delays) // 2],
        p99_ms=delays[len(delays) * 99 // 100],
        worst_ms=delays[-1],
        gaps_s=_gaps_s(found, places=places, began_ms=began_ms, ended_ms=ended_ms),
        records_per_s=len(sent) / (ended_ms - began_ms) * 1000,
        counts=Counter(place for place, _, _ in sent),
        worst=tuple(
            f"{topic}-{partition}: sent after {(sent_ms - began_ms) / 1000:7.3f} s, delay {came - sent_ms:8.1f} ms"
            for (topic, partition), sent_ms, came in islice(worst, WORST)
        ),
    )


def _gaps_s(found: Sequence[Arrival], *, places: frozenset[Place], began_ms: float, ended_ms: float) -> dict[Place, float]:
    last = dict.fromkeys(places, began_ms)
    longest = dict.fromkeys(places, 0.0)
    for place, _, came in sorted(found, key=itemgetter(2)):
        if began_ms <= came < ended_ms:
            longest[place] = max(longest[place], came - last[place])
            last[place] = came
    return {place: max(longest[place], ended_ms - last[place]) / 1000 for place in places}
