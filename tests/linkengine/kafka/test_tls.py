"""TLS on a real broker: the data path encrypts, verifies names, and sends a client certificate on request."""

import datetime
import ipaddress
import secrets
import select
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devcluster.kafka import KafkaCluster
from devcluster.ports import LOOPBACK, free_port
from linkengine.domain.addresses import ClusterAddress, address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.channel import Channel, LargeFrames
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import connect
from linkengine.kafka.fetch import BY_ID, FetchLimits, FetchPosition, decode_fetch, encode_fetch
from linkengine.kafka.tls import client_context


@dataclass
class Identity:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> str:
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def identity(name: str, *, issuer: Identity | None = None) -> Identity:
    """Create a key with a certificate for `name` and the loopback address, signed by `issuer` or self-signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]), critical=False)
    )
    return Identity(key, builder.sign(issuer.key if issuer else key, hashes.SHA256()))


@dataclass
class TlsCluster:
    cluster: KafkaCluster
    authority: Identity
    address: ClusterAddress  # SASL over TLS, with a client certificate


@pytest.fixture
def tls(make_cluster: Callable[..., KafkaCluster], tmp_path: Path, topic_name: str) -> TlsCluster:
    """Start a broker with an additional SASL_SSL listener that requires client certificates."""
    authority = identity("authority")
    broker, client = identity("broker", issuer=authority), identity("client", issuer=authority)
    (tmp_path / "broker.pem").write_text(broker.key_pem + broker.certificate_pem)
    (tmp_path / "authority.pem").write_text(authority.certificate_pem)
    port, settings = free_port(), {}
    cluster = make_cluster(extra=settings)
    # The listeners contain ports that are known only now: the broker gets them with a restart.
    (plan,) = cluster._plans
    settings |= tls_settings(tmp_path, port=port, known=plan.settings_file.read_text(), user=cluster.users)
    plan.settings_file.write_text(
        plan.settings_file.read_text() + "".join(f"{key}={value}\n" for key, value in settings.items())
    )
    cluster.restart()
    admin = AdminClient(cluster.client("admin"))
    admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(30)
    properties = cluster.client_properties("link") | {
        "bootstrap.servers": f"{LOOPBACK}:{port}",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.certificates": authority.certificate_pem,
        "ssl.keystore.certificate.chain": client.certificate_pem,
        "ssl.keystore.key": client.key_pem,
    }
    return TlsCluster(cluster, authority, address_from_properties(properties))


def tls_settings(directory: Path, *, port: int, known: str, user: dict[str, str]) -> dict[str, object]:
    lines = dict(line.split("=", 1) for line in known.splitlines())
    passwords = {key.replace("client", "tls"): value for key, value in lines.items() if key.startswith("listener.name.client.")}
    return passwords | {
        "listeners": f"{lines['listeners']},TLS://{LOOPBACK}:{port}",
        "advertised.listeners": f"{lines['advertised.listeners']},TLS://{LOOPBACK}:{port}",
        "listener.security.protocol.map": f"{lines['listener.security.protocol.map']},TLS:SASL_SSL",
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": directory / "broker.pem",
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.location": directory / "authority.pem",
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
    channel.send(encode_fetch({view.topic_id: [position]}, version=BY_ID, correlation_id=1, limits=limits))
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while (frame := frames.read()) is None:
        assert poll.poll(10_000), "the broker is silent"
    channel.close()
    cluster.close()
    error, _, _, (answer,) = decode_fetch(frame[1], version=BY_ID)
    assert (error, answer.error) == (0, 0)
    return bytes(answer.records)


def test_the_data_path_reads_over_tls_and_refuses_wrong_certificates(tls: TlsCluster, topic_name: str) -> None:
    payload = secrets.token_bytes(300_000)
    producer = Producer({**tls.cluster.client("admin"), "message.max.bytes": 900_000})
    for _ in range(10):
        producer.produce(topic_name, value=payload)
        producer.flush()

    records = fetch_all(tls, topic_name, size=3_500_000)

    assert records.count(payload) == 10

    # A broker start for all cases: an unknown authority, and no client certificate.
    unknown_authority = identity("unknown authority")
    refusals = [
        replace(tls.address, ssl_ca_pem=unknown_authority.certificate_pem),
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
