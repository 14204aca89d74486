"""TLS on a real broker: the data path encrypts, verifies names, and sends a client certificate on request."""

import secrets
import select
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devcluster.broker_settings import broker_properties
from devcluster.kafka import KafkaCluster
from devcluster.listeners import listener_security
from devcluster.ports import LOOPBACK, free_port
from devcluster.tls import Certificates, certificates_in, write_certificates
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.channel import Channel, LargeFrames
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import connect
from linkengine.kafka.requests import FETCH_BY_ID, FetchLimits, FetchPosition, decode_fetch, encode_fetch
from linkengine.kafka.security import client_context


@dataclass
class TlsCluster:
    cluster: KafkaCluster
    address: ClusterAddress  # SASL over TLS, with a client certificate


@pytest.fixture
def tls(tmp_path: Path, topic_name: str) -> Iterator[TlsCluster]:
    """Start a broker with an additional SASL_SSL listener that requires client certificates."""
    write_certificates(tmp_path)
    certificates = certificates_in(tmp_path)
    port, cluster = free_port(), KafkaCluster("own", directory=tmp_path / "own")
    (plan,) = cluster._plans
    cluster._plans = [replace(plan, extra=tls_settings(certificates, port=port, known=broker_properties(plan)))]
    with cluster:
        admin = AdminClient(cluster.client("admin"))
        admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(30)
        properties = cluster.client_properties("link") | listener_security("MTLS", certificates=certificates)
        properties |= {"bootstrap.servers": f"{LOOPBACK}:{port}", "security.protocol": "SASL_SSL"}
        yield TlsCluster(cluster, address_from_properties(properties))


def tls_settings(certificates: Certificates, *, port: int, known: str) -> dict[str, object]:
    lines = dict(line.split("=", 1) for line in known.splitlines())
    passwords = {key.replace("client", "tls"): value for key, value in lines.items() if key.startswith("listener.name.client.")}
    return passwords | {
        "listeners": f"{lines['listeners']},TLS://{LOOPBACK}:{port}",
        "advertised.listeners": f"{lines['advertised.listeners']},TLS://{LOOPBACK}:{port}",
        "listener.security.protocol.map": f"{lines['listener.security.protocol.map']},TLS:SASL_SSL",
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": certificates.broker,
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.location": certificates.authority,
        "listener.name.tls.ssl.client.auth": "required",
    }


def endpoint(address: ClusterAddress) -> tuple[str, int]:
    host, port = address.bootstrap_servers.split(":")
    return host, int(port)


def fetch_all(tls: TlsCluster, topic: str, *, size: int) -> bytes:
    """Read a partition from its start over a non-blocking channel, in a single response of `size` bytes of batches."""
    cluster = Cluster(tls.address)
    view = cluster.topics([topic])[topic]
    channel = Channel(cluster.open(view.partitions[0].broker))
    frames = LargeFrames(channel, allocate=lambda length: memoryview(bytearray(length)))
    position = FetchPosition(0, view.partitions[0].epoch, 0, size)
    limits = FetchLimits(max_bytes=size, max_wait_ms=5_000, min_bytes=3_000_000)
    channel.send(encode_fetch({view.topic_id: [position]}, version=FETCH_BY_ID, correlation_id=1, limits=limits))
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while (frame := frames.read()) is None:
        assert poll.poll(10_000), "the broker is silent"
    channel.close()
    cluster.close()
    error, _, _, (response,) = decode_fetch(frame[1], version=FETCH_BY_ID)
    assert (error, response.error) == (0, 0)
    return bytes(response.records)


def test_the_data_path_reads_over_tls_and_refuses_wrong_certificates(tls: TlsCluster, topic_name: str, tmp_path: Path) -> None:
    payload = secrets.token_bytes(300_000)
    producer = Producer({**tls.cluster.client("admin"), "message.max.bytes": 900_000})
    for _ in range(10):
        producer.produce(topic_name, value=payload)
        producer.flush()

    records = fetch_all(tls, topic_name, size=3_500_000)

    assert records.count(payload) == 10

    # A broker start for all cases: an unknown authority, and no client certificate.
    write_certificates(tmp_path / "unknown")
    unknown_authority = certificates_in(tmp_path / "unknown").authority
    refusals = [
        replace(tls.address, ssl_ca_pem=unknown_authority.read_text()),
        replace(tls.address, ssl_certificate_pem="", ssl_key_pem=""),
    ]
    for address in refusals:
        with pytest.raises(LinkEngineError) as caught:
            connect(*endpoint(address), address=address)
        assert caught.value.code in (ErrorCode.AUTHENTICATION_ERROR, ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR)
        assert caught.value.message


def test_an_unreadable_certificate_is_a_misconfiguration() -> None:
    address = ClusterAddress(bootstrap_servers="127.0.0.1:9092", security_protocol="SSL", ssl_ca_pem="no certificate")

    with pytest.raises(LinkEngineError) as caught:
        client_context(address)

    assert caught.value.code == ErrorCode.MISCONFIGURATION_ERROR
    assert "ssl.truststore.certificates" in caught.value.message
