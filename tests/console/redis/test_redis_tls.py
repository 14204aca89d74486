"""Redis with TLS: a server with an untrusted certificate gets neither the password nor tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from devcluster import parts
from devcluster.ports import LOOPBACK, free_port
from devcluster.processes import Process
from devcluster.tls import Certificates, certificates_in, write_certificates

ROOT = Path(__file__).parents[3]
ELSEWHERE = "127.0.0.2"
CELERY = "from console.celery import app; app.connection().ensure_connection(max_retries=1, interval_start=0)"
PAGES = "import django; django.setup(); from console.redis import redis_client; redis_client().ping()"
COPY_WORKERS = (
    "import os; from linkengine.coordination.client import client_for as c; c(os.environ['CLUSTERLINK_REDIS_URL']).ping()"
)
ALL_CLIENTS = pytest.mark.parametrize("program", [CELERY, PAGES, COPY_WORKERS], ids=["Celery", "pages", "copy workers"])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate authority, and a certificate that it has signed for a server at 127.0.0.1."""
    directory = tmp_path_factory.mktemp("tls")
    write_certificates(directory)
    return certificates_in(directory)


@pytest.fixture(scope="module")
def port(certificates: Certificates) -> Iterator[int]:
    """The port of a Redis server at two addresses that accepts TLS only; its certificate is for the first."""
    found, directory = free_port(), certificates.authority.parent
    command = [parts.program("redis-server", package="redis-server"), "--bind", LOOPBACK, ELSEWHERE]
    command += ["--port", "0", "--save", "", "--dir", str(directory)]
    command += ["--tls-port", str(found), "--tls-auth-clients", "no"]
    command += ["--tls-cert-file", str(certificates.broker), "--tls-key-file", str(certificates.broker)]
    command += ["--tls-ca-cert-file", str(certificates.authority)]
    server = Process(command, name="redis", log=directory / "redis.log")

    def is_up() -> bool:
        with redis.Redis(host=LOOPBACK, port=found, ssl=True, ssl_ca_certs=str(certificates.authority)) as client:
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
def test_configured_authority_is_trusted(program: str, port: int, certificates: Certificates) -> None:
    done = connect(program, f"rediss://{LOOPBACK}:{port}/0?ssl_ca_certs={certificates.authority}")

    assert done.returncode == 0, done.stderr


@ALL_CLIENTS
def test_a_certificate_for_another_host_is_refused(program: str, port: int, certificates: Certificates) -> None:
    done = connect(program, f"rediss://{ELSEWHERE}:{port}/0?ssl_ca_certs={certificates.authority}")

    assert done.returncode != 0
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr


@ALL_CLIENTS
def test_certificate_check_can_be_disabled(program: str, port: int) -> None:
    done = connect(program, f"rediss://{LOOPBACK}:{port}/0?ssl_cert_reqs=none")

    assert done.returncode == 0, done.stderr
