"""The partition lease with a real Redis: every race that its module describes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import redis

from linkengine.coordination.lease import FORGOTTEN_AT_ONCE, LATE_MS, RedisLease, forget_leases
from linkengine.domain.workers import Grant
from tests.linkengine.coordination.leasing import (
    DEADLINE_S,
    SHORT_MS,
    TTL_MS,
    Clock,
    expire,
    taken,
    taken_in_time,
    wait_for_expiry,
)

HOUR_MS = 3_600_000


def test_the_first_owner_of_a_partition_gets_generation_one_and_a_clean_grant(redis_url: str, key: str) -> None:
    clock = Clock()
    lease = RedisLease(redis_url, ttl_ms=TTL_MS, clock=clock)

    grant = taken(lease, key)

    assert grant == Grant(key=key, generation=1, clean=True, valid_until=clock.now + 54)
    assert lease.deadline(grant) == grant.valid_until


def test_a_second_owner_gets_no_grant_while_the_first_holds_the_lease(redis_url: str, key: str) -> None:
    taken(RedisLease(redis_url, ttl_ms=TTL_MS), key)

    assert not RedisLease(redis_url, ttl_ms=TTL_MS).acquire_all([key], "worker")


def test_after_a_release_the_next_grant_is_clean_and_has_a_higher_generation(redis_url: str, key: str) -> None:
    first, second = (RedisLease(redis_url, ttl_ms=TTL_MS) for _ in range(2))
    grant = taken(first, key)

    first.release(grant)
    after = taken(second, key)

    assert (after.generation, after.clean) == (2, True)
    assert first.deadline(grant) == float("-inf")


def test_after_an_expiry_the_next_grant_is_not_clean(redis_url: str, key: str) -> None:
    taken(RedisLease(redis_url, ttl_ms=SHORT_MS), key)

    after = taken_in_time(RedisLease(redis_url, ttl_ms=TTL_MS), key)

    assert (after.generation, after.clean) == (2, False)


def test_the_owners_deadline_passes_before_redis_grants_the_lease_again(redis_url: str, key: str) -> None:
    grant = taken(RedisLease(redis_url, ttl_ms=300), key)

    taken_in_time(RedisLease(redis_url, ttl_ms=TTL_MS), key)

    assert time.monotonic() > grant.valid_until + 0.015


def test_the_deadline_counts_from_before_the_request_and_each_renewal_extends_it(redis_url: str, key: str) -> None:
    clock = Clock()
    lease = RedisLease(redis_url, ttl_ms=10_000, clock=clock)
    grant = taken(lease, key)
    clock.now += 5

    held = lease.renew([grant])

    assert held == {key}
    assert lease.deadline(grant) == clock.now + 9


def test_many_grants_are_renewed_in_one_call_except_a_lost_one(redis_url: str, key: str) -> None:
    lease = RedisLease(redis_url, ttl_ms=TTL_MS)
    grants = [taken(lease, f"{key}{number}", f"owner {number}") for number in range(200)]
    with redis.Redis.from_url(redis_url) as client:
        client.set(f"lease:{{{key}7}}", "somebody else")
        client.hset(f"generation:{{{key}7}}", mapping={"generation": 2, "holder": "somebody else"})

    held = lease.renew(grants)

    assert held == {grant.key for grant in grants} - {f"{key}7"}
    assert lease.deadline(grants[7]) == float("-inf")


def test_an_owner_that_stalled_beyond_the_expiry_renews_the_lease_if_no_other_owner_took_it(redis_url: str, key: str) -> None:
    clock = Clock()
    lease = RedisLease(redis_url, ttl_ms=TTL_MS, clock=clock)
    grant = taken(lease, key)
    expire(redis_url, key)
    clock.now += TTL_MS / 1000

    assert lease.renew([grant]) == {key}
    assert not RedisLease(redis_url, ttl_ms=TTL_MS).acquire_all([key], "other")


def test_an_owner_that_stalled_while_another_held_the_lease_has_lost_it(redis_url: str, key: str) -> None:
    sleeper, other = RedisLease(redis_url, ttl_ms=SHORT_MS), RedisLease(redis_url, ttl_ms=TTL_MS)
    grant = taken(sleeper, key)
    other.release(taken_in_time(other, key))

    assert sleeper.renew([grant]) == set()
    again = taken(sleeper, key)
    assert (again.generation, again.clean) == (3, False)  # requests that it sent before may still arrive


def test_after_a_release_behind_the_expiry_the_next_grant_is_clean(redis_url: str, key: str) -> None:
    lease = RedisLease(redis_url, ttl_ms=SHORT_MS)
    grant = taken(lease, key)
    wait_for_expiry(redis_url, key)

    lease.release(grant)

    assert taken(RedisLease(redis_url, ttl_ms=TTL_MS), key).clean


def test_a_late_release_does_not_affect_the_next_owner(redis_url: str, key: str) -> None:
    sleeper, other = RedisLease(redis_url, ttl_ms=SHORT_MS), RedisLease(redis_url, ttl_ms=TTL_MS)
    grant = taken(sleeper, key)
    after = taken_in_time(other, key)

    sleeper.release(grant)

    assert other.renew([after]) == {key}
    assert not sleeper.acquire_all([key], "worker")


def test_an_acquire_whose_reply_was_lost_can_be_repeated_and_is_clean(redis_url: str, key: str) -> None:
    lost, lease = RedisLease(redis_url, ttl_ms=TTL_MS), RedisLease(redis_url, ttl_ms=TTL_MS)
    lost._identity = lease._identity  # the same owner, whose first reply was lost
    taken(lost, key)

    again = taken(lease, key)

    assert (again.generation, again.clean) == (2, True)


def test_an_owner_that_acquires_the_same_partition_twice_gets_a_grant_that_is_not_clean(redis_url: str, key: str) -> None:
    lease = RedisLease(redis_url, ttl_ms=TTL_MS)
    taken(lease, key)

    assert not taken(lease, key).clean


def test_the_generation_can_be_raised_and_grows_from_there(redis_url: str, key: str) -> None:
    lease = RedisLease(redis_url, ttl_ms=TTL_MS)
    grant = taken(lease, key)

    assert lease.raise_generation(key, 40) == 40
    assert lease.raise_generation(key, 7) == 40
    assert lease.renew([grant]) == {key}
    lease.release(grant)
    assert taken(lease, key).generation == 41


def test_concurrent_acquires_grant_the_partition_to_one_thread_at_a_time(redis_url: str, key: str) -> None:
    generations: list[int] = []
    together = threading.Barrier(8)

    def compete() -> None:
        lease = RedisLease(redis_url, ttl_ms=TTL_MS)
        together.wait(DEADLINE_S)
        while len(generations) < 40:
            for grant in lease.acquire_all([key], "thread"):
                generations.append(grant.generation)
                lease.release(grant)

    threads = [threading.Thread(target=compete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert generations == list(range(1, len(generations) + 1))


def test_a_killed_process_leaves_its_lease_to_expire(redis_url: str, key: str) -> None:
    code = "import sys,time;from linkengine.coordination.lease import RedisLease as L;"
    code += f"print(L({redis_url!r},ttl_ms=1500).acquire_all([{key!r}],'x')[0].generation,flush=True);time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"1\n"
        owner.kill()
    lease = RedisLease(redis_url, ttl_ms=TTL_MS)

    assert not lease.acquire_all([key], "next")
    after = taken_in_time(lease, key)

    assert (after.generation, after.clean) == (2, False)


def test_the_successor_of_a_dead_owner_with_markers_can_release_without_making_the_record_clean(
    redis_url: str, key: str
) -> None:
    dead, short, third, fourth = (RedisLease(redis_url, ttl_ms=SHORT_MS if n == 0 else TTL_MS) for n in range(4))
    assert dead.announce_markers([taken(dead, key)]) == {key}

    grant = taken_in_time(short, key)
    assert (grant.clean, grant.markers_announced) == (False, True)
    short.release(grant, seen=(3, 100), clean=False)
    after = taken(third, key)  # at once, without waiting for the expiry
    assert (after.generation, after.clean, after.markers_announced, after.seen) == (3, False, True, None)
    # the second owner released in an orderly way, the dead owner did not
    assert (grant.last_release, after.last_release) == (None, (3, 100))

    third.release(after, seen=(3, 100))  # a marker of its own has fenced the dead owner
    settled = taken(fourth, key)
    assert (settled.clean, settled.markers_announced, settled.seen, settled.last_release) == (True, False, (3, 100), (3, 100))


def test_a_grant_has_the_time_for_which_the_partition_had_no_owner(redis_url: str, key: str) -> None:
    first, second, third = (RedisLease(redis_url, ttl_ms=TTL_MS) for _ in range(3))
    grant = taken(first, key)
    assert grant.rested_ms == 0
    first.release(grant, seen=(3, 100))
    with redis.Redis.from_url(redis_url) as client:
        client.hincrby(f"generation:{{{key}}}", "released_at", -HOUR_MS)
    after = taken(second, key)
    second.release(after, seen=(3, 100))

    assert HOUR_MS <= after.rested_ms < HOUR_MS + TTL_MS
    assert taken(third, key).rested_ms < TTL_MS


def test_after_an_owner_that_died_without_markers_the_grant_is_not_armed(redis_url: str, key: str) -> None:
    taken(RedisLease(redis_url, ttl_ms=SHORT_MS), key)

    grant = taken_in_time(RedisLease(redis_url, ttl_ms=TTL_MS), key)

    assert (grant.clean, grant.markers_announced) == (False, False)


def test_markers_of_a_dead_owner_stop_counting_as_in_flight(redis_url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, short, third = (RedisLease(redis_url, ttl_ms=SHORT_MS if n == 0 else TTL_MS) for n in range(3))
    dead.announce_markers([taken(dead, key)])
    short.release(taken_in_time(short, key), clean=False)
    monkeypatch.setattr("linkengine.coordination.lease.IN_FLIGHT_MS", 1)

    grant = taken(third, key)

    assert (grant.clean, grant.markers_announced) == (False, False)


def test_an_owner_that_lost_the_lease_cannot_arm(redis_url: str, key: str) -> None:
    sleeper, other = RedisLease(redis_url, ttl_ms=SHORT_MS), RedisLease(redis_url, ttl_ms=TTL_MS)
    grant = taken(sleeper, key)
    taken_in_time(other, key)

    assert sleeper.announce_markers([grant]) == set()


def test_an_acquire_shortens_a_lease_that_a_clock_jump_extended(redis_url: str, key: str) -> None:
    first, second = (RedisLease(redis_url, ttl_ms=SHORT_MS) for _ in range(2))
    taken(first, key)
    with redis.Redis.from_url(redis_url) as client:  # Redis's clock jumps back by an hour, and the owner dies
        client.pexpire(f"lease:{{{key}}}", 3_600_000)

    grant = taken_in_time(second, key)

    assert not grant.clean


def test_many_partitions_are_acquired_at_once_except_those_with_an_owner(redis_url: str, key: str) -> None:
    first, second = (RedisLease(redis_url, ttl_ms=TTL_MS) for _ in range(2))
    keys = [f"{key}-{number}" for number in range(4)]
    released = taken(first, keys[3])
    first.release(released)
    taken(first, keys[1])

    grants = second.acquire_all(keys, "worker")

    assert [(grant.key, grant.generation, grant.clean) for grant in grants] == [
        (keys[0], 1, True),
        (keys[2], 1, True),
        (keys[3], 2, True),
    ]
    assert second.renew(grants) == {keys[0], keys[2], keys[3]}


def test_forgetting_a_lease_leaves_an_empty_record_only(redis_url: str, key: str) -> None:
    taken(RedisLease(redis_url, ttl_ms=TTL_MS), key)
    other = taken(RedisLease(redis_url, ttl_ms=TTL_MS), f"{key}-other")

    forget_leases(redis_url, [key])
    forget_leases(redis_url, [])

    left = redis.Redis.from_url(redis_url, decode_responses=True)
    assert left.keys(f"*{{{key}}}*") == [f"generation:{{{key}}}"]
    assert left.hgetall(f"generation:{{{key}}}") == {"generation": "0"}
    assert not RedisLease(redis_url, ttl_ms=TTL_MS).acquire_all([other.key], "worker")


def test_keys_written_by_a_late_worker_of_a_deleted_mirror_expire(redis_url: str, key: str) -> None:
    early, late = (RedisLease(redis_url, ttl_ms=TTL_MS) for _ in range(2))
    grant = taken(early, key)
    forget_leases(redis_url, [key])

    early.renew([grant])  # it has not noticed yet that the mirror was deleted
    early.release(grant)
    late_grant = taken(late, key)
    late.announce_markers([late_grant])
    late.raise_generation(key, 9)
    late.release(late_grant, seen=(1, 2))

    left = redis.Redis.from_url(redis_url)
    assert all(0 < left.pttl(name) <= LATE_MS for name in left.keys(f"*{{{key}}}*"))
    assert left.keys(f"*{{{key}}}*")


def test_leases_of_many_partitions_are_forgotten(redis_url: str, key: str) -> None:
    keys = [f"{key}-{number}" for number in range(FORGOTTEN_AT_ONCE)]
    lease = RedisLease(redis_url, ttl_ms=TTL_MS)
    assert len(lease.acquire_all(keys, "worker")) == len(keys)

    forget_leases(redis_url, keys)

    assert redis.Redis.from_url(redis_url).keys(f"lease:{{{key}-*") == []
