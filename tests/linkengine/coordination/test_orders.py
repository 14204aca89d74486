"""Orders to copy tasks through a real Redis."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from devcluster.redis import RedisServer
from linkengine.coordination.client import redis_answers
from linkengine.coordination.lease import RedisLease
from linkengine.coordination.orders import RedisOrders, clear_orders, write_orders
from linkengine.domain.leases import CoordinationUnavailableError, OrdersSnapshot
from linkengine.domain.signatures import Signer
from tests.signing import OTHER, SIGNER


@pytest.fixture
def link_id() -> str:
    return f"link-{secrets.token_hex(6)}"


def test_a_task_reads_what_was_written_last(redis_url: str, link_id: str) -> None:
    assert write_orders(redis_url, link_id, SIGNER, revision=1, wanted={"a": True, "b": True})
    assert write_orders(redis_url, link_id, SIGNER, revision=2, wanted={"a": False})

    assert RedisOrders(redis_url, link_id, SIGNER).read() == OrdersSnapshot(revision=2, wanted={"a": False})


def test_without_a_record_there_is_no_news(redis_url: str, link_id: str) -> None:
    assert RedisOrders(redis_url, link_id, SIGNER).read() is None

    write_orders(redis_url, link_id, SIGNER, revision=1, wanted={})
    clear_orders(redis_url, link_id)

    assert RedisOrders(redis_url, link_id, SIGNER).read() is None


def test_a_record_without_mirrors_is_news(redis_url: str, link_id: str) -> None:
    write_orders(redis_url, link_id, SIGNER, revision=1, wanted={})

    assert RedisOrders(redis_url, link_id, SIGNER).read() == OrdersSnapshot(revision=1, wanted={})


def test_a_lower_revision_changes_nothing(redis_url: str, link_id: str) -> None:
    write_orders(redis_url, link_id, SIGNER, revision=7, wanted={"a": False})

    assert not write_orders(redis_url, link_id, SIGNER, revision=6, wanted={"a": True})
    assert RedisOrders(redis_url, link_id, SIGNER).read() == OrdersSnapshot(revision=7, wanted={"a": False})


def test_the_same_revision_may_carry_new_orders(redis_url: str, link_id: str) -> None:
    write_orders(redis_url, link_id, SIGNER, revision=7, wanted={"a": True})
    write_orders(redis_url, link_id, SIGNER, revision=7, wanted={"a": False})

    assert RedisOrders(redis_url, link_id, SIGNER).read() == OrdersSnapshot(revision=7, wanted={"a": False})


def test_a_new_life_of_a_mirror_is_a_change(redis_url: str, link_id: str) -> None:
    orders = RedisOrders(redis_url, link_id, SIGNER)
    for life in ("source-1 mirror-1", "source-1 mirror-2"):
        write_orders(redis_url, link_id, SIGNER, revision=1, wanted={"a": True}, lives={"a": life})
        assert orders.read() == OrdersSnapshot(revision=1, wanted={"a": True}, lives={"a": life})


def test_a_reader_that_has_read_before_sees_every_change(redis_url: str, link_id: str) -> None:
    orders, written = RedisOrders(redis_url, link_id, SIGNER), [(7, True), (7, True), (7, False), (8, False), (8, True)]
    for revision, go_on in written:
        write_orders(redis_url, link_id, SIGNER, revision=revision, wanted={"a": go_on})
        assert orders.read() == orders.read() == OrdersSnapshot(revision=revision, wanted={"a": go_on})

    clear_orders(redis_url, link_id)
    assert orders.read() is None

    write_orders(redis_url, link_id, SIGNER, revision=1, wanted={"a": True})
    assert orders.read() == OrdersSnapshot(revision=1, wanted={"a": True})


@pytest.mark.parametrize("word", ["revision", "issued", "signature"])
def test_a_mirror_cannot_be_called_like_a_field_of_the_record(redis_url: str, link_id: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        write_orders(redis_url, link_id, SIGNER, revision=1, wanted={word: True})


def test_a_link_may_have_ten_thousand_mirrors(redis_url: str, link_id: str) -> None:
    wanted = {f"mirror-{number}": bool(number % 2) for number in range(10_000)}

    write_orders(redis_url, link_id, SIGNER, revision=1, wanted=wanted)

    assert RedisOrders(redis_url, link_id, SIGNER).read() == OrdersSnapshot(revision=1, wanted=wanted)


def test_a_reader_never_sees_half_a_record(redis_url: str, link_id: str) -> None:
    write_orders(redis_url, link_id, SIGNER, revision=0, wanted={"0": True})
    done = threading.Event()

    def write() -> None:
        for revision in range(1, 300):
            write_orders(redis_url, link_id, SIGNER, revision=revision, wanted={str(revision): True})
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    orders, seen = RedisOrders(redis_url, link_id, SIGNER), []
    while not done.is_set():
        seen.append(orders.read())
    writer.join(10)

    assert all(one is not None and one.wanted == {str(one.revision): True} for one in seen)


def test_without_redis_both_sides_say_so(own_redis: RedisServer, link_id: str) -> None:
    orders = RedisOrders(own_redis.url, link_id, SIGNER)
    own_redis.kill()

    with pytest.raises(CoordinationUnavailableError):
        orders.read()
    with pytest.raises(CoordinationUnavailableError):
        write_orders(own_redis.url, link_id, SIGNER, revision=1, wanted={})


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
    assert RedisOrders(own_redis.url, link_id, SIGNER).read() is None


def test_a_replica_that_has_lost_its_primary_is_waited_for(own_redis: RedisServer, link_id: str) -> None:
    admin = redis.Redis.from_url(own_redis.url)
    admin.config_set("replica-serve-stale-data", "no")
    admin.replicaof("127.0.0.1", "1")

    with pytest.raises(CoordinationUnavailableError):
        RedisOrders(own_redis.url, link_id, SIGNER).read()
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


# --- somebody else writes into Redis ------------------------------------------------------------------------------
@pytest.fixture
def admin(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


def refused(admin: redis.Redis, kind: str) -> int:
    return int(admin.hget("refused", kind) or 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "forged",
    [
        {"revision": "9", "a": "0"},  # not signed
        {"revision": "9", "a": "0", "issued": "99999999999999", "signature": "00" * 32},
        {"a": "0"},
        {"anything": "else", "signature": "\u00e4"},
    ],
)
def test_a_forged_record_changes_nothing_and_is_overwritten(
    redis_url: str, link_id: str, admin: redis.Redis, forged: dict[str, str]
) -> None:
    write_orders(redis_url, link_id, SIGNER, revision=3, wanted={"a": True})
    orders, before = RedisOrders(redis_url, link_id, SIGNER), refused(admin, "orders")
    assert orders.read() == OrdersSnapshot(revision=3, wanted={"a": True})

    admin.delete(f"orders:{link_id}")
    admin.hset(f"orders:{link_id}", mapping=forged)

    assert orders.read() == orders.read() == OrdersSnapshot(revision=3, wanted={"a": True})
    assert RedisOrders(redis_url, link_id, SIGNER).read() is None  # a task that begins now carries on with its plan
    assert refused(admin, "orders") == before + 1
    assert write_orders(redis_url, link_id, SIGNER, revision=3, wanted={"a": False})
    assert orders.read() == OrdersSnapshot(revision=3, wanted={"a": False})


def test_a_field_changed_under_a_valid_signature_changes_nothing(redis_url: str, link_id: str, admin: redis.Redis) -> None:
    write_orders(redis_url, link_id, SIGNER, revision=3, wanted={"a": True})
    orders = RedisOrders(redis_url, link_id, SIGNER)
    orders.read()

    admin.hset(f"orders:{link_id}", "a", "0")

    assert orders.read() == OrdersSnapshot(revision=3, wanted={"a": True})
    assert RedisOrders(redis_url, link_id, SIGNER).read() is None


def test_orders_of_another_link_change_nothing(redis_url: str, link_id: str, admin: redis.Redis) -> None:
    write_orders(redis_url, f"{link_id}-other", SIGNER, revision=9, wanted={"a": False})
    admin.copy(f"orders:{link_id}-other", f"orders:{link_id}")

    assert RedisOrders(redis_url, link_id, SIGNER).read() is None


def test_orders_that_were_in_force_before_cannot_be_put_back(
    redis_url: str, link_id: str, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linkengine.coordination.orders.STEP_MS", 1)
    write_orders(redis_url, link_id, SIGNER, revision=3, wanted={"a": True})
    admin.copy(f"orders:{link_id}", f"orders:{link_id}-kept")
    time.sleep(1.1)  # Redis' seconds
    write_orders(redis_url, link_id, SIGNER, revision=3, wanted={"a": False})
    orders = RedisOrders(redis_url, link_id, SIGNER)
    orders.read()

    admin.copy(f"orders:{link_id}-kept", f"orders:{link_id}", replace=True)

    assert orders.read() == OrdersSnapshot(revision=3, wanted={"a": False})


def test_orders_expire(redis_url: str, link_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_orders(redis_url, link_id, SIGNER, revision=3, wanted={"a": False})
    monkeypatch.setattr("linkengine.coordination.orders.LIVES_MS", -1)

    assert RedisOrders(redis_url, link_id, SIGNER).read() is None


def test_a_task_verifies_with_each_key_of_its_plan_while_keys_are_rotated(redis_url: str, link_id: str) -> None:
    write_orders(redis_url, link_id, SIGNER, revision=3, wanted={"a": False})

    assert RedisOrders(redis_url, link_id, OTHER).read() is None
    both = Signer((*OTHER.keys, *SIGNER.keys))
    assert RedisOrders(redis_url, link_id, both).read() == OrdersSnapshot(revision=3, wanted={"a": False})
