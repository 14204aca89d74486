"""Fetch frames, checked against kafka-python's schemas in both directions."""

import struct
import uuid

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from linkengine.kafka.protocol import MalformedResponseError
from linkengine.kafka.requests import (
    FETCH_BY_ID,
    FETCH_BY_NAME,
    FetchLimits,
    FetchPosition,
    SessionStep,
    decode_fetch,
    encode_fetch,
)

TOPIC_ID = uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
LIMITS = FetchLimits(max_bytes=1_000_000, max_wait_ms=123)


@pytest.mark.parametrize("version", [FETCH_BY_NAME, FETCH_BY_ID])
def test_a_request_is_decoded_by_kafka_python(version: int) -> None:
    topic = TOPIC_ID.bytes if version == FETCH_BY_ID else b"orders"
    positions = {topic: [FetchPosition(3, 7, 1 << 40, 65_536), FetchPosition(4, -1, 0, 10)]}

    frame = b"".join(encode_fetch(positions, version=version, correlation_id=9, limits=LIMITS))
    request = FetchRequest.decode(frame, version=version, header=True, framed=True)

    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level) == (123, 1, 1_000_000, 1)
    assert (request.session_id, request.session_epoch, request.forgotten_topics_data, request.rack_id) == (0, -1, [], "")
    (requested,) = request.topics
    assert (requested.topic_id == TOPIC_ID) if version == FETCH_BY_ID else (requested.topic == "orders")
    found = [
        (partition.partition, partition.current_leader_epoch, partition.fetch_offset, partition.partition_max_bytes)
        for partition in requested.partitions
    ]
    assert found == [(3, 7, 1 << 40, 65_536), (4, -1, 0, 10)]


@pytest.mark.parametrize("version", [FETCH_BY_NAME, FETCH_BY_ID])
def test_a_session_request_has_only_changes_and_forgotten_partitions(version: int) -> None:
    topic = TOPIC_ID.bytes if version == FETCH_BY_ID else b"orders"

    frame = b"".join(
        encode_fetch({}, version=version, correlation_id=9, limits=LIMITS, step=SessionStep(77, 5), forgotten={topic: [3, 400]})
    )
    request = FetchRequest.decode(frame, version=version, header=True, framed=True)

    assert (request.session_id, request.session_epoch, request.topics, request.rack_id) == (77, 5, [], "")
    (forgotten,) = request.forgotten_topics_data
    assert (forgotten.topic_id == TOPIC_ID) if version == FETCH_BY_ID else (forgotten.topic == "orders")
    assert forgotten.partitions == [3, 400]


def response(version: int) -> bytes:
    data = FetchResponse.FetchableTopicResponse.PartitionData
    aborted = [data.AbortedTransaction(producer_id=5, first_offset=11), data.AbortedTransaction(producer_id=6, first_offset=12)]
    partitions = [
        data(
            partition_index=0, error_code=0, high_watermark=20, last_stable_offset=15, log_start_offset=2,
            aborted_transactions=aborted, preferred_read_replica=-1, records=b"some bytes",
        ),
        data(
            partition_index=1, error_code=6, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1,
            aborted_transactions=None, preferred_read_replica=-1, records=None,
            current_leader=data.LeaderIdAndEpoch(leader_id=2, leader_epoch=8),
        ),
    ]  # fmt: skip
    topic = FetchResponse.FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=partitions)
    return bytes(FetchResponse(version=version, throttle_time_ms=30, error_code=0, session_id=77, responses=[topic]).encode())


@pytest.mark.parametrize("version", [FETCH_BY_NAME, FETCH_BY_ID])
def test_a_response_is_decoded_in_place(version: int) -> None:
    buffer = memoryview(bytearray(b"\x00" + response(version)))

    error, throttle_ms, session, (first, second) = decode_fetch(buffer, version=version)

    assert (error, throttle_ms, session) == (0, 30, 77)
    assert first.topic == (TOPIC_ID.bytes if version == FETCH_BY_ID else b"orders")
    assert (first.partition, first.high_watermark, first.last_stable_offset, first.log_start) == (0, 20, 15, 2)
    assert first.aborted == ((5, 11), (6, 12))
    assert bytes(first.records) == b"some bytes"
    assert first.records.obj is buffer.obj
    assert (second.partition, second.error, second.aborted, len(second.records)) == (1, 6, (), 0)


@pytest.mark.parametrize("version", [FETCH_BY_NAME, FETCH_BY_ID])
def test_a_response_cut_off_anywhere_raises_MalformedResponseError(version: int) -> None:
    whole = b"\x00" + response(version)

    for length in range(len(whole) - 2):  # the last two bytes are counts of tagged fields
        with pytest.raises(MalformedResponseError, match="Fetch"):
            decode_fetch(memoryview(whole[:length]), version=version)


@pytest.mark.parametrize("version", [FETCH_BY_NAME, FETCH_BY_ID])
def test_a_response_with_a_partition_twice_raises_malformed_response_error(version: int) -> None:
    """As if a bit of the second partition's number was flipped."""
    whole = b"\x00" + response(version)
    second = whole.index(struct.pack(">ih", 1, 6))  # number and error code

    def decoded(number: int) -> list[int]:
        changed = whole[:second] + struct.pack(">i", number) + whole[second + 4 :]
        return [partition.partition for partition in decode_fetch(memoryview(changed), version=version).partitions]

    assert decoded(5) == [0, 5]
    with pytest.raises(MalformedResponseError):
        decoded(0)
