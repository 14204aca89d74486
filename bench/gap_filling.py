"""Rate at which offsets without a record are filled: in the middle of a log by markers, at its head by dense batches.

The gap in the middle is an aborted transaction, so any producer may write such a source log.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from confluent_kafka import Producer

from bench.figures import Figure
from bench.load import create_topic, delete_topic
from bench.measure import end_offsets, watch_copy
from devcluster.kafka import KafkaCluster
from linkengine.copyjob.destination.head_seed import seed_head
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.plans import PartitionAssignment, producer_id_for

NAME = "holes"
GAP, HEAD = 300_000, 60_000_000  # offsets
LEAST_FILLED_PER_S, LEAST_SEEDED_PER_S = 25_000, 4_000_000
_LINK, _MIRROR = 1, 1  # of the seeded partition; no copy has these numbers
_TIMEOUT_S = 120.0


class Running(Protocol):
    """A running copy."""

    @property
    def pid(self) -> int: ...


Start = Callable[[str], AbstractContextManager[Running]]


def measure_gap_filling(source: KafkaCluster, destination: KafkaCluster, *, start: Start) -> list[Figure]:
    """Fill a gap and seed a head; ``start`` starts the copy of a topic with a single partition."""
    return [_filled(source, destination, start), _seeded(destination)]


def _filled(source: KafkaCluster, destination: KafkaCluster, start: Start) -> Figure:
    topic = "bench-hole"
    create_topic(source, topic, partitions=1)
    _write_gap(source, topic)
    (end,) = end_offsets(source, topic, partitions=1)
    with start(topic) as running:
        copy = watch_copy(destination, topic, partitions=1, end=end, pid=lambda: running.pid)
    for cluster in (source, destination):
        delete_topic(cluster, topic)
    what = f"filling a hole of {GAP:,} offsets in the middle of a log"
    return Figure(what=what, unit="offsets/s", found=copy.share * end / copy.seconds, goal=LEAST_FILLED_PER_S)


def _write_gap(source: KafkaCluster, topic: str) -> None:
    settings = {**source.client(), "transactional.id": f"bench-{uuid.uuid4()}", "linger.ms": 20}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(GAP):
        while True:
            try:
                producer.produce(topic, value=b"%d" % number, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(_TIMEOUT_S):
        raise RuntimeError(f"Filling {topic} took longer than {_TIMEOUT_S:.0f} s")
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, value=b"after the hole", partition=0)
    producer.commit_transaction(30)


def _seeded(destination: KafkaCluster) -> Figure:
    topic = "bench-head"
    create_topic(destination, topic, partitions=1)
    assignment = PartitionAssignment(
        mirror_id="bench-head", partition=0, source_topic=topic, mirror_topic=topic, source_topic_id="",
        producer_id=producer_id_for(_LINK, _MIRROR, 0),
    )  # fmt: skip
    address = address_from_properties(destination.client_properties("link"))
    seed_head(address, assignment, start=1)  # warm up connections and code
    began = time.monotonic()
    seed_head(address, assignment, start=HEAD)
    seconds = time.monotonic() - began
    if end_offsets(destination, topic, partitions=1) != [HEAD]:
        raise RuntimeError(f"{topic} does not begin at {HEAD}")
    delete_topic(destination, topic)
    return Figure(what=f"seeding a head of {HEAD:,} offsets", unit="offsets/s", found=HEAD / seconds, goal=LEAST_SEEDED_PER_S)
