"""Denied networks are not connected to, whether a user or a broker names the address. Here, loopback addresses are denied."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from devcluster.kafka import KafkaCluster
from devcluster.ports import LOOPBACK
from linkengine import jobs
from linkengine.domain.addresses import DENIED_BY_DEFAULT, EVERYWHERE, ClusterAddress, restrict_connections
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.admin_session import ClientPool
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import connect
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.security import NotPermittedError, check_names, open_socket

OTHER = "127.0.0.2"  # also loopback; denied in most tests
DENIED = ("127.0.0.2/32",)
ADDRESS = ClusterAddress(bootstrap_servers="b:1", denied_networks=DENIED)


class Connects(list[Any]):
    """The targets of connection attempts: all of the test's thread, and those of other threads except to 127.0.0.1.

    Threads of other tests, such as those of proxies, may still connect to their brokers at 127.0.0.1.
    """


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> Connects:
    seen, own_thread = Connects(), threading.get_ident()

    class Recorded(socket.socket):
        def connect(self, target: Any) -> None:
            if threading.get_ident() == own_thread or target[0] != LOOPBACK:
                seen.append(target[0])
            super().connect(target)

    monkeypatch.setattr(socket, "socket", Recorded)
    return seen


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server((OTHER, 0))) as server:
        server.settimeout(0.3)
        yield server


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """Return a table of names and the results of their successive lookups; unused results show how many lookups there were."""
    table: dict[str, list[list[str]]] = {}
    original = socket.getaddrinfo

    def lookup(host: Any, port: Any, *more: Any, **words: Any) -> Any:
        if host not in table:
            return original(host, port, *more, **words)
        found = table[host].pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in found]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return table


def test_a_denied_address_is_not_connected_to(connects: Connects, listener: socket.socket) -> None:
    port = listener.getsockname()[1]

    with pytest.raises(NotPermittedError) as refused:
        connect(OTHER, port, address=ADDRESS)
    with pytest.raises(TimeoutError):
        listener.accept()

    assert connects == []
    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR
    assert "CLUSTERLINK_DENIED_NETWORKS" in refused.value.message


@pytest.mark.parametrize("spelling", ["127.0.0.2", "127.2", "0x7f000002", "2130706434", "::ffff:127.0.0.2", "017700000002"])
def test_every_spelling_of_a_denied_address_is_denied(connects: Connects, spelling: str) -> None:
    with pytest.raises(NotPermittedError):
        open_socket(spelling, 1, address=ADDRESS, timeout_s=1)

    assert connects == []


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[::ffff:169.254.169.254]", "fe80::1", "0.0.0.0", "224.0.0.1", "2852039166"]
)
def test_link_local_addresses_are_denied_by_default(connects: Connects, host: str) -> None:
    with pytest.raises(NotPermittedError):
        open_socket(host.strip("[]"), 80, address=ClusterAddress(bootstrap_servers="b:1"), timeout_s=1)

    assert connects == []


def test_the_message_does_not_depend_on_open_ports(listener: socket.socket) -> None:
    def message(port: int) -> str:
        with pytest.raises(NotPermittedError) as refused:
            connect(OTHER, port, address=ADDRESS)
        return refused.value.message.replace(f":{port} ", ": ")

    assert message(listener.getsockname()[1]) == message(1) == message(65_535)


def test_a_name_is_resolved_once_and_the_checked_address_is_used(connects: Connects, names: dict[str, list[list[str]]]) -> None:
    with closing(socket.create_server((LOOPBACK, 0))) as server:
        names["rebinding.test"] = [[LOOPBACK], [OTHER]]
        open_socket("rebinding.test", server.getsockname()[1], address=ADDRESS, timeout_s=1).close()

    assert connects == [LOOPBACK]
    assert names["rebinding.test"] == [[OTHER]]


def test_a_name_with_any_denied_address_is_denied(connects: Connects, names: dict[str, list[list[str]]]) -> None:
    names["mixed.test"] = [[LOOPBACK, OTHER]]

    with pytest.raises(NotPermittedError):
        open_socket("mixed.test", 1, address=ADDRESS, timeout_s=1)

    assert connects == []


def test_only_allowed_networks_are_connected_to(connects: Connects) -> None:
    narrow = replace(ADDRESS, allowed_networks=("10.0.0.0/8",), denied_networks=())

    with pytest.raises(NotPermittedError):
        open_socket(LOOPBACK, 1, address=narrow, timeout_s=1)

    assert connects == []


@pytest.mark.network
def test_names_that_do_not_resolve_do_not_hide_a_denied_name() -> None:
    check_names([("no-such-host.invalid", 1), (LOOPBACK, 1)], address=ADDRESS)
    with pytest.raises(NotPermittedError):
        check_names([("no-such-host.invalid", 1), ("a\0b", 1), (LOOPBACK, 1), (OTHER, 1)], address=ADDRESS)


def test_every_new_address_has_the_networks_of_the_process() -> None:
    restrict_connections(allowed=["10.0.0.0/8"], denied=["10.1.0.0/16"])
    try:
        address = address_from_properties({"bootstrap.servers": "b:1"})
    finally:
        restrict_connections(allowed=EVERYWHERE, denied=DENIED_BY_DEFAULT)

    assert (address.permits("10.2.0.1"), address.permits("10.1.0.1"), address.permits("11.0.0.1")) == (True, False, False)
    assert address_from_properties({"bootstrap.servers": "b:1"}).denied_networks == DENIED_BY_DEFAULT


class Forwarder:
    """Forwards connections from a loopback address to a broker, which advertises another address."""

    def __init__(self, port: int) -> None:
        self._server = socket.create_server((OTHER, 0))
        self._target = (LOOPBACK, port)
        self.servers = "{}:{}".format(*self._server.getsockname())
        self.taken = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client_side, _ = self._server.accept()
            except OSError:
                return
            self.taken += 1
            broker_side = socket.create_connection(self._target)
            for sender, receiver in ((client_side, broker_side), (broker_side, client_side)):
                threading.Thread(target=_pump, args=(sender, receiver), daemon=True).start()

    def close(self) -> None:
        self._server.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    finally:
        target.close()


@pytest.fixture
def advertised(source_cluster: KafkaCluster) -> Iterator[ClusterAddress]:
    """Yield an allowed bootstrap server whose cluster advertises a broker at a denied address."""
    address = address_from_properties(source_cluster.client_properties("admin"))
    forwarder = Forwarder(int(address.bootstrap_servers.rpartition(":")[2]))
    yield replace(address, bootstrap_servers=forwarder.servers, denied_networks=(f"{LOOPBACK}/32",))
    forwarder.close()


@pytest.mark.kafka
def test_a_broker_that_is_advertised_at_a_denied_address_is_not_connected_to(advertised: ClusterAddress) -> None:
    cluster = Cluster(advertised)
    cluster.topics([])  # from the bootstrap server

    with pytest.raises(NotPermittedError, match=rf"{LOOPBACK}:\d+ is not in a network"):
        cluster.open(cluster.brokers()[0])
    cluster.close()


@pytest.mark.kafka
def test_no_librdkafka_client_is_created_for_a_cluster_that_advertises_a_denied_address(
    advertised: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linkengine.kafka.admin_session.make_client", lambda *_: pytest.fail("a client was created"))

    with pytest.raises(NotPermittedError):
        check_reachable(advertised)
    with pytest.raises(LinkEngineError, match="is not in a network"):
        ClusterAdmin(advertised).probe()
    with pytest.raises(LinkEngineError, match="is not in a network"):
        jobs.probe_cluster(advertised)


@pytest.mark.kafka
def test_the_addresses_of_a_pooled_client_are_checked_again(
    source_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = address_from_properties(source_cluster.client_properties("admin"))
    address = replace(address, cluster_id=source_cluster.cluster_id)
    pool = ClientPool()
    pool.take(address)
    monkeypatch.setattr("linkengine.kafka.admin_session.IDENTIFIED_S", 0.0)
    monkeypatch.setattr(ClusterAddress, "permits", lambda *_: False)  # as after a change in DNS

    with pytest.raises(NotPermittedError):
        pool.take(address)


@pytest.mark.kafka
def test_a_second_bootstrap_server_at_a_denied_address_is_refused(source_cluster: KafkaCluster, connects: Connects) -> None:
    address = address_from_properties(source_cluster.client_properties("admin"))
    both = replace(address, bootstrap_servers=f"{address.bootstrap_servers},{OTHER}:1", denied_networks=DENIED)

    with pytest.raises(NotPermittedError, match=OTHER):
        check_reachable(both)

    assert OTHER not in connects
