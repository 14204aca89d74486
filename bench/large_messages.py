"""Memory that a copy task needs for large messages (100 MB), in three variants.

Unchanged; with LogAppendTime, which the broker sets in the batch header; with LogAppendTime and compressed, so that the first
bytes are decompressed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from confluent_kafka import Producer

from bench.figures import Figure
from bench.gap_filling import Running
from bench.load import create_topic, delete_topic
from bench.measure import end_offsets, watch_copy
from bench.report import MOST_MEMORY_MB
from devcluster.kafka import KafkaCluster

NAME = "giants"
MESSAGE_BYTES, MESSAGES = 100_000_000, 6
_LARGEST = 104_000_000
_SAMPLE_EVERY_S = 0.02  # a message is copied in some tenths of a second
_TIMEOUT_S = 60.0
_STAMPED = {"message.timestamp.type": "LogAppendTime"}
_WAYS: tuple[tuple[str, dict[str, str], str, float], ...] = (
    ("as they are", {}, "none", MOST_MEMORY_MB),
    ("with LogAppendTime", _STAMPED, "none", MOST_MEMORY_MB),
    ("with LogAppendTime, lz4 to the half", _STAMPED, "lz4", MOST_MEMORY_MB),
)

Start = Callable[[str], AbstractContextManager[Running]]


def measure_large_messages(source: KafkaCluster, destination: KafkaCluster, *, start: Start) -> list[Figure]:
    """Copy a few large messages in each variant; ``start`` starts the copy of a topic with a single partition."""
    found = []
    for number, (way, configs, codec, goal) in enumerate(_WAYS):
        topic = f"bench-giants-{number}"
        create_topic(source, topic, partitions=1, configs={"max.message.bytes": str(_LARGEST), **configs})
        _write(source, topic, codec=codec)
        with start(topic) as running:
            pid = running.pid
            copy = watch_copy(
                destination, topic, partitions=1, end=MESSAGES, pid=partial(int, pid), memory_every_s=_SAMPLE_EVERY_S
            )
        if end_offsets(destination, topic, partitions=1) != [MESSAGES]:
            raise RuntimeError(f"The mirror of {topic} does not end where its source ends")
        for cluster in (source, destination):
            delete_topic(cluster, topic)
        what = f"peak of one copy task, messages of {MESSAGE_BYTES // 1_000_000} MB {way}"
        found.append(Figure(what=what, unit="MB", found=copy.peak_mb, goal=goal, most=True))
    return found


def _write(cluster: KafkaCluster, topic: str, *, codec: str) -> None:
    megabyte = b"".join(secrets.token_bytes(50_000) + bytes(50_000) for _ in range(10))
    value = megabyte * (MESSAGE_BYTES // len(megabyte))
    producer = Producer({**cluster.client(), "message.max.bytes": _LARGEST, "compression.type": codec})
    for _ in range(MESSAGES):
        producer.produce(topic, value, partition=0)
        if producer.flush(_TIMEOUT_S):
            raise RuntimeError(f"Filling {topic} took longer than {_TIMEOUT_S:.0f} s")
