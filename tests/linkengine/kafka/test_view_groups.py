"""Assignments that group members wrote, which no broker validates: each is decoded or counts as empty, and soon."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkengine.domain.plans import TopicPartition
from linkengine.kafka.view_groups import _assigned
from tests.effort import tries

SOON_S = 5.0  # CPU time; an endless loop takes hours, a quadratic one minutes
ENDLESS = bytes.fromhex(
    "0000 7fffffff 0000 00000000 fffa"
)  # a second topic whose name has -6 bytes: the position returns to 12
NUMBERS = [struct.pack(">h", size) for size in (-6, -1, -(1 << 15), 32_767)] + [
    struct.pack(">i", size) for size in (-10, -1, -(1 << 31), (1 << 31) - 1, 1 << 29)
]


def encode(topics: Mapping[str, Sequence[int]] | Sequence[tuple[str, Sequence[int]]], *, version: int = 3) -> bytes:
    """Return a ConsumerProtocolAssignment as Kafka's clients write it."""
    entries = list(topics.items()) if isinstance(topics, Mapping) else list(topics)
    data = struct.pack(">hi", version, len(entries))
    for topic, partitions in entries:
        name = topic.encode()
        data += struct.pack(f">h{len(name)}si{len(partitions)}i", len(name), name, len(partitions), *partitions)
    return data + struct.pack(">i", -1)  # no user data


def decoded_soon(data: bytes) -> tuple[TopicPartition, ...]:
    began = time.thread_time()  # whatever else the machine does
    found = _assigned(data)
    assert time.thread_time() - began < SOON_S
    return found


@given(
    st.dictionaries(st.text(max_size=40), st.lists(st.integers(0, (1 << 31) - 1), max_size=9), max_size=6), st.integers(0, 3)
)
def test_an_assignment_is_decoded_to_its_partitions(topics: dict[str, list[int]], version: int) -> None:
    expected = sorted((topic, number) for topic, numbers in topics.items() for number in numbers)

    assert list(_assigned(encode(topics, version=version))) == expected


@pytest.mark.parametrize(
    "data",
    [
        ENDLESS,
        b"",
        b"\0",
        struct.pack(">hi", 0, -1),
        struct.pack(">hi", 0, (1 << 31) - 1),
        struct.pack(">hihi", 0, 1, 0, -3),
        struct.pack(">hihi", 0, 1, 0, (1 << 31) - 1),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hih2si", 0, 1, 2, b"\xff\xfe", 0),
        encode({"t": [0, 1]})[:-5],
    ],
    ids=[
        "endless",
        "empty",
        "cut",
        "-1 topics",
        "2^31 topics",
        "-3 partitions",
        "2^31 partitions",
        "no name",
        "not text",
        "short",
    ],
)
def test_an_invalid_assignment_counts_as_empty(data: bytes) -> None:
    assert decoded_soon(data) == ()


def test_many_small_topics_take_linear_time() -> None:
    most = 1 << 20  # bytes of a message, by default; the group's members are stored in one
    empty = encode([("a", list(range(100_000))), *([("", [])] * ((most - 400_000) // 6))])

    assert len(decoded_soon(empty)) == 100_000


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_decoded_soon(data: bytes) -> None:
    decoded_soon(data)
    decoded_soon(b"\0\0\x7f\xff\xff\xff" + data)


@settings(max_examples=tries(750), deadline=None)
@given(st.data())
def test_a_changed_assignment_is_decoded_soon(data: st.DataObject) -> None:
    changed = bytearray(encode({"orders": [0, 1, 2], "payments": [7], "": []}))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed)))
        number = data.draw(st.sampled_from(NUMBERS) | st.binary(max_size=4))
        changed[at : at + len(number)] = number

    found = decoded_soon(bytes(changed))

    assert len(found) <= len(changed) // 4
