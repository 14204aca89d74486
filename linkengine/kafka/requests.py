"""The requests of the data path and their responses, built and read in place: Fetch, Produce, WriteTxnMarkers."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from linkengine.kafka.protocol import (
    NO_TAGS,
    Bytes,
    Reader,
    compact_string,
    decoding_response,
    request_frame,
    skip_response_header,
    uvarint,
)

# --- Fetch ---------------------------------------------------------------------------------------------------------------
# The consumer's request. Record batches of a response stay where the socket put them. Versions 12 (topic names) and 13 (topic
# ids, KIP-516: a recreated topic of the same name is refused); both are flexible and otherwise alike. Within a fetch session
# (KIP-227) a request contains only changes, and the response leaves out unchanged partitions. With ``isolation_level`` 1 the
# broker stops at the last stable offset and lists the aborted transactions (KIP-98).


FETCH_API_KEY = 1
FETCH_BY_NAME, FETCH_BY_ID = 12, 13
READ_COMMITTED = 1

_FETCH_HEAD = struct.Struct(
    ">iiiibii"
)  # replica id, max wait, min bytes, max bytes, isolation level, session id, session epoch
_FETCH_PARTITION = struct.Struct(">iiqiqiB")  # index, leader epoch, offset, last fetched epoch, log start, max bytes, no tags
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
    head = _FETCH_HEAD.pack(_CONSUMER, limits.max_wait_ms, limits.min_bytes, limits.max_bytes, READ_COMMITTED, *step)
    body = bytearray(head + uvarint(len(positions) + 1))
    for topic, wanted in positions.items():
        body += topic if version >= FETCH_BY_ID else compact_string(topic.decode())
        body += uvarint(len(wanted) + 1)
        for position in wanted:
            body += _FETCH_PARTITION.pack(
                position.partition, position.leader_epoch, position.offset, -1, -1, position.max_bytes, 0
            )
        body += NO_TAGS
    body += _forgotten(forgotten or {}, version) + _NO_RACK
    return request_frame(FETCH_API_KEY, version, correlation_id=correlation_id, body=[body, NO_TAGS])


def _forgotten(forgotten: Mapping[bytes, Sequence[int]], version: int) -> bytes:
    body = bytearray(uvarint(len(forgotten) + 1))
    for topic, partitions in forgotten.items():
        body += topic if version >= FETCH_BY_ID else compact_string(topic.decode())
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
            yield _fetched_partition(reader, topic)
        reader.tags()


def _topic(reader: Reader, version: int) -> bytes:
    if version < FETCH_BY_ID:
        return bytes(reader.compact_bytes() or b"")
    reader.skip(16)
    return bytes(reader.data[reader.at - 16 : reader.at])


def _fetched_partition(reader: Reader, topic: bytes) -> FetchedPartition:
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


# --- Produce -------------------------------------------------------------------------------------------------------------
# Built around batches that stay where they are. Versions 9 (topic names) and 13 (topic ids, KIP-516), flexible and otherwise
# alike in the fields that are read here. One batch per partition and request (required by KIP-98 for producers with sequences);
# acks = -1.


PRODUCE_API_KEY = 0
PRODUCE_BY_NAME, PRODUCE_BY_ID = 9, 13

_PRODUCE_HEAD = struct.Struct(">Bhi")  # no transactional id, acks, timeout
_INDEX = struct.Struct(">i")
_PRODUCED_PARTITION = struct.Struct(">ihqqq")  # index, error, base offset, log append time, log start
_SINGLE = struct.Struct(">BhiB16sBi")  # the usual request: head, a topic id, a partition
# the usual response: no tags, a topic, its id, a partition, its fields, no errors, throttle time, no tags
_SINGLE_RESPONSE = struct.Struct(">2s16sBihqqq4siB")
_RESPONSE_HEAD = 8  # size and correlation id
_ALL_IN_SYNC = -1
_NO_ERRORS = b"\x01\x00" + NO_TAGS  # no record errors, no message
_ONE_ELEMENT = 2  # the length of a compact array with a single element
_SINGLE_HEAD = NO_TAGS + bytes([_ONE_ELEMENT])
_SINGLE_NO_ERRORS = _NO_ERRORS + NO_TAGS  # and the topic ends
_END_TAGS = NO_TAGS * 3  # of the partition, the topic and the request


class ProducedPartition(NamedTuple):
    """The result of a batch. A tuple, for the hot path."""

    topic: bytes  # topic id, or the name with version 9
    partition: int
    error: int
    base_offset: int
    log_append_time: int
    message: str


def encode_produce(
    batches: Mapping[bytes, Sequence[tuple[int, Bytes]]], *, version: int, correlation_id: int, timeout_ms: int
) -> list[Bytes]:
    """Return the frame as slices for ``sendmsg``; ``batches`` holds (partition, batch) by topic id (13) or name (9)."""
    if len(batches) == 1 and version >= PRODUCE_BY_ID:
        [(topic, entries)] = batches.items()
        if len(entries) == 1:
            return _encode_single(topic, *entries[0], correlation_id=correlation_id, version=version, timeout_ms=timeout_ms)
    parts: list[Bytes] = []
    small = bytearray(_PRODUCE_HEAD.pack(0, _ALL_IN_SYNC, timeout_ms) + uvarint(len(batches) + 1))
    for topic, entries in batches.items():
        small += topic if version >= PRODUCE_BY_ID else compact_string(topic.decode())
        small += uvarint(len(entries) + 1)
        for partition, batch in entries:
            small += _INDEX.pack(partition) + uvarint(len(batch) + 1)
            parts += [small, batch]
            small = bytearray(NO_TAGS)
        small += NO_TAGS
    parts.append(small + NO_TAGS)
    return request_frame(PRODUCE_API_KEY, version, correlation_id=correlation_id, body=parts)


def _encode_single(
    topic: bytes, partition: int, batch: Bytes, *, version: int, correlation_id: int, timeout_ms: int
) -> list[Bytes]:
    """Return the frame for a batch, the most frequent request of a busy partition, packed in a single step."""
    body = _SINGLE.pack(0, _ALL_IN_SYNC, timeout_ms, _ONE_ELEMENT, topic, _ONE_ELEMENT, partition) + uvarint(len(batch) + 1)
    return request_frame(PRODUCE_API_KEY, version, correlation_id=correlation_id, body=[body, batch, _END_TAGS])


def decode_produce(body: memoryview, *, version: int) -> tuple[int, list[ProducedPartition]]:
    """Return (throttle time in ms, an entry per partition) of a response without its correlation id."""
    if len(body) == _SINGLE_RESPONSE.size and version >= PRODUCE_BY_ID:
        single = _decode_single(body)
        if single is not None:
            return single
    with decoding_response("Produce"):
        reader = Reader(body)
        skip_response_header(reader)
        found = []
        for _ in range(reader.compact_length()):
            topic = _topic(reader, version)
            for _ in range(reader.compact_length()):
                found.append(_produced_partition(reader, topic))  # noqa: PERF401 - twice as fast as a generator of a generator
            reader.tags()
        return reader.int32(), found


def low_water_mark(count: int) -> int:
    """Return the low-water mark in bytes for ``count`` successful responses; responses with errors reach it early."""
    return max(0, count - 1) * (_RESPONSE_HEAD + _SINGLE_RESPONSE.size) + 1


def _decode_single(body: memoryview) -> tuple[int, list[ProducedPartition]] | None:
    """Decode a response for a partition without errors; return None for any other response."""
    head, topic, topics, partition, error, base_offset, log_append_time, _, no_errors, throttle_ms, tags = (
        _SINGLE_RESPONSE.unpack(body)
    )
    if head != _SINGLE_HEAD or topics != _ONE_ELEMENT or no_errors != _SINGLE_NO_ERRORS or tags:
        return None
    return throttle_ms, [ProducedPartition(topic, partition, error, base_offset, log_append_time, "")]


def _produced_partition(reader: Reader, topic: bytes) -> ProducedPartition:
    partition, error, base_offset, log_append_time, _ = reader.take(_PRODUCED_PARTITION)
    if reader.data[reader.at : reader.at + len(_NO_ERRORS)] == _NO_ERRORS:
        reader.skip(len(_NO_ERRORS))
        return ProducedPartition(topic, partition, error, base_offset, log_append_time, "")
    reasons = [_record_error(reader) for _ in range(reader.compact_length())]
    message = reader.compact_text() or next(filter(None, reasons), "")
    reader.tags()
    return ProducedPartition(topic, partition, error, base_offset, log_append_time, message)


def _record_error(reader: Reader) -> str:
    reader.int32()  # index in the batch
    message = reader.compact_text() or ""
    reader.tags()
    return message


# --- WriteTxnMarkers -----------------------------------------------------------------------------------------------------
# Fills offsets with transaction markers: a control batch of 78 bytes each, invisible to consumers. Version 1 (flexible, topic
# names). A request may repeat the same marker, but its response has only the last error per producer id and partition. So the
# caller must check the log end afterwards (``encode_log_ends``, OffsetForLeaderEpoch version 4). That request uses the same
# connection, since brokers process the requests of a connection in order.


MARKERS_API_KEY = 27
MARKERS_VERSION = 1
LOG_END_API_KEY = 23
LOG_END_VERSION = 4

_MARKER = struct.Struct(">qhB")  # producer id, epoch, result
_LOG_END = struct.Struct(">iiiB")  # partition, current leader epoch, leader epoch, no tags
_LOG_END_RESPONSE = struct.Struct(">hiiq")  # error, partition, leader epoch, end offset
_ABORT = 0
_ONE_ELEMENT_LENGTH = uvarint(2)  # length of a compact array with a single element
_DEBUG_REPLICA = -2  # may see offsets beyond the high watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerFill:
    """``count`` markers for a partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    count: int


