"""How far away the brokers of a link's source are, as the check of the link shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.presenters import numbers
from linkengine.domain.distances import BrokerDistance


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceRow:
    """One broker, in words."""

    broker: int
    address: str
    round_trip: str
    limit: str


def distance_rows(distances: Sequence[BrokerDistance]) -> list[DistanceRow]:
    """Write one row per broker."""
    return [
        DistanceRow(broker=each.broker, address=each.address, round_trip=_round_trip(each), limit=limit_of(each))
        for each in distances
    ]


def _round_trip(distance: BrokerDistance) -> str:
    return "unknown" if distance.round_trip_ms is None else f"{distance.round_trip_ms:,.1f} ms"


def limit_of(distance: BrokerDistance) -> str:
    """Return what limits one connection to a broker, and what to do about it."""
    if distance.error:
        return distance.error
    if not distance.is_long:
        return "Nearby: no socket buffer limits a connection."
    if distance.limited_by:
        where = "the broker" if distance.limited_by == "socket.send.buffer.bytes" else "this installation's machine"
        size = distance.send_buffer_bytes if where == "the broker" else distance.receive_buffer_bytes
        return (
            f"Limited by {distance.limited_by} = {size:,} of {where}: about {numbers.byte_rate(distance.bytes_per_s)} per "
            "connection. A backlog is read over up to 64 connections. A larger buffer makes each of them faster."
        )
    if distance.send_buffer_bytes is None:
        return (
            "Unknown: the link's principal may not read socket.send.buffer.bytes of the broker. Allow DESCRIBE_CONFIGS on the "
            "cluster to see it."
        )
    return "The operating systems grow the buffers as needed: no setting limits a connection."
