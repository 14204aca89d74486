"""The Fetch request of a consumer, and a response read in place: record batches stay where the socket put them.

Versions 12 (topic names) and 13 (topic ids, KIP-516: a topic created again under the same name is refused); both are
flexible and otherwise alike. No fetch session: each request names all its partitions. ``isolation_level`` 1 makes the broker
stop at the last stable offset and list the aborted transactions (KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from linkengine.kafka.wire import (
    NO_TAGS,
    Bytes,
    Reader,
    answer_of,
    compact_string,
    request_frame,
    skip_response_header,
    uvarint,
)

API_KEY = 1
BY_NAME, BY_ID = 12, 13
READ_COMMITTED = 1

_HEAD = struct.Struct(">iiiibii")  # replica id, max wait, min bytes, max bytes, isolation level, session id, session epoch
_PARTITION = struct.Struct(">iiqiqiB")  # index, leader epoch, offset, last fetched epoch, log start, max bytes, no tags
_PARTITION_ANSWER = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start
_ABORTED = struct.Struct(">qqB")  # producer id, first offset, no tags
_TOP = struct.Struct(">ihi")  # throttle time, error, session id
_CONSUMER = -1
_TAIL = b"\x01\x01" + NO_TAGS  # no forgotten topics, no rack


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """Where to read one partition."""

    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much a response may hold and how long the broker may wait for the first byte."""

    max_bytes: int
    max_wait_ms: int
    min_bytes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """One partition's share of a response; ``records`` is a slice of the receive buffer."""

    topic: bytes  # topic id, or the name where ids are not spoken
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset)
    records: memoryview


def encode_fetch(
    positions: Mapping[bytes, Sequence[FetchPosition]], *, version: int, correlation_id: int, limits: FetchLimits
) -> list[Bytes]:
    """Answer the frame; topics are keyed by their 16-byte id (version 13) or by name in UTF-8 (version 12)."""
    head = _HEAD.pack(_CONSUMER, limits.max_wait_ms, limits.min_bytes, limits.max_bytes, READ_COMMITTED, 0, -1)
    body = bytearray(head + uvarint(len(positions) + 1))
    for topic, wanted in positions.items():
        body += topic if version >= BY_ID else compact_string(topic.decode())
        body += uvarint(len(wanted) + 1)
        for one in wanted:
            body += _PARTITION.pack(one.partition, one.leader_epoch, one.offset, -1, -1, one.max_bytes, 0)
        body += NO_TAGS
    body += _TAIL
    return request_frame(API_KEY, version, correlation_id=correlation_id, body=[body, NO_TAGS])


def decode_fetch(body: memoryview, *, version: int) -> tuple[int, list[FetchedPartition]]:
    """Answer (top-level error, partitions) of a response whose correlation id has been taken off."""
    with answer_of("Fetch"):
        reader = Reader(body)
        skip_response_header(reader)
        _, error, _ = reader.take(_TOP)
        return error, list(_partitions(reader, version))


def _partitions(reader: Reader, version: int) -> Iterator[FetchedPartition]:
    for _ in range(reader.compact_length()):
        topic = _topic(reader, version)
        for _ in range(reader.compact_length()):
            yield _partition(reader, topic)
        reader.tags()


def _topic(reader: Reader, version: int) -> bytes:
    if version < BY_ID:
        return bytes(reader.compact_bytes() or b"")
    reader.skip(16)
    return bytes(reader.data[reader.at - 16 : reader.at])


def _partition(reader: Reader, topic: bytes) -> FetchedPartition:
    partition, error, high_watermark, last_stable_offset, log_start = reader.take(_PARTITION_ANSWER)
    aborted = tuple(_aborted(reader) for _ in range(reader.compact_length()))
    reader.int32()  # preferred read replica: only with a rack
    records = reader.compact_bytes()
    reader.tags()
    return FetchedPartition(
        topic=topic,
        partition=partition,
        error=error,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start=log_start,
        aborted=aborted,
        records=memoryview(b"") if records is None else records,
    )


def _aborted(reader: Reader) -> tuple[int, int]:
    producer_id, first_offset, _ = reader.take(_ABORTED)
    return producer_id, first_offset