def encode_markers(fills: Sequence[MarkerFill], *, correlation_id: int) -> list[Bytes]:
    """Return the frame of a request that writes all ``fills``."""
    total = sum(fill.count for fill in fills)
    body: list[Bytes] = [uvarint(total + 1), *(_marker(fill) * fill.count for fill in fills), NO_TAGS]
    return request_frame(MARKERS_API_KEY, MARKERS_VERSION, correlation_id=correlation_id, body=body)


def decode_markers(body: memoryview) -> dict[tuple[int, str, int], int]:
    """Return the error per (producer id, topic, partition)."""
    errors: dict[tuple[int, str, int], int] = {}
    with decoding_response("WriteTxnMarkers"):
        reader = Reader(body)
        skip_response_header(reader)
        for _ in range(reader.compact_length()):
            producer_id = reader.int64()
            for _ in range(reader.compact_length()):
                _topic_errors(reader, producer_id, errors)
            reader.tags()
    return errors


def encode_log_ends(partitions: Sequence[tuple[str, int, int]], *, correlation_id: int) -> list[Bytes]:
    """Return the frame of a request for the log ends of (topic, partition, current leader epoch)."""
    topics: dict[str, list[bytes]] = {}
    for topic, partition, epoch in partitions:
        topics.setdefault(topic, []).append(_LOG_END.pack(partition, epoch, epoch, 0))
    body = bytearray(_INT32.pack(_DEBUG_REPLICA) + uvarint(len(topics) + 1))
    for topic, entries in topics.items():
        body += compact_string(topic) + uvarint(len(entries) + 1) + b"".join(entries) + NO_TAGS
    return request_frame(LOG_END_API_KEY, LOG_END_VERSION, correlation_id=correlation_id, body=[body, NO_TAGS])


