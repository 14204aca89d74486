"""deploy/redis.sh: a password from the environment or a file, which no argument of a process shows; other health checks."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from deploy.check import problem
from devcluster.ports import LOOPBACK, accepts, free_port
from devcluster.processes import Process
from tests.test_deployment import SERVICES

ROOT = Path(__file__).resolve().parents[1]
PASSWORD = 'p"a\\ss #w$ord' + secrets.token_hex(8)


@pytest.fixture(params=["environment", "file", "both"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, Process, dict[str, str]]]:
    """Redis as docker-compose.yml starts it: port, process, and its variables, of which that of a file counts first."""
    port = free_port()
    variables = {"REDIS_PASSWORD": PASSWORD}
    if request.param != "environment":
        (tmp_path / "password").write_text(f"{PASSWORD}\n")
        other = "another" if request.param == "both" else ""
        variables = {"REDIS_PASSWORD": other, "REDIS_PASSWORD_FILE": str(tmp_path / "password")}
    command = ["sh", str(ROOT / "deploy" / "redis.sh"), "--port", str(port), "--bind", LOOPBACK, "--dir", str(tmp_path)]
    process = Process(command, name="redis", log=tmp_path / "redis.log", env={**variables, "TMPDIR": str(tmp_path)})
    try:
        process.wait_until(lambda: accepts(port), timeout_s=30)
        yield port, process, variables
    finally:
        process.stop()


def test_the_password_is_needed_and_no_argument_shows_it(server: tuple[int, Process, dict[str, str]]) -> None:
    port, process, _ = server
    with redis.Redis(host=LOOPBACK, port=port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    with redis.Redis(host=LOOPBACK, port=port, password=PASSWORD) as client:
        assert client.ping()
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("maxmemory") == {"maxmemory": str(384 << 20)}

    assert b"redis-server" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if PASSWORD.encode() in _read(path)]


def test_the_health_check_of_compose_uses_the_same_password(server: tuple[int, Process, dict[str, str]]) -> None:
    port, _, variables = server
    kind, check = SERVICES["redis"]["healthcheck"]["test"]
    shell = check.replace("$$", "$").replace("redis-cli", f"redis-cli -p {port}")
    others = {"REDIS_PASSWORD": "another", "REDIS_PASSWORD_FILE": ""}

    assert kind == "CMD-SHELL"
    for environment, healthy in ((variables, True), (others, False)):
        done = subprocess.run(["sh", "-c", shell], env={**os.environ, **environment}, capture_output=True, check=False)
        assert (done.returncode == 0) is healthy


def test_redis_does_not_start_without_a_password(tmp_path: Path) -> None:
    variables = {**os.environ, "REDIS_PASSWORD": "", "REDIS_PASSWORD_FILE": ""}
    done = subprocess.run(["sh", ROOT / "deploy" / "redis.sh"], env=variables, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "Set REDIS_PASSWORD or REDIS_PASSWORD_FILE" in done.stderr


def test_a_file_is_fresh_for_some_time(tmp_path: Path) -> None:
    file = tmp_path / "alive"
    assert "No such file" in problem("fresh", str(file), "60")

    file.touch()
    assert problem("fresh", str(file), "60") == ""

    os.utime(file, (time.time() - 61, time.time() - 61))
    assert problem("fresh", str(file), "60").endswith("was modified 61 s ago")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""
