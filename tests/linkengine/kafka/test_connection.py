"""Connections to real brokers and to closed ports: every failure has its own code and names the broker, never a password."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import connection as connections
from linkengine.kafka.channel import MAX_FRAME
from linkengine.kafka.connection import MAX_SMALL_RESPONSE, Connection, connect


def place(address: ClusterAddress) -> tuple[str, int]:
    host, port = address.bootstrap_servers.split(":")
    return host, int(port)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_mechanism_logs_in(source_cluster: KafkaCluster, mechanism: str) -> None:
    address = address_from_properties(source_cluster.client_properties("link", mechanism=mechanism))

    connection = connect(*place(address), address=address)
    request = MetadataRequest(version=connection.version_for(3, highest=12), topics=[], allow_auto_topic_creation=False)
    response: Any = connection.request(request, response=MetadataResponse)
    connection.close()

    assert response.cluster_id == source_cluster.cluster_id


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_without_being_repeated(source_cluster: KafkaCluster, mechanism: str) -> None:
    address = address_from_properties(source_cluster.client_properties("link", mechanism=mechanism))

    with pytest.raises(LinkEngineError) as caught:
        connect(*place(address), address=replace(address, sasl_password="open-sesame"))

    assert caught.value.code == ErrorCode.AUTHENTICATION_ERROR
    assert "wrong user name or password" in caught.value.message
    assert "open-sesame" not in repr(caught.value)


@pytest.mark.network
@pytest.mark.parametrize("name", ["no-such-host.invalid", "two..dots.invalid", f"{'long' * 16}.invalid"])
def test_a_name_that_does_not_resolve_has_its_own_code(name: str) -> None:
    with pytest.raises(LinkEngineError) as caught:
        connect(name, 9092, address=ClusterAddress(bootstrap_servers=f"{name}:9092"))

    assert caught.value.code == ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR


def test_a_closed_port_has_its_own_code() -> None:
    port = free_port()

    with pytest.raises(LinkEngineError) as caught:
        connect("127.0.0.1", port, address=ClusterAddress(bootstrap_servers=f"127.0.0.1:{port}"))

    assert caught.value.code == ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR
    assert str(port) in caught.value.message


def test_the_error_of_a_client_without_sasl_names_security_protocol(source: ClusterAddress) -> None:
    plain = replace(source, security_protocol="PLAINTEXT")
    connection = connect(*place(plain), address=plain)
    request = MetadataRequest(version=12, topics=[], allow_auto_topic_creation=False)

    with pytest.raises(LinkEngineError, match=r"security\.protocol"):
        connection.request(request, response=MetadataResponse)
    connection.close()


def test_tls_to_a_plain_port_raises(source: ClusterAddress) -> None:
    with pytest.raises(LinkEngineError) as caught:
        connect(*place(source), address=replace(source, security_protocol="SASL_SSL"), timeout_s=2)

    assert caught.value.code in (ErrorCode.AUTHENTICATION_ERROR, ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR)


def test_a_broker_that_is_too_old_raises(source: ClusterAddress) -> None:
    connection = connect(*place(source), address=source)

    with pytest.raises(LinkEngineError, match=r"Use brokers of Kafka 3\.1 or newer"):
        connection.version_for(1, highest=3, lowest=2)
    connection.close()


class SizeRequest:
    """A request that the stand-in for a broker understands."""

    API_VERSION = 0
    name = "AskRequest"

    def with_header(self, **_: object) -> None: ...

    def encode(self, **_: object) -> bytes:
        return b"how much?"


@dataclass(frozen=True)
class Header:
    correlation_id: int


class Size:
    """A response with a header, as every response has, that keeps the length of its frame."""

    def __init__(self, frame: bytes) -> None:
        self.header = Header(int.from_bytes(frame[:4], "big"))
        self.length = len(frame)

    @classmethod
    def decode(cls, frame: bytes, **_: object) -> Size:
        return cls(frame)


def length_of(response: Size) -> int:
    return response.length


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    client_end, broker_end = socket.socketpair()
    with client_end, broker_end:
        yield Connection(client_end, host="stand-in", port=1), broker_end


def test_a_large_response_may_take_longer_than_the_timeout_once_it_has_begun(
    ends: tuple[Connection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SLOWEST_BYTES_PER_S", 10_000)  # 50 s for this response
    connection, broker = ends

    def response() -> None:
        broker.sendall((5 * 100_000).to_bytes(4, "big"))
        for number in range(5):
            time.sleep(0.5)
            broker.sendall((1 if number == 0 else 0).to_bytes(4, "big") + bytes(99_996))

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(response)
        assert connection.request(SizeRequest(), response=Size, read=length_of, timeout_s=1.5) == 500_000
        sent.result(60)


def test_a_response_that_stops_or_never_begins_times_out(
    ends: tuple[Connection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SLOWEST_BYTES_PER_S", 1_000_000)
    connection, broker = ends
    for begun in (b"", (100_000).to_bytes(4, "big") + b"some"):
        broker.sendall(begun)
        with pytest.raises(LinkEngineError, match="did not respond in time"):
            connection.request(SizeRequest(), response=Size, timeout_s=0.2)


def test_the_maximum_response_size_can_be_raised_for_batches(ends: tuple[Connection, socket.socket]) -> None:
    connection, broker = ends
    large = (MAX_SMALL_RESPONSE + 1).to_bytes(4, "big")
    broker.sendall(large)
    with pytest.raises(LinkEngineError, match="not a response of a Kafka broker"):
        connection.request(SizeRequest(), response=Size, timeout_s=0.2)

    broker.sendall(large)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(broker.sendall, (2).to_bytes(4, "big") + bytes(MAX_SMALL_RESPONSE - 3))
        found = connection.request(SizeRequest(), response=Size, read=length_of, most_bytes=MAX_FRAME)
        assert found == MAX_SMALL_RESPONSE + 1
        sent.result(60)
