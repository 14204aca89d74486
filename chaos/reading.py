"""Reads topics as any client does: all records with everything a client sees of them. confluent-kafka only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 3.0


class Record(NamedTuple):
    """A record with its partition and offset."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: tuple[int, int]
    headers: tuple[tuple[str, bytes | None], ...]


def read_topic(client: Mapping[str, str], topic: str, *, partitions: int, committed: bool) -> list[Record]:
    """Return a topic's records from its start to its present end, by partition and offset."""
    settings = {
        "group.id": "judge",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "check.crcs": True,
    }
    consumer = Consumer({**client, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    records: list[Record] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while len(at_end) < partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Topic {topic} could not be read in {TIMEOUT_S:.0f} s.")
            for message in consumer.consume(5_000, 1.0):
                error = message.error()
                if error is None:
                    records.append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition() or 0)
    finally:
        consumer.close()
    return sorted(records, key=lambda record: record[:2])


class Ends:
    """The ends of the partitions of some topics, read repeatedly with the same admin client."""

    def __init__(self, client: Mapping[str, str], topics: Mapping[str, int], *, stable: bool = False) -> None:
        """Prepare the client. ``stable``: the last stable offset, up to which committed readers read."""
        self._admin = AdminClient({**client})
        self._places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
        self._level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED

    def available(self) -> dict[tuple[str, int], int]:
        """Return the ends of those partitions whose leaders respond, possibly of none."""
        latest = {place: OffsetSpec.latest() for place in self._places}  # type: ignore[no-untyped-call]
        futures = self._admin.list_offsets(latest, isolation_level=self._level, request_timeout=REQUEST_TIMEOUT_S)
        found: dict[tuple[str, int], int] = {}
        for place, future in futures.items():
            with suppress(KafkaException):
                offset = future.result().offset
                if offset >= 0:  # a new leader returns -1 at first
                    found[place.topic, place.partition] = offset
        if len(found) < len(self._places):
            self._refresh_leaders()
        return found

    def _refresh_leaders(self) -> None:
        """Request all metadata: after NOT_LEADER_OR_FOLLOWER the client would use the former leader for minutes."""
        with suppress(KafkaException):
            self._admin.list_topics(timeout=REQUEST_TIMEOUT_S)

    def all(self) -> dict[tuple[str, int], int] | None:
        """Return the ends of all partitions, None if any is missing."""
        found = self.available()
        return found if len(found) == len(self._places) else None


def _record(message: Message) -> Record:
    return Record(
        message.partition() or 0,
        message.offset() or 0,
        message.key(),
        message.value(),
        message.timestamp(),
        tuple(message.headers() or ()),  # type: ignore[arg-type]  # a list, contrary to its type hints
    )
