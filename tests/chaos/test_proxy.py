"""The proxy's faults, on plain sockets."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

from chaos.proxy import Proxy
from devcluster.ports import LOOPBACK, free_port

TIMEOUT_S = 30.0


class Target:
    """A server that keeps what it receives."""

    def __init__(self) -> None:
        self._server = socket.create_server((LOOPBACK, 0))
        self.port = self._server.getsockname()[1]
        self.received = b""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.received:
            assert time.monotonic() < deadline, self.received
            time.sleep(0.01)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(1000):
                self.received += data
                connection.sendall(data)


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def proxy(target: Target, port: int) -> Iterator[Proxy]:
    proxy = Proxy([(port, target.port)])
    yield proxy
    proxy.close()


def connected(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), timeout=TIMEOUT_S)


def test_both_directions_pass_in_fine_weather(proxy: Proxy, port: int) -> None:
    with connected(port) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_a_cut_ends_connections_and_refuses_new_ones_until_it_is_healed(proxy: Proxy, port: int) -> None:
    with connected(port) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        proxy.cut()
        assert silent(client)
    with connected(port) as refused:
        assert silent(refused)

    proxy.heal()

    with connected(port) as client:
        client.sendall(b"b")
        assert client.recv(1) == b"b"


def test_no_weather_takes_bytes_out_of_a_living_connection(proxy: Proxy, target: Target, port: int) -> None:
    weather = (lambda: proxy.slow(0.01), proxy.hold, proxy.hasten, proxy.release, proxy.repair, proxy.hold, proxy.heal)
    sent = [f"{number:08}".encode() for number in range(len(weather) * 100)]
    with connected(port) as client:
        for number, text in enumerate(sent):
            if number % 100 == 0:
                weather[number // 100]()
            client.sendall(text)
            time.sleep(0.001)
        target.wait_for(sent[-1])

    assert target.received == b"".join(sent)
    assert proxy.slowed > 0
    assert proxy.ended == 0


def test_bytes_that_are_delayed_when_a_hold_begins_are_held(proxy: Proxy, target: Target, port: int) -> None:
    with connected(port) as client:
        client.sendall(b"before ")
        target.wait_for(b"before ")
        proxy.slow(2.0)
        client.sendall(b"late ")
        time.sleep(0.1)
        proxy.hold()
        time.sleep(2.3)

        assert proxy.held_bytes >= len(b"late ")
        assert target.received == b"before "
        proxy.release()
        target.wait_for(b"late ")


def test_the_end_of_one_fault_does_not_end_another(proxy: Proxy, target: Target, port: int) -> None:
    with connected(port) as client:
        client.sendall(b"before ")
        assert client.recv(100) == b"before "
        proxy.hold()
        client.sendall(b"late ")
        while not proxy.held_bytes:
            time.sleep(0.01)
        proxy.repair()
        proxy.hasten()
        time.sleep(0.2)
        assert target.received == b"before "

        proxy.cut()

        assert silent(client)
        assert (proxy.ended, proxy.held_bytes) == (1, 0)
        proxy.release()
        with connected(port) as refused:
            assert silent(refused)
        assert proxy.ended == 2


@pytest.mark.parametrize("linger", [(0, 0), (1, 0)], ids=["in good order", "by a reset"])
@pytest.mark.parametrize("echo_held", [False, True], ids=["no response held", "a response held"])
def test_held_bytes_arrive_after_their_sender_has_closed_and_new_connections_are_not_held(
    proxy: Proxy, target: Target, port: int, linger: tuple[int, int], echo_held: bool
) -> None:
    client = connected(port)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *linger))
    if echo_held:  # the response to "before " waits in the other direction, and its receiver closes
        proxy.slow(1.5)
        client.sendall(b"before ")
        target.wait_for(b"before ")
        proxy.hasten()
    else:
        client.sendall(b"before ")
        assert client.recv(100) == b"before "
    proxy.hold()
    held = len(b"before ") if echo_held else 0
    client.sendall(b"late ")
    while proxy.held_bytes < held + len(b"late "):
        time.sleep(0.01)
    client.sendall(b"and more ")
    while proxy.held_bytes < held + len(b"late and more "):
        time.sleep(0.01)
    with connected(port) as other:
        other.sendall(b"free ")
        assert other.recv(100) == b"free "
    client.close()
    assert b"late" not in target.received

    proxy.release()

    target.wait_for(b"late and more ")


def silent(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_only_chosen_connections_are_silenced_and_end_with_the_silence(proxy: Proxy, target: Target, port: int) -> None:
    chosen: set[int] = set()
    with connected(port) as cut_off, connected(port) as other:
        for client in (cut_off, other):
            client.sendall(b"before ")
            assert client.recv(100) == b"before "
        chosen.add(cut_off.getsockname()[1])
        proxy.silence(lambda: chosen)
        cut_off.sendall(b"lost ")
        other.sendall(b"other ")
        assert other.recv(100) == b"other "
        cut_off.settimeout(0.3)
        with pytest.raises(TimeoutError):  # open, and without a response
            cut_off.recv(100)

        proxy.release()  # of what is held only
        with pytest.raises(TimeoutError):
            cut_off.recv(100)
        cut_off.settimeout(TIMEOUT_S)
        proxy.end_silence()

        assert silent(cut_off)
        other.sendall(b"after ")
        assert other.recv(100) == b"after "
    assert b"lost" not in target.received


def test_a_slow_look_up_of_the_silenced_client_delays_no_other_connection(proxy: Proxy, port: int) -> None:
    begun, over, looks = threading.Event(), threading.Event(), count()

    def looked_up_slowly() -> set[int]:
        if next(looks):  # the first is for the connections that exist, and its caller waits for it
            begun.set()
            over.wait(TIMEOUT_S)
        return set()

    with connected(port) as before:
        proxy.silence(looked_up_slowly)
        with connected(port) as new:
            assert begun.wait(TIMEOUT_S)
            before.sendall(b"a")
            assert before.recv(1) == b"a"  # while the look-up lasts
            over.set()
            new.sendall(b"b")
            assert new.recv(1) == b"b"


def test_new_connections_of_a_silenced_client_are_silenced(proxy: Proxy, target: Target, port: int) -> None:
    chosen = set[int]()
    proxy.silence(lambda: chosen)
    with socket.socket() as client:
        client.bind((LOOPBACK, 0))
        chosen.add(client.getsockname()[1])
        client.connect((LOOPBACK, port))
        client.sendall(b"lost ")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(100)
        client.settimeout(TIMEOUT_S)
        proxy.heal()
        assert silent(client)
    with connected(port) as client:
        client.sendall(b"after ")
        assert client.recv(100) == b"after "
    assert b"lost" not in target.received