def decode_log_ends(body: memoryview) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (error, log end offset) per (topic, partition)."""
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    with decoding_response("OffsetForLeaderEpoch"):
        reader = Reader(body)
        skip_response_header(reader)
        reader.int32()  # throttle time
        for _ in range(reader.compact_length()):
            topic = reader.compact_text() or ""
            for _ in range(reader.compact_length()):
                error, partition, _, end = reader.take(_LOG_END_RESPONSE)
                reader.tags()
                ends[topic, partition] = (error, end)
            reader.tags()
    return ends


def _marker(fill: MarkerFill) -> bytes:
    topic = compact_string(fill.topic) + _ONE_ELEMENT_LENGTH + _INT32.pack(fill.partition) + NO_TAGS
    head = _MARKER.pack(fill.producer_id, fill.producer_epoch, _ABORT)
    return head + _ONE_ELEMENT_LENGTH + topic + _INT32.pack(fill.coordinator_epoch) + NO_TAGS


def _topic_errors(reader: Reader, producer_id: int, errors: dict[tuple[int, str, int], int]) -> None:
    topic = reader.compact_text() or ""
    for _ in range(reader.compact_length()):
        partition, error = reader.int32(), reader.int16()
        reader.tags()
        errors[producer_id, topic, partition] = error
    reader.tags()
