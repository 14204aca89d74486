"""The development Redis: answers where the settings say, keeps data over a kill when asked to."""

from pathlib import Path

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
