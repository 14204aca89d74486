"""Redis with Sentinel: store, leases and Celery follow a real failover."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import Connection, Queue

from console.queue.transport import SentinelTransport, broker_settings
from console.redis import heartbeats as redis_health
from console.redis import redis_client
from devcluster.ports import LOOPBACK
from devcluster.sentinel import PASSWORD, SentinelRedis
from linkengine.coordination.lease import RedisLease
from linkengine.domain.workers import CoordinationUnavailableError
from linkengine.redisaddress import connect

pytestmark = pytest.mark.timeout(120)
FAILOVER_S = 30.0  # about 3 s on two idle cores


@pytest.fixture
def servers() -> Iterator[SentinelRedis]:
    with SentinelRedis() as started:
        yield started


def eventually(work: Callable[[], Any], *failures: type[Exception]) -> Any:
    """Repeat until it succeeds; return its result."""
    deadline = time.monotonic() + FAILOVER_S
    while True:
        try:
            return work()
        except failures:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def celery(url: str) -> Celery:
    address, tls, options = broker_settings(url)
    app = Celery(broker=address, set_as_current=False)
    app.conf.update(broker_use_ssl=tls, task_default_queue="control", broker_transport_options={"socket_timeout": 1, **options})
    return app


def test_store_leases_and_celery_follow_a_failover(servers: SentinelRedis, settings: Any) -> None:
    settings.REDIS_URL = servers.url
    lease = RedisLease(servers.url, ttl_ms=60_000)
    (grant,) = lease.acquire_all(["a mirror/0"], "a copier")
    redis_health.note_worker()
    app = celery(servers.url)
    with app, app.connection_for_write() as connection:
        assert isinstance(connection.transport, SentinelTransport)
        app.send_task("before", connection=connection, retry=False)
        _wait_for_replica(servers)
        first = servers.primary()
        servers.kill(first)

        with pytest.raises(redis.RedisError):
            redis_client().ping()
        with pytest.raises(CoordinationUnavailableError):
            lease.renew([grant])

        assert eventually(lambda: redis_client().ping(), redis.RedisError)
        assert servers.primary() != first
        assert redis_health.heartbeat_age_ms() is not None  # replicated before
        assert lease.renew([grant]) == {"a mirror/0"}
        assert not RedisLease(servers.url, ttl_ms=60_000).acquire_all(["a mirror/0"], "another")
    with celery(servers.url) as app:
        eventually(lambda: app.send_task("after", retry=False), Exception)
        assert _take_all(app.connection()) == ["before", "after"]


def test_connections_to_a_demoted_primary_are_replaced(servers: SentinelRedis, settings: Any) -> None:
    """A primary that only hung returns as a replica; open connections to it must not keep failing with READONLY."""
    settings.REDIS_URL = servers.url
    client = connect(servers.url, socket_timeout=1.0)
    client.set("a", "1")
    _wait_for_replica(servers)
    first = servers.primary()
    servers.pause(first)
    other = redis.Redis(host=LOOPBACK, port=next(p for p in servers.server_ports if p != first), password=PASSWORD)
    eventually(lambda: _assert_role(other, "master"), AssertionError)
    servers.resume(first)
    demoted = redis.Redis(host=LOOPBACK, port=first, password=PASSWORD)
    eventually(lambda: _assert_role(demoted, "slave"), AssertionError)

    eventually(lambda: client.set("b", "2"), redis.RedisError)

    assert other.get("b") == b"2"


def test_one_sentinel_is_enough_to_find_the_primary(servers: SentinelRedis) -> None:
    for port in servers.sentinel_ports[:2]:
        servers.kill(port)

    assert connect(servers.url, socket_timeout=1.0).ping()


@pytest.mark.network
def test_connecting_without_any_sentinel_fails_quickly() -> None:
    client = connect("redis+sentinel://127.0.0.1:1,127.0.0.1:2/main", socket_timeout=1.0)
    began = time.monotonic()

    with pytest.raises(redis.ConnectionError):
        client.ping()

    assert time.monotonic() - began < 5  # it does not retry


def test_tls_reaches_sentinels_and_servers() -> None:
    client = connect("rediss+sentinel://:p@127.0.0.1:1/main?ssl_ca_certs=/ca.pem&sentinel_password=s")
    pool: Any = client.connection_pool
    _, tls, options = broker_settings("rediss+sentinel://:p@127.0.0.1:1/main?ssl_ca_certs=/ca.pem&sentinel_password=s")

    assert "SSL" in pool.connection_class.__name__
    assert pool.connection_kwargs["ssl_ca_certs"] == "/ca.pem"
    (sentinel,) = pool.sentinel_manager.sentinels
    assert "SSL" in sentinel.connection_pool.connection_class.__name__
    assert sentinel.connection_pool.connection_kwargs["password"] == "s"
    assert isinstance(tls, dict)
    assert (tls["ssl_ca_certs"], tls["ssl_check_hostname"]) == ("/ca.pem", True)
    assert (options["sentinel_kwargs"]["ssl"], options["sentinel_kwargs"]["ssl_ca_certs"]) == (True, "/ca.pem")


def _wait_for_replica(servers: SentinelRedis) -> None:
    primary = redis.Redis(host=LOOPBACK, port=servers.primary(), password=PASSWORD)
    assert primary.wait(1, 10_000) == 1


def _assert_role(client: redis.Redis, role: str) -> None:
    try:
        found = client.info("replication")["role"]
    except redis.RedisError as error:
        raise AssertionError from error
    assert found == role


def _take_all(connection: Connection) -> list[str]:
    queue, names = Queue("control")(connection.default_channel), []
    while message := queue.get(no_ack=True):
        names.append(message.headers["task"])
    return names
