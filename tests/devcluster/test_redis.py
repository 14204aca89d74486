"""The development Redis: responds at its URL, and keeps its data after a kill if it is append-only."""

from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import redis

from devcluster.redis import RedisServer


def test_the_shared_server_responds_at_its_url(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()


def test_an_append_only_server_keeps_its_data_after_a_kill(tmp_path: Path) -> None:
    with RedisServer(directory=tmp_path, append_only=True) as server, redis.Redis.from_url(server.url) as client:
        client.set("name", "value")
        server.kill()
        server.start()

        assert client.get("name") == b"value"


def test_a_client_without_the_password_is_refused(redis_server: RedisServer) -> None:
    with redis.Redis(host="127.0.0.1", port=redis_server.port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_the_password_is_neither_an_argument_nor_readable_by_others(redis_server: RedisServer) -> None:
    password = urlsplit(redis_server.url).password or "?"
    processes = [
        process for process in psutil.process_iter(["cmdline"]) if str(redis_server.port) in (process.info["cmdline"] or [])
    ]

    assert not [process for process in processes if password in " ".join(process.info["cmdline"])]
    assert password in (redis_server.directory / "redis.conf").read_text()
    assert (redis_server.directory / "redis.conf").stat().st_mode & 0o077 == 0
