"""Marker frames, checked against kafka-python's schemas in both directions."""

from kafka.protocol.consumer import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from linkengine.kafka.requests import (
    LOG_END_VERSION,
    MARKERS_VERSION,
    MarkerFill,
    decode_log_ends,
    decode_markers,
    encode_log_ends,
    encode_markers,
)


def fill(partition: int, count: int) -> MarkerFill:
    return MarkerFill(
        topic="orders", partition=partition, producer_id=1 << 62, producer_epoch=3, coordinator_epoch=8, count=count
    )


def test_a_fill_has_a_marker_per_offset() -> None:
    frame = b"".join(encode_markers([fill(0, 3), fill(1, 1)], correlation_id=2))

    request = WriteTxnMarkersRequest.decode(frame, version=MARKERS_VERSION, header=True, framed=True)

    found = [(marker.topics[0].name, marker.topics[0].partition_indexes) for marker in request.markers]
    assert found == [("orders", [0])] * 3 + [("orders", [1])]
    assert {
        (marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch)
        for marker in request.markers
    } == {(1 << 62, 3, False, 8)}


def test_the_response_has_an_error_per_producer_and_partition() -> None:
    result = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic = result.WritableTxnMarkerTopicResult
    partition = topic.WritableTxnMarkerPartitionResult
    topics = [topic(name="orders", partitions=[partition(partition_index=0, error_code=0)])]
    others = [topic(name="orders", partitions=[partition(partition_index=1, error_code=47)])]
    markers = [result(producer_id=7, topics=topics), result(producer_id=8, topics=others)]
    encoded = bytes(WriteTxnMarkersResponse(version=MARKERS_VERSION, markers=markers).encode())

    assert decode_markers(memoryview(b"\x00" + encoded)) == {(7, "orders", 0): 0, (8, "orders", 1): 47}


def test_a_log_end_request_is_grouped_by_topic() -> None:
    frame = b"".join(encode_log_ends([("a", 0, 5), ("b", 1, 6), ("a", 2, 7)], correlation_id=2))

    request = OffsetForLeaderEpochRequest.decode(frame, version=LOG_END_VERSION, header=True, framed=True)

    assert request.replica_id == -2
    found = {
        topic.topic: [
            (partition.partition, partition.current_leader_epoch, partition.leader_epoch) for partition in topic.partitions
        ]
        for topic in request.topics
    }
    assert found == {"a": [(0, 5, 5), (2, 7, 7)], "b": [(1, 6, 6)]}


def test_log_ends_are_decoded() -> None:
    topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    partitions = [
        topic.EpochEndOffset(error_code=0, partition=0, leader_epoch=5, end_offset=1 << 41),
        topic.EpochEndOffset(error_code=74, partition=1, leader_epoch=-1, end_offset=-1),
    ]
    response = OffsetForLeaderEpochResponse(
        version=LOG_END_VERSION, throttle_time_ms=0, topics=[topic(topic="a", partitions=partitions)]
    )

    assert decode_log_ends(memoryview(b"\x00" + bytes(response.encode()))) == {("a", 0): (0, 1 << 41), ("a", 1): (74, -1)}
