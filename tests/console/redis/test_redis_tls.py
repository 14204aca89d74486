"""Redis with TLS: a server with an untrusted certificate gets neither the password nor tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devcluster import parts
from devcluster.ports import LOOPBACK, free_port
from devcluster.processes import Process

ROOT = Path(__file__).parents[3]
CELERY = "from console.celery import app; app.connection().ensure_connection(max_retries=1, interval_start=0)"
PAGES = "import django; django.setup(); from console.redis.client import redis_client; redis_client().ping()"
COPY_WORKERS = "import os; from linkengine.coordination.client import clock_ms; clock_ms(os.environ['CLUSTERLINK_REDIS_URL'])"
ALL_CLIENTS = pytest.mark.parametrize("program", [CELERY, PAGES, COPY_WORKERS], ids=["Celery", "pages", "copy workers"])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, and a certificate that it has signed for the server at 127.0.0.1."""
    path = tmp_path_factory.mktemp("tls")
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    names = {name: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("authority", "server")}
    now = datetime.now(tz=UTC)
    for name, key in (("authority", authority), ("server", server)):
        made = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["authority"])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "authority", path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))]), critical=False)
            .sign(authority, hashes.SHA256())
        )
        (path / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (path / "server.key").write_bytes(server.private_bytes(*plain))
    return path


@pytest.fixture(scope="module")
def port(directory: Path) -> Iterator[int]:
    """The port of a Redis server that accepts TLS only."""
    found = free_port()
    command = [parts.program("redis-server", package="redis-server"), "--bind", LOOPBACK, "--port", "0", "--save", ""]
    command += ["--tls-port", str(found), "--tls-auth-clients", "no", "--dir", str(directory)]
    command += ["--tls-cert-file", str(directory / "server.pem"), "--tls-key-file", str(directory / "server.key")]
    command += ["--tls-ca-cert-file", str(directory / "authority.pem")]
    server = Process(command, name="redis", log=directory / "redis.log")

    def is_up() -> bool:
        with redis.Redis(host=LOOPBACK, port=found, ssl=True, ssl_ca_certs=str(directory / "authority.pem")) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    try:
        server.wait_until(is_up, timeout_s=30)
        yield found
    finally:
        server.stop()


def connect(program: str, url: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "CLUSTERLINK_REDIS_URL": url, "DJANGO_SETTINGS_MODULE": "console.settings"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60, check=False)


@ALL_CLIENTS
def test_certificate_of_an_unknown_authority_is_refused(program: str, port: int) -> None:
    done = connect(program, f"rediss://{LOOPBACK}:{port}/0")

    assert done.returncode != 0
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr


@ALL_CLIENTS
def test_configured_authority_is_trusted(program: str, port: int, directory: Path) -> None:
    done = connect(program, f"rediss://{LOOPBACK}:{port}/0?ssl_ca_certs={directory / 'authority.pem'}")

    assert done.returncode == 0, done.stderr


@ALL_CLIENTS
def test_a_certificate_for_another_host_is_refused(program: str, port: int, directory: Path) -> None:
    done = connect(program, f"rediss://localhost:{port}/0?ssl_ca_certs={directory / 'authority.pem'}")

    assert done.returncode != 0
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr


@ALL_CLIENTS
def test_certificate_check_can_be_disabled(program: str, port: int) -> None:
    done = connect(program, f"rediss://{LOOPBACK}:{port}/0?ssl_cert_reqs=none")

    assert done.returncode == 0, done.stderr
