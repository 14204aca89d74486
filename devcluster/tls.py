"""A certificate authority for a development cluster, with short-lived certificates of its brokers and of a client.

Writes PEM files as Kafka reads them since KIP-651. Must not know clusters; the names in the certificates are this machine's
own. The authority's key is not stored.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from devcluster.ports import LOOPBACK

VALID = timedelta(days=30)
ORGANIZATION = "devcluster"


def subject_of(owner: str) -> str:
    """Return the subject of a certificate as Kafka writes it in principals."""
    return f"CN={owner},OU={ORGANIZATION},O={ORGANIZATION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Paths of the authority's certificate, and of the keys with certificates of brokers and client."""

    authority: Path
    broker: Path
    client: Path  # of ``subject_of("link")``


def certificates_in(directory: Path) -> Certificates:
    """Return the paths, whether the files exist or not."""
    return Certificates(authority=directory / "authority.pem", broker=directory / "broker.pem", client=directory / "client.pem")


def write_certificates(directory: Path) -> None:
    """Create an authority and certificates for 127.0.0.1 signed by it, unless they exist."""
    files = certificates_in(directory)
    if files.broker.exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA(organization_name=ORGANIZATION)
    for file, owner in ((files.client, "link"), (files.broker, "broker")):
        leaf = authority.issue_cert(
            "localhost",
            LOOPBACK,
            common_name=owner,
            organization_name=ORGANIZATION,
            organization_unit_name=ORGANIZATION,
            not_after=datetime.now(UTC) + VALID,
        )
        file.touch(mode=0o600)
        file.write_bytes(_pkcs8(leaf.private_key_pem) + leaf.cert_chain_pems[0].bytes() + authority.cert_pem.bytes())
    authority.cert_pem.write_to_path(files.authority)


def _pkcs8(private_key: trustme.Blob) -> bytes:
    """Return a key in the only form that Kafka reads."""
    key = serialization.load_pem_private_key(private_key.bytes(), password=None)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
