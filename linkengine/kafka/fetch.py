"""The consumer's Fetch request, and its response read in place: record batches stay where the socket put them.

Versions 12 (topic names) and 13 (topic ids, KIP-516: a recreated topic of the same name is refused); both are flexible and
otherwise alike. Within a fetch session (KIP-227) a request contains only changes, and the response leaves out unchanged
partitions. With ``isolation_level`` 1 the broker stops at the last stable offset and lists the aborted transactions (KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from linkengine.kafka.wire import (
    NO_TAGS,
    Bytes,
    Reader,
    compact_string,
    decoding_response,
    request_frame,
    skip_response_header,
    uvarint,
)

API_KEY = 1
BY_NAME, BY_ID = 12, 13
READ_COMMITTED = 1

_HEAD = struct.Struct(">iiiibii")  # replica id, max wait, min bytes, max bytes, isolation level, session id, session epoch
_PARTITION = struct.Struct(">iiqiqiB")  # index, leader epoch, offset, last fetched epoch, log start, max bytes, no tags
_PARTITION_RESPONSE = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start
_ABORTED = struct.Struct(">qqB")  # producer id, first offset, no tags
_TOP = struct.Struct(">ihi")  # throttle time, error, session id
_CONSUMER = -1
_INT32 = struct.Struct(">i")
_NO_RACK = b"\x01"
_NO_RECORDS = memoryview(b"")


class FetchPosition(NamedTuple):
    """The position to read a partition from. A tuple, since it is created on the hot path for each range."""

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


class SessionStep(NamedTuple):
    """The position of a request in a fetch session (KIP-227)."""

    session: int = 0
    epoch: int = -1  # 0 creates a session, -1 uses none


NO_SESSION = SessionStep()
NEW_SESSION = SessionStep(0, 0)


class FetchResponse(NamedTuple):
    """A whole response."""

    error: int
    throttle_ms: int
    session: int  # 0: none was created, or it is closed
    partitions: list[FetchedPartition]


class FetchedPartition(NamedTuple):
    """The part of a response for a partition; ``records`` is a slice of the receive buffer. A tuple, for the hot path."""

    topic: bytes  # topic id, or the name with version 12
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset)
    records: memoryview
    preferred_replica: int = -1  # a follower to read from instead (KIP-392); this response then holds no records


def encode_fetch(
    positions: Mapping[bytes, Sequence[FetchPosition]],
    *,
    version: int,
    correlation_id: int,
    limits: FetchLimits,
    step: SessionStep = NO_SESSION,
    forgotten: Mapping[bytes, Sequence[int]] | None = None,
) -> list[Bytes]:
    """Return the frame; topics are keyed by their 16-byte id (version 13) or by name in UTF-8 (version 12).

    ``forgotten`` are partitions by topic to remove from the session; none of them may be in ``positions``.
    """
    head = _HEAD.pack(_CONSUMER, limits.max_wait_ms, limits.min_bytes, limits.max_bytes, READ_COMMITTED, *step)
    body = bytearray(head + uvarint(len(positions) + 1))
    for topic, wanted in positions.items():
        body += topic if version >= BY_ID else compact_string(topic.decode())
        body += uvarint(len(wanted) + 1)
        for position in wanted:
            body += _PARTITION.pack(position.partition, position.leader_epoch, position.offset, -1, -1, position.max_bytes, 0)
        body += NO_TAGS
    body += _forgotten(forgotten or {}, version) + _NO_RACK
    return request_frame(API_KEY, version, correlation_id=correlation_id, body=[body, NO_TAGS])


def _forgotten(forgotten: Mapping[bytes, Sequence[int]], version: int) -> bytes:
    body = bytearray(uvarint(len(forgotten) + 1))
    for topic, partitions in forgotten.items():
        body += topic if version >= BY_ID else compact_string(topic.decode())
        body += uvarint(len(partitions) + 1) + b"".join(map(_INT32.pack, partitions)) + NO_TAGS
    return bytes(body)


def decode_fetch(body: memoryview, *, version: int) -> FetchResponse:
    """Decode a response without its correlation id.

    Raises MalformedResponseError also for a response with a partition twice. No checksum covers a partition's number: if it
    was changed on the way, its batches, which are intact, would be taken for those of the other partition.
    """
    with decoding_response("Fetch"):
        reader = Reader(body)
        skip_response_header(reader)
        throttle_ms, error, session = reader.take(_TOP)
        partitions = list(_partitions(reader, version))
        if len({(partition.topic, partition.partition) for partition in partitions}) != len(partitions):
            raise ValueError("a partition is there twice")
        return FetchResponse(error, throttle_ms, session, partitions)


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
    partition, error, high_watermark, last_stable_offset, log_start = reader.take(_PARTITION_RESPONSE)
    count = reader.compact_length()
    aborted = tuple([_aborted(reader) for _ in range(count)]) if count > 0 else ()
    (preferred_replica,) = reader.take(_INT32)
    records = reader.compact_bytes()
    reader.tags()
    return FetchedPartition(
        topic,
        partition,
        error,
        high_watermark,
        last_stable_offset,
        log_start,
        aborted,
        _NO_RECORDS if records is None else records,
        preferred_replica,
    )


def _aborted(reader: Reader) -> tuple[int, int]:
    producer_id, first_offset, _ = reader.take(_ABORTED)
    return producer_id, first_offset
