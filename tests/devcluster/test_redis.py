"""The development Redis: answers where the settings say, keeps data over a kill when asked to."""

from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import redis

from devcluster.redis import RedisServer


def test_shared_server_answers_at_its_address(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()


def test_append_only_server_keeps_its_data_over_a_kill(tmp_path: Path) -> None:
    with RedisServer(directory=tmp_path, append_only=True) as server, redis.Redis.from_url(server.url) as client:
        client.set("name", "value")
        server.kill()
        server.start()

        assert client.get("name") == b"value"


def test_without_the_password_nothing_is_answered(redis_server: RedisServer) -> None:
    with redis.Redis(host="127.0.0.1", port=redis_server.port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_the_password_is_no_argument_and_in_no_file_that_others_can_read(redis_server: RedisServer) -> None:
    password = urlsplit(redis_server.url).password or "?"
    processes = [one for one in psutil.process_iter(["cmdline"]) if str(redis_server.port) in (one.info["cmdline"] or [])]

    assert not [one for one in processes if password in " ".join(one.info["cmdline"])]
    assert password in (redis_server.directory / "redis.conf").read_text()
    assert (redis_server.directory / "redis.conf").stat().st_mode & 0o077 == 0
