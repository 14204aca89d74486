"""A TCP proxy with faults: connections are cut, slowed, silenced, or held and delivered late, even if their client has ended.

Stands between the product and brokers or Redis; the writers and the judge connect directly. Late delivery is what a network
does that comes back after an outage: bytes that were on their way arrive although the sender has given them up. One thread,
asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable
from random import Random
from typing import Any

from devcluster.ports import LOOPBACK

CHUNK_BYTES = 1 << 20
READ_AHEAD_BYTES = 4 << 20  # what was sent before a hold comes through whole, though its sender reset the connection
FULL_PAUSE_S = 0.005
CALL_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0


class Proxy:
    """All routes to a cluster; a fault affects all of them."""

    def __init__(self, routes: Iterable[tuple[int, int]]) -> None:
        """Listen at once; ``routes`` are pairs of ports, from and to."""
        self._loop = asyncio.new_event_loop()
        self._links: set[_Link] = set()
        self._cut = False
        self._delay_s = 0.0
        self._mangler: _Mangler | None = None
        self._client_ports: Callable[[], Collection[int]] | None = None  # to be silenced
        self.ended, self.slowed = 0, 0  # connections that a cut ended or refused, chunks that came late; they only grow
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._servers = [self._run(self._listen(*route)) for route in routes]

    def cut(self) -> None:
        """End all connections and refuse new connections until ``repair``."""
        self._call(self._cut_now)

    def slow(self, delay_s: float) -> None:
        """Delay every chunk that passes, until ``hasten``."""
        self._delay_s = delay_s

    def mangle(self, *, every_bytes: int, seed: int) -> None:
        """Flip about one bit per ``every_bytes`` of what the brokers send, until ``heal``; what clients send stays as it is."""
        self._mangler = _Mangler(every_bytes, seed)

    @property
    def mangled(self) -> int:
        """How many bits were flipped since the last ``mangle``."""
        return self._mangler.flipped if self._mangler is not None else 0

    def repair(self) -> None:
        """Accept connections again; slow and held connections remain slow and held."""
        self._cut = False

    def hasten(self) -> None:
        """End the delays; connections that are cut or held stay so."""
        self._delay_s = 0.0

    def hold(self) -> None:
        """Deliver nothing over the connections of this moment until ``release``; new connections are not affected."""
        self._call(lambda: self._each(asyncio.Event.clear))

    def release(self) -> None:
        """Deliver what was held."""
        self._call(lambda: self._each(asyncio.Event.set))

    @property
    def held_bytes(self) -> int:
        """How much waits for its release."""
        return sum(link.waiting for link in tuple(self._links) if not link.aborted)

    def silence(self, client_ports: Callable[[], Collection[int]]) -> None:
        """Deliver nothing over connections from these client ports, until ``end_silence``.

        Affects present and new connections, which are accepted: as if a network dropped all packets between
        a client and the server. ``client_ports`` is called now and once per new connection, never in the proxy's thread: that
        would delay all other connections.
        """
        self._client_ports = client_ports  # first, so that no connection is missed
        ports = client_ports()
        self._call(lambda: self._silence_now(ports))

    def end_silence(self) -> None:
        """End the silenced connections, without what was sent over them; new connections are not affected."""
        self._call(self._end_silence_now)

    def heal(self) -> None:
        """End all faults."""
        self._mangler = None
        self.repair()
        self.hasten()
        self.end_silence()
        self.release()

    def close(self) -> None:
        """Stop listening and close everything."""
        self._run(self._close_now())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()  # its selector and its pair of sockets

    async def _listen(self, port: int, target: int) -> asyncio.Server:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(reader, writer, target)

        return await asyncio.start_server(serve, LOOPBACK, port, limit=READ_AHEAD_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
        if self._cut:
            self._end(writer)
            return
        try:
            there, here = await asyncio.open_connection(LOOPBACK, target, limit=READ_AHEAD_BYTES)
        except OSError:
            writer.transport.abort()
            return
        if self._cut:  # while the connection was being accepted
            self._end(writer, here)
            return
        link = _Link(writer, here)
        self._links.add(link)
        if self._client_ports is not None and link.client_port in await asyncio.to_thread(self._client_ports):
            link.silence()
        try:
            await asyncio.gather(self._pump(reader, here, link), self._pump(there, writer, link, responses=True))
        finally:
            self._links.discard(link)
            link.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link, *, responses: bool = False
    ) -> None:
        taken: asyncio.Queue[bytes] = asyncio.Queue()
        await asyncio.gather(_take(reader, taken, link), self._deliver(taken, writer, link, responses=responses))

    async def _deliver(
        self, taken: asyncio.Queue[bytes], writer: asyncio.StreamWriter, link: _Link, *, responses: bool
    ) -> None:
        """Write what was taken; bytes for a peer that has closed its end are dropped, those of the other direction are not."""
        while data := await taken.get():
            await self._passage(link)
            link.waiting -= len(data)
            if writer.is_closing():
                continue
            with contextlib.suppress(OSError):
                writer.write(self._mangler.mangled(data) if responses and self._mangler is not None else data)
                await writer.drain()
        await link.gate.wait()
        writer.close()

    async def _passage(self, link: _Link) -> None:
        """Wait as long as the present faults require; bytes that wait for a slow network may be held in between."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
            self.slowed += 1
        await link.gate.wait()

    def _end(self, *writers: asyncio.StreamWriter) -> None:
        self.ended += 1
        for writer in writers:
            writer.transport.abort()

    def _each(self, change: Callable[[asyncio.Event], None]) -> None:
        for link in self._links:
            if not link.silenced:
                change(link.gate)

    def _silence_now(self, ports: Collection[int]) -> None:
        for link in self._links:
            if link.client_port in ports:
                link.silence()

    def _end_silence_now(self) -> None:
        self._client_ports = None
        for link in tuple(self._links):
            if link.silenced:
                link.abort()

    def _cut_now(self) -> None:
        self._cut = True
        for link in tuple(self._links):
            self.ended += not link.aborted
            link.abort()

    async def _close_now(self) -> None:
        for server in self._servers:
            server.close()
        self._cut_now()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)

    def _call(self, work: Callable[[], object]) -> None:
        async def run() -> None:
            work()

        self._run(run())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)


