"""Simulated distance between a client and a cluster: TCP proxies with a one-way delay and limited bytes in flight.

``bytes in flight`` represents the smaller of the two socket buffers of a connection, per direction. A stock broker's
``socket.send.buffer.bytes`` of 102,400 leaves about 131,072. Runs as a separate process, so that it does not share an
interpreter with the program under test: ``python -m devcluster.distance --delay-ms 40 --in-flight 131072 FROM:TO ...``.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from devcluster.ports import LOOPBACK
from devcluster.processes import Process

STOCK_IN_FLIGHT = 131_072  # bytes; a broker with the default socket.send.buffer.bytes
WIDE_IN_FLIGHT = 16 << 20
START_TIMEOUT_S = 30.0


class Distance:
    """The proxies of a cluster (``KafkaCluster.routes``), in a separate process. A context manager."""

    def __init__(self, routes: Iterable[tuple[int, int]], *, delay_ms: float, in_flight: int = STOCK_IN_FLIGHT) -> None:
        """``routes`` are pairs of ports, from and to; ``delay_ms`` is one-way."""
        arguments = ["--delay-ms", str(delay_ms), "--in-flight", str(in_flight)]
        self._command = [sys.executable, "-m", __spec__.name, *arguments, *(f"{port}:{target}" for port, target in routes)]
        self._ports = [port for port, _ in routes]
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="distance-")
        self._process = Process(self._command, name="distance", log=Path(self._folder.name) / "log")
        self._process.wait_until(lambda: all(map(_listens, self._ports)), timeout_s=START_TIMEOUT_S)
        return self

    @property
    def pid(self) -> int:
        """The process id of the proxies."""
        assert self._process is not None
        return self._process.pid

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            self._process.stop()
            self._folder.cleanup()


class _Direction:
    """One direction of a connection: data from the sender reaches the receiver after the delay."""

    def __init__(self, *, delay_s: float, in_flight: int) -> None:
        self._delay_s, self._limit = delay_s, in_flight
        self._loop = asyncio.get_running_loop()
        self._in_flight = 0
        self._sender: asyncio.Transport | None = None
        self._receiver: asyncio.Transport | None = None

    def connect(self, sender: asyncio.Transport, receiver: asyncio.Transport) -> None:
        self._sender, self._receiver = sender, receiver

    @property
    def available(self) -> int:
        """How many more bytes may be in flight."""
        return self._limit - self._in_flight

    def take(self, data: bytes) -> None:
        """Forward data of the sender; pause the sender while too much is in flight."""
        self._in_flight += len(data)
        if self._in_flight >= self._limit and self._sender is not None:
            self._sender.pause_reading()
        self._loop.call_later(self._delay_s, self._deliver, data)

    def end(self) -> None:
        """Close the receiver's side after all data in flight, since the sender has closed its side."""
        self._loop.call_later(self._delay_s, self._close)

    def _deliver(self, data: bytes) -> None:
        if self._receiver is not None and not self._receiver.is_closing():
            self._receiver.write(data)
        self._loop.call_later(self._delay_s, self._acknowledge, len(data))

    def _acknowledge(self, size: int) -> None:
        full, self._in_flight = self._in_flight >= self._limit, self._in_flight - size
        if full and self._in_flight < self._limit and self._sender is not None and not self._sender.is_closing():
            self._sender.resume_reading()

    def _close(self) -> None:
        if self._receiver is not None:
            self._receiver.close()


class _End(asyncio.BufferedProtocol):
    """An end of a proxied connection."""

    def __init__(self, out: _Direction) -> None:
        self._out = out
        self._view = memoryview(bytearray(64 << 10))
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._view[: max(1, self._out.available)]

    def buffer_updated(self, count: int) -> None:
        self._out.take(bytes(self._view[:count]))

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._out.end()


async def _serve(port: int, target: int, *, delay_s: float, in_flight: int) -> asyncio.Server:
    loop = asyncio.get_running_loop()

    class Client(_End):
        """The end to which a client has connected."""

        def __init__(self) -> None:
            super().__init__(_Direction(delay_s=delay_s, in_flight=in_flight))

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            assert self.transport is not None
            self.transport.pause_reading()
            self._connecting = loop.create_task(self._connect(self.transport))

        async def _connect(self, client: asyncio.Transport) -> None:
            await asyncio.sleep(2 * delay_s)  # the handshake
            back = _Direction(delay_s=delay_s, in_flight=in_flight)
            try:
                server, _ = await loop.create_connection(lambda: _End(back), LOOPBACK, target)
            except OSError:
                client.abort()
                return
            self._out.connect(client, server)
            back.connect(server, client)
            client.resume_reading()

    return await loop.create_server(Client, LOOPBACK, port)


async def _run(routes: Iterable[tuple[int, int]], *, delay_s: float, in_flight: int) -> None:
    servers = [await _serve(*route, delay_s=delay_s, in_flight=in_flight) for route in routes]
    await asyncio.gather(*(server.serve_forever() for server in servers))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def main() -> None:
    """Run the proxies until the process is stopped."""
    parser = argparse.ArgumentParser(prog="distance", description=__doc__)
    parser.add_argument("--delay-ms", type=float, required=True, help="one-way delay")
    parser.add_argument("--in-flight", type=int, default=STOCK_IN_FLIGHT, help="bytes per connection and direction")
    parser.add_argument("routes", nargs="+", metavar="FROM:TO", help="ports of this machine")
    options = parser.parse_args()
    routes = [(int(start), int(end)) for start, end in (route.split(":") for route in options.routes)]
    asyncio.run(_run(routes, delay_s=options.delay_ms / 1000, in_flight=options.in_flight))


if __name__ == "__main__":
    main()
