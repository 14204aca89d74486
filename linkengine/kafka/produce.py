"""The Produce request, built around batches that stay where they are, and its response.

Versions 9 (topic names) and 13 (topic ids, KIP-516); flexible and otherwise alike as far as they are read here. A batch per
partition and request (required by KIP-98 for producers with sequences); acks = -1.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
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

API_KEY = 0
BY_NAME, BY_ID = 9, 13

_HEAD = struct.Struct(">Bhi")  # no transactional id, acks, timeout
_INDEX = struct.Struct(">i")
_PARTITION_RESPONSE = struct.Struct(">ihqqq")  # index, error, base offset, log append time, log start
_SINGLE = struct.Struct(">BhiB16sBi")  # the usual request: head, a topic id, a partition
# the usual response: no tags, a topic, its id, a partition, its fields, no errors, throttle time, no tags
_SINGLE_RESPONSE = struct.Struct(">2s16sBihqqq4siB")
_RESPONSE_HEAD = 8  # size and correlation id
_ALL_IN_SYNC = -1
_NO_ERRORS = b"\x01\x00" + NO_TAGS  # no record errors, no message
_ONE = 2  # the length of a compact array with a single element
_SINGLE_HEAD = NO_TAGS + bytes([_ONE])
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
    if len(batches) == 1 and version >= BY_ID:
        [(topic, entries)] = batches.items()
        if len(entries) == 1:
            return _encode_single(topic, *entries[0], correlation_id=correlation_id, version=version, timeout_ms=timeout_ms)
    parts: list[Bytes] = []
    small = bytearray(_HEAD.pack(0, _ALL_IN_SYNC, timeout_ms) + uvarint(len(batches) + 1))
    for topic, entries in batches.items():
        small += topic if version >= BY_ID else compact_string(topic.decode())
        small += uvarint(len(entries) + 1)
        for partition, batch in entries:
            small += _INDEX.pack(partition) + uvarint(len(batch) + 1)
            parts += [small, batch]
            small = bytearray(NO_TAGS)
        small += NO_TAGS
    parts.append(small + NO_TAGS)
    return request_frame(API_KEY, version, correlation_id=correlation_id, body=parts)


def _encode_single(
    topic: bytes, partition: int, batch: Bytes, *, version: int, correlation_id: int, timeout_ms: int
) -> list[Bytes]:
    """Return the frame for a batch, the most frequent request of a busy partition, packed in a single step."""
    body = _SINGLE.pack(0, _ALL_IN_SYNC, timeout_ms, _ONE, topic, _ONE, partition) + uvarint(len(batch) + 1)
    return request_frame(API_KEY, version, correlation_id=correlation_id, body=[body, batch, _END_TAGS])


def decode_produce(body: memoryview, *, version: int) -> tuple[int, list[ProducedPartition]]:
    """Return (throttle time in ms, an entry per partition) of a response without its correlation id."""
    if len(body) == _SINGLE_RESPONSE.size and version >= BY_ID:
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
                found.append(_partition(reader, topic))  # noqa: PERF401 - twice as fast as a generator of a generator
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
    if head != _SINGLE_HEAD or topics != _ONE or no_errors != _SINGLE_NO_ERRORS or tags:
        return None
    return throttle_ms, [ProducedPartition(topic, partition, error, base_offset, log_append_time, "")]


def _topic(reader: Reader, version: int) -> bytes:
    if version < BY_ID:
        return bytes(reader.compact_bytes() or b"")
    reader.skip(16)
    return bytes(reader.data[reader.at - 16 : reader.at])


def _partition(reader: Reader, topic: bytes) -> ProducedPartition:
    partition, error, base_offset, log_append_time, _ = reader.take(_PARTITION_RESPONSE)
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
