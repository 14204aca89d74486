"""Round-trip times to the brokers of a source, and the throughput that socket buffers allow over them."""

from __future__ import annotations

from dataclasses import dataclass

LONG_MS = 15.0  # from this round trip on, socket buffers limit one connection, and a backlog is read ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDistance:
    """What was measured of a broker; None if unknown. Buffers are read only if the round trip is long."""

    broker: int
    address: str
    round_trip_ms: float | None = None
    send_buffer_bytes: int | None = None  # socket.send.buffer.bytes of the broker; -1: the default of its operating system
    receive_buffer_bytes: int | None = None  # of the machine that measured
    error: str = ""

    @property
    def is_long(self) -> bool:
        return self.round_trip_ms is not None and self.round_trip_ms >= LONG_MS

    @property
    def limited_by(self) -> str:
        """Return the setting that limits one connection; "" if the round trip is short or the buffers are unknown.

        A broker with -1 leaves the buffer to its operating system, which grows it as needed; then the receiver's buffer counts.
        """
        send, receive = self.send_buffer_bytes, self.receive_buffer_bytes
        if not self.is_long or send is None:
            return ""
        if send >= 0 and (receive is None or send <= receive):
            return "socket.send.buffer.bytes"
        return "" if receive is None else "net.ipv4.tcp_rmem"

    @property
    def bytes_per_s(self) -> float | None:
        """About how much one connection can carry; None if no known buffer limits it."""
        buffers = {"socket.send.buffer.bytes": self.send_buffer_bytes, "net.ipv4.tcp_rmem": self.receive_buffer_bytes}
        size = buffers.get(self.limited_by)
        return None if size is None or not self.round_trip_ms else size / (self.round_trip_ms / 1000)
