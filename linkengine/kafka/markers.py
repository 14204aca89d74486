"""WriteTxnMarkers: fills offsets with transaction markers, a control batch of 78 bytes each, invisible to consumers.

Version 1 (flexible, topic names). A request may repeat the same marker, but its response has only the last error per producer
id and partition. So the caller must check the log end afterwards (``encode_log_ends``, OffsetForLeaderEpoch version 4). That
request uses the same connection, since brokers process the requests of a connection in order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

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

API_KEY = 27
VERSION = 1
LOG_END_API_KEY = 23
LOG_END_VERSION = 4

_MARKER = struct.Struct(">qhB")  # producer id, epoch, result
_INT32 = struct.Struct(">i")
_LOG_END = struct.Struct(">iiiB")  # partition, current leader epoch, leader epoch, no tags
_LOG_END_RESPONSE = struct.Struct(">hiiq")  # error, partition, leader epoch, end offset
_ABORT = 0
_ONE = uvarint(2)  # length of a compact array with a single element
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
    return request_frame(API_KEY, VERSION, correlation_id=correlation_id, body=body)


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
    topic = compact_string(fill.topic) + _ONE + _INT32.pack(fill.partition) + NO_TAGS
    head = _MARKER.pack(fill.producer_id, fill.producer_epoch, _ABORT)
    return head + _ONE + topic + _INT32.pack(fill.coordinator_epoch) + NO_TAGS


def _topic_errors(reader: Reader, producer_id: int, errors: dict[tuple[int, str, int], int]) -> None:
    topic = reader.compact_text() or ""
    for _ in range(reader.compact_length()):
        partition, error = reader.int32(), reader.int16()
        reader.tags()
        errors[producer_id, topic, partition] = error
    reader.tags()
