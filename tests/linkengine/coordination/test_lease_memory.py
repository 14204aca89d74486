"""The partition lease while Redis is down, and after it has lost its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from devcluster.redis import RedisServer
from linkengine.coordination.client import SOCKET_TIMEOUT_S
from linkengine.coordination.lease import RedisLease
from linkengine.domain.workers import CoordinationUnavailableError, Grant
from tests.linkengine.coordination.leasing import TTL_MS, Clock, taken, taken_in_time


def wipe(server: RedisServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()


def test_after_data_loss_the_owner_restores_its_lease_and_generation(own_redis: RedisServer, key: str) -> None:
    lease, other = (RedisLease(own_redis.url, ttl_ms=TTL_MS) for _ in range(2))
    lease.raise_generation(key, 8)
    grant = taken(lease, key)
    wipe(own_redis)

    assert lease.renew([grant]) == {key}
    assert not other.acquire_all([key], "other")
    lease.release(grant)
    assert taken(other, key).generation == 10


def test_after_data_loss_the_owner_takes_its_partition_back_from_a_new_owner(own_redis: RedisServer, key: str) -> None:
    owner, newcomer = (RedisLease(own_redis.url, ttl_ms=TTL_MS) for _ in range(2))
    grant = taken(owner, key)
    wipe(own_redis)
    mistaken = taken(newcomer, key)

    assert mistaken.generation == grant.generation
    assert owner.renew([grant]) == {key}
    assert newcomer.renew([mistaken]) == set()


def test_after_data_loss_a_new_owner_that_raised_the_generation_keeps_the_lease(own_redis: RedisServer, key: str) -> None:
    owner, newcomer = (RedisLease(own_redis.url, ttl_ms=TTL_MS) for _ in range(2))
    grant = taken(owner, key)
    wipe(own_redis)
    taken_over = taken(newcomer, key)
    newcomer.raise_generation(key, grant.generation + 1)

    assert owner.renew([grant]) == set()
    assert newcomer.renew([taken_over]) == {key}


def test_after_data_loss_a_raised_generation_counts_as_an_armed_owner_until_a_clean_release(
    own_redis: RedisServer, key: str
) -> None:
    dead, short, third, fourth, fifth = (RedisLease(own_redis.url, ttl_ms=TTL_MS) for _ in range(5))
    dead.raise_generation(key, 6)
    dead.announce_markers([taken(dead, key)])
    wipe(own_redis)

    forgetful = taken(short, key)
    assert (forgetful.generation, forgetful.clean, forgetful.markers_announced) == (1, True, False)
    assert short.raise_generation(key, 8) == 8  # the broker has a marker of generation 7
    short.release(forgetful, clean=False)
    after = taken(third, key)
    assert (after.generation, after.clean, after.markers_announced) == (9, False, True)

    third.release(after)
    assert taken(fourth, key).clean
    assert fifth.raise_generation(key, 9) == 10


def test_after_data_loss_the_owner_restores_that_it_is_armed(own_redis: RedisServer, key: str) -> None:
    lease = RedisLease(own_redis.url, ttl_ms=1_000)
    grant = taken(lease, key)
    lease.announce_markers([grant])
    wipe(own_redis)
    assert lease.announce_markers([grant]) == set()

    assert lease.renew([grant]) == {key}
    after = taken_in_time(RedisLease(own_redis.url, ttl_ms=TTL_MS), key)
    assert (after.clean, after.markers_announced) == (False, True)


def test_after_data_loss_an_owner_beyond_its_deadline_restores_nothing(own_redis: RedisServer, key: str) -> None:
    clock = Clock()
    lease = RedisLease(own_redis.url, ttl_ms=TTL_MS, clock=clock)
    grant = taken(lease, key)
    wipe(own_redis)
    clock.now += 61

    assert lease.renew([grant]) == set()
    assert not taken(lease, key).clean


@pytest.mark.parametrize(
    "call",
    [
        lambda lease, grant: lease.acquire_all(["other/0"], "worker"),
        lambda lease, grant: lease.renew([grant]),
        lambda lease, grant: lease.announce_markers([grant]),
        lambda lease, grant: lease.release(grant),
        lambda lease, grant: lease.raise_generation(grant.key, 2),
    ],
    ids=["acquire", "renew", "announce_markers", "release", "raise_generation"],
)
def test_without_redis_every_call_raises_and_the_deadline_stays(
    own_redis: RedisServer, key: str, call: Callable[[RedisLease, Grant], object]
) -> None:
    lease = RedisLease(own_redis.url, ttl_ms=TTL_MS)
    grant = taken(lease, key)
    own_redis.kill()

    with pytest.raises(CoordinationUnavailableError):
        call(lease, grant)
    assert lease.deadline(grant) == grant.valid_until


def test_a_frozen_redis_blocks_a_caller_for_at_most_two_seconds(
    own_redis: RedisServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waits are counted, each of which lasts SOCKET_TIMEOUT_S: the time of a busy machine is not Redis's."""
    lease = RedisLease(own_redis.url, ttl_ms=TTL_MS)
    grant = taken(lease, key)
    waits, read = list[object](), redis.Connection.read_response

    def counted(connection: redis.Connection, *args: Any, **rest: Any) -> Any:
        waits.append(connection)
        return read(connection, *args, **rest)

    monkeypatch.setattr(redis.Connection, "read_response", counted)
    assert own_redis._process is not None
    own_redis._process.pause()

    with pytest.raises(CoordinationUnavailableError):
        lease.renew([grant])

    assert 0 < len(waits) * SOCKET_TIMEOUT_S <= 2.0
    own_redis._process.resume()
    assert lease.renew([grant]) == {key}


def test_the_lease_can_be_renewed_after_redis_was_restarted_empty(own_redis: RedisServer, key: str) -> None:
    lease = RedisLease(own_redis.url, ttl_ms=TTL_MS)
    grant = taken(lease, key)
    own_redis.kill()
    own_redis.start()

    assert lease.renew([grant]) == {key}
