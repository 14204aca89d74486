"""Orders to copy tasks through a real Redis."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable

import pytest
import redis

from devcluster.redis import RedisServer
from linkengine.coordination.client import redis_answers
from linkengine.coordination.lease import RedisLease
from linkengine.coordination.orders import RedisOrders, clear_orders, write_orders
from linkengine.domain.leases import CoordinationUnavailableError, OrdersSnapshot


@pytest.fixture
def link_id() -> str:
    return f"link-{secrets.token_hex(6)}"


def test_a_task_reads_what_was_written_last(redis_url: str, link_id: str) -> None:
    assert write_orders(redis_url, link_id, revision=1, wanted={"a": True, "b": True})
    assert write_orders(redis_url, link_id, revision=2, wanted={"a": False})

    assert RedisOrders(redis_url, link_id).read() == OrdersSnapshot(revision=2, wanted={"a": False})


def test_without_a_record_there_is_no_news(redis_url: str, link_id: str) -> None:
    assert RedisOrders(redis_url, link_id).read() is None

    write_orders(redis_url, link_id, revision=1, wanted={})
    clear_orders(redis_url, link_id)

    assert RedisOrders(redis_url, link_id).read() is None


def test_a_record_without_mirrors_is_news(redis_url: str, link_id: str) -> None:
    write_orders(redis_url, link_id, revision=1, wanted={})

    assert RedisOrders(redis_url, link_id).read() == OrdersSnapshot(revision=1, wanted={})


def test_a_lower_revision_changes_nothing(redis_url: str, link_id: str) -> None:
    write_orders(redis_url, link_id, revision=7, wanted={"a": False})

    assert not write_orders(redis_url, link_id, revision=6, wanted={"a": True})
    assert RedisOrders(redis_url, link_id).read() == OrdersSnapshot(revision=7, wanted={"a": False})


def test_the_same_revision_may_carry_new_orders(redis_url: str, link_id: str) -> None:
    write_orders(redis_url, link_id, revision=7, wanted={"a": True})
    write_orders(redis_url, link_id, revision=7, wanted={"a": False})

    assert RedisOrders(redis_url, link_id).read() == OrdersSnapshot(revision=7, wanted={"a": False})


def test_a_new_life_of_a_mirror_is_a_change(redis_url: str, link_id: str) -> None:
    orders = RedisOrders(redis_url, link_id)
    for life in ("source-1 mirror-1", "source-1 mirror-2"):
        write_orders(redis_url, link_id, revision=1, wanted={"a": True}, lives={"a": life})
        assert orders.read() == OrdersSnapshot(revision=1, wanted={"a": True}, lives={"a": life})


def test_a_reader_that_has_read_before_sees_every_change(redis_url: str, link_id: str) -> None:
    orders, written = RedisOrders(redis_url, link_id), [(7, True), (7, True), (7, False), (8, False), (8, True)]
    for revision, go_on in written:
        write_orders(redis_url, link_id, revision=revision, wanted={"a": go_on})
        assert orders.read() == orders.read() == OrdersSnapshot(revision=revision, wanted={"a": go_on})

    clear_orders(redis_url, link_id)
    assert orders.read() is None

    write_orders(redis_url, link_id, revision=1, wanted={"a": True})
    assert orders.read() == OrdersSnapshot(revision=1, wanted={"a": True})


@pytest.mark.parametrize("word", ["revision", "digest"])
def test_a_mirror_cannot_be_called_like_a_field_of_the_record(redis_url: str, link_id: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        write_orders(redis_url, link_id, revision=1, wanted={word: True})


def test_a_link_may_have_ten_thousand_mirrors(redis_url: str, link_id: str) -> None:
    wanted = {f"mirror-{number}": bool(number % 2) for number in range(10_000)}

    write_orders(redis_url, link_id, revision=1, wanted=wanted)

    assert RedisOrders(redis_url, link_id).read() == OrdersSnapshot(revision=1, wanted=wanted)


def test_a_reader_never_sees_half_a_record(redis_url: str, link_id: str) -> None:
    write_orders(redis_url, link_id, revision=0, wanted={"0": True})
    done = threading.Event()

    def write() -> None:
        for revision in range(1, 300):
            write_orders(redis_url, link_id, revision=revision, wanted={str(revision): True})
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    orders, seen = RedisOrders(redis_url, link_id), []
    while not done.is_set():
        seen.append(orders.read())
    writer.join(10)

    assert all(one is not None and one.wanted == {str(one.revision): True} for one in seen)


def test_without_redis_both_sides_say_so(own_redis: RedisServer, link_id: str) -> None:
    orders = RedisOrders(own_redis.url, link_id)
    own_redis.kill()

    with pytest.raises(CoordinationUnavailableError):
        orders.read()
    with pytest.raises(CoordinationUnavailableError):
        write_orders(own_redis.url, link_id, revision=1, wanted={})


def disk_full(server: RedisServer, admin: redis.Redis) -> None:
    """Let the server fail to save what it holds; from then on it refuses to write."""
    admin.config_set("save", "3600 1")
    shutil.rmtree(server.directory)
    admin.bgsave()
    while admin.info("persistence")["rdb_last_bgsave_status"] == "ok":
        time.sleep(0.02)


def memory_full(_: RedisServer, admin: redis.Redis) -> None:
    admin.config_set("maxmemory", 1)


def no_replicas(_: RedisServer, admin: redis.Redis) -> None:
    admin.config_set("min-replicas-to-write", 1)


@pytest.mark.parametrize("fill", [disk_full, memory_full, no_replicas])
def test_a_redis_that_refuses_to_write_is_waited_for(
    own_redis: RedisServer, link_id: str, fill: Callable[[RedisServer, redis.Redis], None]
) -> None:
    fill(own_redis, redis.Redis.from_url(own_redis.url))

    with pytest.raises(CoordinationUnavailableError):
        RedisLease(own_redis.url, ttl_ms=1_000).acquire(link_id, "slice")
    assert RedisOrders(own_redis.url, link_id).read() is None


def test_a_replica_that_has_lost_its_primary_is_waited_for(own_redis: RedisServer, link_id: str) -> None:
    admin = redis.Redis.from_url(own_redis.url)
    admin.config_set("replica-serve-stale-data", "no")
    admin.replicaof("127.0.0.1", "1")

    with pytest.raises(CoordinationUnavailableError):
        RedisOrders(own_redis.url, link_id).read()
    with pytest.raises(CoordinationUnavailableError):
        RedisLease(own_redis.url, ttl_ms=1_000).acquire(link_id, "slice")


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.ClusterDownError("The cluster is down"),
        redis.exceptions.TryAgainError("Multiple keys request during rehashing of slot"),
        redis.ResponseError("CLUSTERDOWN Hash slot not served script: 0a, on @user_script:2."),
        redis.ResponseError("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
    ],
)
def test_a_cluster_that_elects_is_waited_for(error: Exception) -> None:
    with pytest.raises(CoordinationUnavailableError), redis_answers("do it"):
        raise error


def test_what_nobody_can_wait_out_is_a_bug() -> None:
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"), redis_answers("do it"):
        raise redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
