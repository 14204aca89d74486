"""Produce frames, checked against kafka-python's schemas in both directions."""

import uuid

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from linkengine.kafka.requests import PRODUCE_BY_ID, PRODUCE_BY_NAME, ProducedPartition, decode_produce, encode_produce

TOPIC_ID = uuid.UUID(int=0xFEDCBA0987654321FEDCBA0987654321)


def key(version: int) -> bytes:
    return TOPIC_ID.bytes if version == PRODUCE_BY_ID else b"orders"


@pytest.mark.parametrize("version", [PRODUCE_BY_NAME, PRODUCE_BY_ID])
def test_a_request_is_decoded_by_kafka_python_and_copies_no_batch(version: int) -> None:
    batches = [memoryview(bytearray(b"a" * 200)), memoryview(bytearray(b"b" * 70_000))]

    parts = encode_produce({key(version): list(enumerate(batches))}, version=version, correlation_id=4, timeout_ms=900)
    request = ProduceRequest.decode(b"".join(parts), version=version, header=True, framed=True)

    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 900)
    (topic,) = request.topic_data
    assert [(partition.index, bytes(partition.records)) for partition in topic.partition_data] == [
        (0, b"a" * 200),
        (1, b"b" * 70_000),
    ]
    assert all(any(part is batch for part in parts) for batch in batches)


@pytest.mark.parametrize("version", [PRODUCE_BY_NAME, PRODUCE_BY_ID])
@pytest.mark.parametrize("size", [90, 9_000, 130_000, 3_000_000])
def test_a_request_with_a_single_batch_is_decoded_by_kafka_python(version: int, size: int) -> None:
    batch = memoryview(bytearray(b"a" * size))

    parts = encode_produce({key(version): [(7, batch)]}, version=version, correlation_id=4, timeout_ms=900)
    request = ProduceRequest.decode(b"".join(parts), version=version, header=True, framed=True)

    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 900)
    (topic,) = request.topic_data
    assert [(partition.index, bytes(partition.records)) for partition in topic.partition_data] == [(7, b"a" * size)]
    assert topic.topic_id == TOPIC_ID if version == PRODUCE_BY_ID else topic.name == "orders"
    assert any(part is batch for part in parts)


@pytest.mark.parametrize("version", [PRODUCE_BY_NAME, PRODUCE_BY_ID])
@pytest.mark.parametrize(("error", "message"), [(0, None), (6, None), (10, ""), (10, "too large")])
def test_a_response_for_a_single_partition_is_decoded(version: int, error: int, message: str | None) -> None:
    partition = ProduceResponse.TopicProduceResponse.PartitionProduceResponse(
        index=3, error_code=error, base_offset=1 << 40, log_append_time_ms=-1, log_start_offset=0, record_errors=[],
        error_message=message,
    )  # fmt: skip
    topic = ProduceResponse.TopicProduceResponse(name="orders", topic_id=TOPIC_ID, partition_responses=[partition])
    encoded = bytes(ProduceResponse(version=version, responses=[topic], throttle_time_ms=70).encode())

    response = decode_produce(memoryview(b"\x00" + encoded), version=version)

    assert response == (70, [ProducedPartition(key(version), 3, error, 1 << 40, -1, message or "")])


@pytest.mark.parametrize("version", [PRODUCE_BY_NAME, PRODUCE_BY_ID])
def test_a_response_has_offset_error_and_reason_per_partition(version: int) -> None:
    data = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
    reasons = [data.BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="a record is too old")]
    partitions = [
        data(index=0, error_code=0, base_offset=1 << 40, log_append_time_ms=-1, log_start_offset=0, record_errors=[]),
        data(index=1, error_code=32, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1, record_errors=reasons),
        data(index=2, error_code=10, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1, record_errors=[],
             error_message="too large"),
    ]  # fmt: skip
    topic = ProduceResponse.TopicProduceResponse(name="orders", topic_id=TOPIC_ID, partition_responses=partitions)
    encoded = bytes(ProduceResponse(version=version, responses=[topic], throttle_time_ms=0).encode())

    _throttle_ms, responses = decode_produce(memoryview(b"\x00" + encoded), version=version)

    assert responses == [
        ProducedPartition(key(version), 0, 0, 1 << 40, -1, ""),
        ProducedPartition(key(version), 1, 32, -1, -1, "a record is too old"),
        ProducedPartition(key(version), 2, 10, -1, -1, "too large"),
    ]
