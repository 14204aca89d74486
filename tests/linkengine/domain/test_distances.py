"""Which socket buffer limits a connection over a distance, and how much it can carry."""

from __future__ import annotations

import pytest

from linkengine.domain.plans import BrokerDistance

SEND, RECEIVE = "socket.send.buffer.bytes", "net.ipv4.tcp_rmem"


@pytest.mark.parametrize(
    ("round_trip_ms", "send", "receive", "limited_by", "bytes_per_s"),
    [
        (80.0, 102_400, 6_291_456, SEND, 1_280_000),
        (80.0, 8_388_608, 6_291_456, RECEIVE, 78_643_200),
        (80.0, -1, 6_291_456, RECEIVE, 78_643_200),
        (80.0, 102_400, None, SEND, 1_280_000),
        (80.0, -1, None, "", None),
        (80.0, None, 6_291_456, "", None),  # unknown is not unlimited
        (2.0, None, None, "", None),
        (None, None, None, "", None),
    ],
)
def test_the_smaller_buffer_limits_a_connection(
    round_trip_ms: float | None, send: int | None, receive: int | None, limited_by: str, bytes_per_s: float | None
) -> None:
    distance = BrokerDistance(
        broker=0, address="far:9092", round_trip_ms=round_trip_ms, send_buffer_bytes=send, receive_buffer_bytes=receive
    )

    assert (distance.limited_by, distance.bytes_per_s) == (limited_by, bytes_per_s)
