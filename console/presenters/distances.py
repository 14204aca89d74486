"""View model of the round trips to the source brokers, shown after the validation of a link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.presenters import numbers
from linkengine.domain.plans import BrokerDistance


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceRow:
    """The round trip to a source broker."""

    broker: int
    address: str
    round_trip: str
    limit: str


def distance_rows(distances: Sequence[BrokerDistance]) -> list[DistanceRow]:
    """Return one row per broker."""
    return [
        DistanceRow(
            broker=distance.broker,
            address=distance.address,
            round_trip=_round_trip(distance),
            limit=limit_of(distance),
        )
        for distance in distances
    ]


def _round_trip(distance: BrokerDistance) -> str:
    return "unknown" if distance.round_trip_ms is None else f"{distance.round_trip_ms:,.1f} ms"


def limit_of(distance: BrokerDistance) -> str:
    """Return what limits the throughput of a connection to a broker, and what to do about it."""
    if distance.error:
        return distance.error
    if not distance.is_long:
        return "Not limited by socket buffers: the round trip is short."
    if distance.limited_by:
        where = "the broker" if distance.limited_by == "socket.send.buffer.bytes" else "the worker host"
        size = distance.send_buffer_bytes if where == "the broker" else distance.receive_buffer_bytes
        return (
            f"Limited by {distance.limited_by} = {size:,} of {where}: about {numbers.byte_rate(distance.bytes_per_s)} per "
            "connection. A backlog is fetched over up to 64 connections. To increase the limit, increase the buffer size."
        )
    if distance.send_buffer_bytes is None:
        return (
            "Unknown: the link's principal may not read socket.send.buffer.bytes of the broker. Grant it DESCRIBE_CONFIGS on "
            "the cluster."
        )
    return "Not limited: the operating systems adjust the socket buffers automatically."