async def _take(reader: asyncio.StreamReader, taken: asyncio.Queue[bytes], link: _Link) -> None:
    """Take over what is sent as it comes: an error of the connection would drop what lies in the reader."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            link.waiting += len(data)
            taken.put_nowait(data)
            while link.waiting > READ_AHEAD_BYTES and not link.aborted:
                await asyncio.sleep(FULL_PAUSE_S)
    taken.put_nowait(b"")


class _Mangler:
    """Flips bits at random distances."""

    def __init__(self, every_bytes: int, seed: int) -> None:
        self._random = Random(seed)
        self._mean = every_bytes
        self._left = self._distance()
        self.flipped = 0

    def mangled(self, data: bytes) -> bytes:
        changed, at = bytearray(data), self._left
        while at < len(changed):
            changed[at] ^= 1 << self._random.randrange(8)
            self.flipped += 1
            at += self._distance()
        self._left = at - len(changed)
        return bytes(changed)

    def _distance(self) -> int:
        return 1 + int(self._random.expovariate(1 / self._mean))


class _Link:
    """Both ends of a connection: the client's and the server's."""

    def __init__(self, *ends: asyncio.StreamWriter) -> None:
        self._ends = ends
        self.client_port = int((ends[0].get_extra_info("peername") or ("", 0))[1])
        self.silenced = False
        self.waiting = 0  # bytes, in both directions
        self.aborted = False
        self.gate = asyncio.Event()
        self.gate.set()

    def silence(self) -> None:
        self.silenced = True
        self.gate.clear()

    def abort(self) -> None:
        self.aborted = True  # held bytes are dropped
        self.gate.set()
        for end in self._ends:
            end.transport.abort()
