"""Read the newest record of a mirror partition as an application would (read-committed) and compare it with the source's.

Joins no group and commits nothing, so it leaves no trace on either cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.gates import CanaryRead
from linkengine.kafka.committed import (
    READ_TIMEOUT_S,
    ReadCheck,
    ReadRefusedError,
    TopicConsumer,
    committed_consumer,
    headers_of,
    offset_of,
)
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.settings import make_client

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CheckedTopic:
    """A topic and the check that precedes each read of it."""

    address: ClusterAddress
    name: str
    check: ReadCheck


def read_canaries(
    *, source: CheckedTopic, mirror: CheckedTopic, partitions: Iterable[int], compacted: bool
) -> list[CanaryRead]:
    """Read the newest record of each of these partitions of the mirror and compare it with the source's at the same offset.

    ``compacted``: the source or the mirror is compacted, so the source may have removed a tombstone since.
    """
    check_reachable(source.address)
    check_reachable(mirror.address)
    with committed_consumer(mirror.address) as mirror_consumer, committed_consumer(source.address) as source_consumer:
        copy = TopicConsumer(mirror_consumer, mirror.name, check=mirror.check)
        original = TopicConsumer(source_consumer, source.name, check=source.check)
        return [_compare(copy, original, partition, compacted=compacted) for partition in partitions]


def write_canaries(address: ClusterAddress, topic: str, *, partitions: int) -> list[CanaryRead]:
    """Write a record to every partition with ``acks=all``, and read it back."""
    check_reachable(address)
    mark = f"drill {time.time_ns()}".encode()
    refused: dict[int, str] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused[message.partition() or 0] = f"a record could not be written: {error.str()}"

    producer = make_client(Producer, address, {"acks": "all", "delivery.timeout.ms": int(READ_TIMEOUT_S * 1000)})
    for partition in range(partitions):
        producer.produce(topic, key=mark, value=mark, partition=partition, on_delivery=delivered)
    if producer.flush(2 * READ_TIMEOUT_S):
        raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, f"Writing to {topic} took longer than {2 * READ_TIMEOUT_S:.0f} s.")
    with committed_consumer(address) as consumer:
        reader = TopicConsumer(consumer, topic)
        return [_read_back(reader, partition, mark, refused.get(partition, "")) for partition in range(partitions)]


def _read_back(reader: TopicConsumer, partition: int, mark: bytes, refused: str) -> CanaryRead:
    if refused:
        return CanaryRead(partition=partition, offset=None, problem=refused)
    newest = reader.newest(partition)
    problem = "" if newest is not None and newest.value() == mark else "the record just written is not the newest one"
    return CanaryRead(partition=partition, offset=newest.offset() if newest else None, problem=problem)


def _compare(mirror: TopicConsumer, source: TopicConsumer, partition: int, *, compacted: bool) -> CanaryRead:
    try:
        mirrored = mirror.newest(partition)
        if mirrored is None:
            return CanaryRead(partition=partition, offset=None)
        offset = offset_of(mirrored)
        original = next(source.read(partition, start=offset, end=offset + 1), None)
        if original is not None and original.offset() == offset:
            return CanaryRead(partition=partition, offset=offset, problem=_difference(mirrored, original))
        gone = _why_gone(mirrored, log_start=source.ends(partition)[0], compacted=compacted)
    except KafkaException as error:
        return CanaryRead(partition=partition, offset=None, problem=f"it could not be read: {error.args[0]}")
    except ReadRefusedError as refused:
        return CanaryRead(partition=partition, offset=None, problem=str(refused))
    _log.info("canary.not_at_the_source", topic=mirrored.topic(), partition=partition, offset=offset, rightly=gone or "no")
    return CanaryRead(partition=partition, offset=offset, gone=gone, problem="" if gone else _missing(offset))


def _why_gone(mirrored: Message, *, log_start: int, compacted: bool) -> str:
    """Return why the source has removed a record that the mirror still holds; "" if it must not have removed it."""
    if offset_of(mirrored) < log_start:
        return "deleted at the source since"
    removed_by_cleaner = mirrored.value() is None or mirrored.key() is None  # other records stay while they are the newest
    return "compacted at the source since" if compacted and removed_by_cleaner else ""


def _missing(offset: int) -> str:
    return f"the source has no record at offset {offset}"


def _difference(mirrored: Message, original: Message) -> str:
    for name, shown in _SHOWN.items():
        if shown(mirrored) != shown(original):
            return f"the record at offset {mirrored.offset()} has another {name} than the source's"
    return ""


# The timestamp type is not compared: a record with LogAppendTime at the source has CreateTime on the mirror.
_SHOWN: Mapping[str, Callable[[Message], object]] = {
    "key": Message.key,
    "value": Message.value,
    "headers": headers_of,
    "timestamp": lambda message: message.timestamp()[1],
}
