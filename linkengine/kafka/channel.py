"""Non-blocking I/O on an open connection: queued outgoing frames, and incoming frames read as they arrive.

Outgoing frames are slices (``sendmsg``). Large responses go directly into the caller's buffer (``recv_into``); SO_RCVLOWAT
keeps the kernel from reporting readiness for small fragments. The bytes are not interpreted. TLS sockets have neither
``sendmsg`` nor low-water marks; they send a slice at a time.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.connection import MAX_SMALL_RESPONSE, Connection
from linkengine.kafka.protocol import INT32, Bytes

SMALL_BUFFER = 64 << 10  # initial size, for responses to Produce and WriteTxnMarkers
MAX_FRAME = 1 << 30
WAKE_BYTES = 64 << 10  # low-water mark of a large response; a broker stalls above its socket.send.buffer.bytes (100 KB)
_SLICES = 128  # per sendmsg; the kernel's limit is 1024
_HEAD = struct.Struct(">ii")  # size, correlation id

Allocate = Callable[[int], memoryview | None]


class ChannelClosedError(LinkEngineError):
    """The connection is closed; the outcome of requests in flight is unknown."""

    def __init__(self, peer: str, reason: object) -> None:
        super().__init__(
            ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, f"The connection to broker {peer} was lost ({reason}). Retrying."
        )


class Channel:
    """Both directions of a connection; the owner watches readiness and calls ``flush`` and ``receive``."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.peer = connection.peer
        self.queued_bytes = 0  # total: a slice can be reused once sent_bytes has passed its end
        self.sent_bytes = 0
        self._sock = connection.sock
        self._sock.settimeout(0)
        self.tls = isinstance(self._sock, ssl.SSLSocket)
        self._out: deque[memoryview] = deque()
        self._correlation = 0
        self._low_water = 1  # SO_RCVLOWAT

    def fileno(self) -> int:
        return self._sock.fileno()

    def next_correlation(self) -> int:
        """Return the correlation id of the next request."""
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        return self._correlation

    def send(self, frame: Sequence[Bytes]) -> int:
        """Queue a frame and send what the socket accepts; return what ``sent_bytes`` reaches when all is sent.

        Raises nothing: the event loop detects a closed connection at the next event.
        """
        size = sum(map(len, frame))
        self.queued_bytes += size
        end = self.queued_bytes
        sent = 0 if self._out else self._send_now(frame)
        if sent < size:
            self._out.extend(memoryview(part) for part in frame if len(part))
            self._drop(sent)
            with suppress(ChannelClosedError):
                self.flush()
        return end

    @property
    def wants_write(self) -> bool:
        """True if queued bytes wait for the socket."""
        return bool(self._out)

    def flush(self) -> None:
        """Send until the socket is full or the queue is empty."""
        try:
            while self._out:
                count = self._send_some()
                self.sent_bytes += count
                self._drop(count)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            raise ChannelClosedError(self.peer, error) from error

    def own_unsent(self) -> None:
        """Copy the unsent bytes, so that their buffers can be reused while the peer does not read."""
        self._out = deque(memoryview(bytes(part)) for part in self._out)

    def receive(self, target: memoryview) -> int:
        """Read available bytes into ``target``; return 0 if there are none."""
        try:
            count = self._sock.recv_into(target)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise ChannelClosedError(self.peer, error) from error
        if count == 0:
            raise ChannelClosedError(self.peer, "closed by the broker")
        return count

    def check_open(self) -> None:
        """Raise ChannelClosedError if the connection was reset. For callers that do not read now and would not notice."""
        error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise ChannelClosedError(self.peer, os.strerror(error))

    def wake_after(self, count: int) -> None:
        """Set SO_RCVLOWAT, so that readiness is reported only when ``count`` bytes have arrived. Not every socket supports it.

        Not used with TLS: the kernel counts encrypted bytes, and not the part of a record that TLS has already read.
        """
        if count != self._low_water and not self.tls:
            self._low_water = count
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def close(self) -> None:
        """Close the socket and drop unsent data; safe to repeat."""
        self._out.clear()
        self.connection.close()

    def _send_now(self, frame: Sequence[Bytes]) -> int:
        """Send a frame without queueing it, which is the usual case; return the number of bytes sent."""
        if self.tls or len(frame) > _SLICES:
            return 0
        try:
            count = self._sock.sendmsg(frame)
        except OSError:  # full or closed: ``flush`` finds out which
            return 0
        self.sent_bytes += count
        return count

    def _send_some(self) -> int:
        if self.tls:
            return self._sock.send(self._out[0])
        if len(self._out) > _SLICES:
            return self._sock.sendmsg([self._out[index] for index in range(_SLICES)])
        return self._sock.sendmsg(self._out)

    def _drop(self, count: int) -> None:
        while count:
            first = self._out[0]
            if len(first) > count:
                self._out[0] = first[count:]
                return
            count -= len(first)
            self._out.popleft()


