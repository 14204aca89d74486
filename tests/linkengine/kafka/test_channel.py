"""The non-blocking channel over a real socket pair."""

import select
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from devcluster.tls import certificates_in, write_certificates
from linkengine.kafka.channel import Channel, ChannelClosedError, LargeFrames, SmallFrames
from linkengine.kafka.connection import Connection
from linkengine.kafka.requests import low_water_mark


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """Yield a channel and the broker's end of its socket."""
    own, peer = socket.socketpair()
    channel = Channel(Connection(own, host="broker", port=9092))
    peer.settimeout(5)
    yield channel, peer
    channel.close()
    peer.close()


def frame(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation) + body


def test_bytes_that_the_socket_does_not_accept_are_queued_and_counted(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    parts: list[bytes | memoryview] = [b"head", memoryview(bytearray(3_000_000)), b"tail"]

    end = channel.send(parts)

    assert end == 3_000_008
    assert channel.wants_write
    assert 0 < channel.sent_bytes < end
    got = bytearray()
    while len(got) < end:
        got += peer.recv(1 << 20)
        channel.flush()
    assert bytes(got) == b"".join(bytes(part) for part in parts)
    assert channel.sent_bytes == end
    assert not channel.wants_write


def test_own_unsent_copies_slices_so_that_their_buffer_can_be_reused(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    buffer = bytearray(b"x" * 3_000_000)
    end = channel.send([memoryview(buffer)])

    channel.own_unsent()
    buffer[:] = b"y" * len(buffer)
    got = bytearray()
    while len(got) < end:
        got += peer.recv(1 << 20)
        channel.flush()

    assert got.count(b"y") == 0


def test_small_frames_are_read_whatever_their_fragments(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    frames = SmallFrames(channel)
    whole = frame(1, b"one") + frame(2, b"") + frame(3, b"z" * 100_000)
    found: list[tuple[int, bytes]] = []

    for start in range(0, len(whole), 30_001):
        peer.sendall(whole[start : start + 30_001])
        found += [(correlation, bytes(body)) for correlation, body in frames.read()]

    assert found == [(1, b"one"), (2, b""), (3, b"z" * 100_000)]


def test_readiness_is_reported_only_for_enough_responses_but_fewer_can_be_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, select.epoll() as poll:
        channel = Channel(Connection(socket.create_connection(server.getsockname()), host="broker", port=9092))
        peer, _ = server.accept()
        frames, response = SmallFrames(channel), frame(1, b"x" * 58)
        poll.register(channel.fileno(), select.EPOLLIN)

        channel.wake_after(low_water_mark(3))
        peer.sendall(response * 2)
        assert poll.poll(0.2) == []
        peer.sendall(response)
        assert len(poll.poll(5)) == 1
        assert len(frames.read()) == 3

        peer.sendall(response)
        assert poll.poll(0.2) == []
        assert len(frames.read()) == 1

        peer.close()  # reported at once, whatever the low-water mark
        assert len(poll.poll(5)) == 1
        channel.close()


def test_a_large_frame_is_received_into_the_allocated_buffer(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    buffer = bytearray(1_000_000)
    frames = LargeFrames(channel, allocate=lambda size: memoryview(buffer)[:size])
    body = bytes(range(256)) * 1_000
    whole = frame(8, body)
    found = None

    for start in range(0, len(whole), 50_000):
        assert found is None
        peer.sendall(whole[start : start + 50_000])
        for _ in range(5):  # a read returns the bytes of a single system call
            found = found or frames.read()

    assert found is not None
    assert found[0] == 8
    assert found[1].obj is buffer
    assert bytes(found[1]) == body


def test_a_response_waits_in_the_socket_while_no_buffer_is_free(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    free: list[memoryview] = []
    frames = LargeFrames(channel, allocate=lambda _: free.pop() if free else None)
    peer.sendall(frame(1, b"body"))

    assert frames.read() is None
    assert frames.starved
    free.append(memoryview(bytearray(4)))
    assert frames.read() is not None
    assert not frames.starved


class TlsBroker:
    """The broker's end of a TLS connection, which controls how many encrypted bytes are sent."""

    def __init__(self, sock: socket.socket, certificates: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates)
        self._sock, self._in, self._out = sock, ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)

    def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._sock.sendall(self._out.read())
                self._in.write(self._sock.recv(1 << 16))
            else:
                self._sock.sendall(self._out.read())
                return

    def encrypted(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._out.read()


def test_a_small_rest_of_a_tls_response_is_reported_as_readable(tmp_path: Path) -> None:
    """TLS has already taken a part of the last record from the kernel, so fewer bytes arrive than are missing."""
    write_certificates(tmp_path)
    files = certificates_in(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        own, peer = socket.create_connection(server.getsockname()), server.accept()[0]
    broker = TlsBroker(peer, files.broker)
    greeting = Thread(target=broker.shake_hands)
    greeting.start()
    context = ssl.create_default_context(cafile=files.authority)
    channel = Channel(Connection(context.wrap_socket(own, server_hostname="localhost"), host="broker", port=9092))
    greeting.join(10)
    target = bytearray(40_000)
    frames = LargeFrames(channel, allocate=lambda size: memoryview(target)[:size])
    sent = broker.encrypted(frame(1, b"z" * 40_000))

    peer.sendall(sent[:-3_000])
    ready = select.poll()
    ready.register(channel.fileno(), select.POLLIN)
    while frames.received < 32_768:  # two whole records of the three
        assert ready.poll(5_000)
        assert frames.read() is None
    while ready.poll(200):
        assert frames.read() is None
    peer.sendall(sent[-3_000:])

    assert ready.poll(5_000)
    found = frames.read()
    assert found is not None
    assert bytes(found[1]) == b"z" * 40_000
    channel.close()
    peer.close()


def test_a_closed_connection_and_an_invalid_frame_raise_but_missing_data_does_not(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    frames = SmallFrames(channel)
    assert frames.read() == []

    peer.sendall(b"HTTP/1.1 400 Bad Request")
    with pytest.raises(ChannelClosedError, match="not a response of a Kafka broker"):
        frames.read()
    peer.close()
    with pytest.raises(ChannelClosedError, match="broker:9092"):
        SmallFrames(channel).read()


def test_a_closed_connection_raises_in_flush_and_not_in_send(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    peer.close()

    channel.send([b"into nothing"])

    assert channel.wants_write
    with pytest.raises(ChannelClosedError):
        channel.flush()
