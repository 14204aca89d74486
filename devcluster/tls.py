"""A short-lived certificate authority for a development cluster, with certificates of its brokers and of a client.

Writes PEM files as Kafka reads them since KIP-651. Must not know clusters; the names in the certificates are this machine's
own.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devcluster.ports import LOOPBACK

VALID = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Paths of the authority's certificate, and of the keys with certificates of brokers and client."""

    authority: Path
    broker: Path
    client: Path  # CN=link


def certificates_in(directory: Path) -> Certificates:
    """Return the paths, whether the files exist or not."""
    return Certificates(authority=directory / "authority.pem", broker=directory / "broker.pem", client=directory / "client.pem")


def write_certificates(directory: Path) -> None:
    """Create an authority and certificates for 127.0.0.1 signed by it, unless they exist."""
    files = certificates_in(directory)
    if files.broker.exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    root_key, root_name = ec.generate_private_key(ec.SECP256R1()), _name("Development authority")
    root = _certificate(subject=root_name, issuer=root_name, key=root_key, signer=root_key, authority=True)
    for file, owner in ((files.client, "link"), (files.broker, "broker")):
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = _certificate(subject=_name(owner), issuer=root_name, key=key, signer=root_key, authority=False)
        file.touch(mode=0o600)
        file.write_bytes(_private_pem(key) + _pem(leaf) + _pem(root))
    files.authority.write_bytes(_pem(root))


def _certificate(
    *, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey,
    authority: bool,
) -> x509.Certificate:  # fmt: skip
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(LOOPBACK))])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    return (builder if authority else builder.add_extension(names, critical=False)).sign(signer, hashes.SHA256())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