class SmallFrames:
    """Reads responses of a few hundred bytes: all available bytes in a single call, then frame by frame."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._buffer = bytearray(SMALL_BUFFER)
        self._end = 0

    def read(self) -> list[tuple[int, memoryview]]:
        """Return (correlation id, body) of the complete frames that have arrived. The bodies are copies."""
        while True:
            count = self._channel.receive(memoryview(self._buffer)[self._end :])
            self._end += count
            if count == 0 or self._end < len(self._buffer):
                break
            self._buffer = self._buffer + bytes(len(self._buffer))
        return self._split()

    def _split(self) -> list[tuple[int, memoryview]]:
        frames, at = [], 0
        while self._end - at >= _HEAD.size:
            size, correlation = _HEAD.unpack_from(self._buffer, at)
            _check_size(size, self._channel.peer, most=MAX_SMALL_RESPONSE)
            end = at + INT32.size + size
            if end > self._end:
                break
            frames.append((correlation, memoryview(self._buffer[at + _HEAD.size : end])))
            at = end
        if at:
            if at < self._end:
                self._buffer[: self._end - at] = self._buffer[at : self._end]
            self._end -= at
        return frames


class LargeFrames:
    """Reads responses of many megabytes into buffers that the owner allocates."""

    def __init__(self, channel: Channel, *, allocate: Allocate) -> None:
        self._channel = channel
        self._allocate = allocate
        self._head = bytearray(_HEAD.size)
        self._head_got = 0
        self._body: memoryview | None = None
        self._got = 0

    @property
    def starved(self) -> bool:
        """True if a response waits in the socket because no buffer was free."""
        return self._head_got == _HEAD.size and self._body is None

    @property
    def received(self) -> int:
        """Number of bytes of the next frame that have arrived."""
        return self._head_got + self._got

    def read(self) -> tuple[int, memoryview] | None:
        """Return (correlation id, body in the caller's buffer) once a frame is complete, else None."""
        if not self._read_head():
            return None
        size, correlation = _HEAD.unpack(self._head)
        _check_size(size, self._channel.peer, most=MAX_FRAME)
        if self._body is None:
            self._body = self._allocate(size - INT32.size)
        if self._body is None or not self._read_body(self._body):
            return None
        body, self._body, self._got, self._head_got = self._body, None, 0, 0
        return correlation, body

    def _read_head(self) -> bool:
        while self._head_got < _HEAD.size:
            count = self._channel.receive(memoryview(self._head)[self._head_got :])
            if count == 0:
                return False
            self._head_got += count
        return True

    def _read_body(self, body: memoryview) -> bool:
        while self._got < len(body):
            count = self._channel.receive(body[self._got :])
            self._got += count
            if count == 0 or not self._channel.tls:  # after a short read nothing is left: save the call that would show it
                break
        missing = len(body) - self._got
        self._channel.wake_after(max(1, min(missing, WAKE_BYTES)))
        return missing == 0


def _check_size(size: int, peer: str, *, most: int) -> None:
    if not INT32.size <= size <= most:
        raise ChannelClosedError(peer, f"a frame of {size} bytes is not a response of a Kafka broker")
