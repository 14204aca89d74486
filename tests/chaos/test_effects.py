"""The effect of a fault: the owner of a partition before and after it."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import getpid
from pathlib import Path

import pytest

from chaos.effects import InjectedFault, Owners, came_back, changed_workers, connected, lease_name, local_ports, mentions, until
from devcluster.ports import LOOPBACK, free_port
from devcluster.redis import RedisServer
from linkengine.coordination.lease import RedisLease

TTL_MS = 1_000
KEYS = ("1/0", "1/1")
WITHIN_S = 1.6
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def owners(server: RedisServer) -> Iterator[Owners]:
    owners = Owners(server.url)
    yield owners
    assert owners.forget_all()


def owner(server: RedisServer, name: str) -> RedisLease:
    lease = RedisLease(server.url, ttl_ms=TTL_MS)
    assert len(lease.acquire_all(KEYS, name)) == len(KEYS)
    return lease


@contextmanager
def soon(work: Callable[[], object], *, every_s: float = 0.2) -> Iterator[None]:
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(every_s):
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    yield
    over.set()
    thread.join()


def test_the_lease_of_a_dead_owner_expires(server: RedisServer, owners: Owners) -> None:
    owner(server, "0001-a")

    assert owners.expired(owners.awaited(), timeout_s=WITHIN_S)


def test_an_owner_that_renews_or_releases_has_not_died(server: RedisServer, owners: Owners) -> None:
    lease = RedisLease(server.url, ttl_ms=TTL_MS)
    grants = lease.acquire_all(KEYS, "0001-a")
    before = owners.tokens()
    with soon(lambda: lease.renew(grants)):
        assert not owners.expired(before, timeout_s=WITHIN_S)

    lease.renew(grants)
    with soon(lambda: lease.release_all(grants), every_s=0.1):
        assert not owners.expired(before, timeout_s=WITHIN_S)


def test_only_another_owner_counts_as_taken_over(server: RedisServer, owners: Owners) -> None:
    first = RedisLease(server.url, ttl_ms=TTL_MS)
    grants = first.acquire_all(KEYS, "0001-a")
    before = owners.tokens()
    with soon(lambda: first.renew(grants)):
        assert not owners.taken_over(before, timeout_s=WITHIN_S)

    second = RedisLease(server.url, ttl_ms=TTL_MS)
    with soon(lambda: second.acquire_all(KEYS, "0002-b")):
        assert owners.taken_over(before, timeout_s=WITHIN_S)


def test_end_leases_succeeds_only_if_another_owner_acquires_a_lease(
    server: RedisServer, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = owner(server, "0001-a"), RedisLease(server.url, ttl_ms=TTL_MS)
    with soon(lambda: second.acquire_all(KEYS, "0002-b"), every_s=0.02):
        assert owners.end_leases()
    del first

    assert owners.forget_all()
    monkeypatch.setattr("chaos.effects.OWNERS_TIMEOUT_S", 0.1)
    assert not owners.end_leases()  # there is no lease


def test_an_unavailable_redis_shows_no_effect() -> None:
    down = Owners(f"redis://{LOOPBACK}:{free_port()}/0")

    assert down.seen() == {}
    assert down.set_expiry(["lease:{1/0}"], 1) == 0
    assert not down.forget_all()
    assert not down.taken_over({"lease:{1/0}": "0001-a#x"}, timeout_s=0.2)


def test_a_process_is_connected_while_its_connection_is_open() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        assert connected([getpid()], [port]) == []
        with socket.create_connection((LOOPBACK, port)):
            assert connected([getpid()], [port]) == [getpid()]
            assert connected([getpid()], [free_port()]) == []


def test_local_ports_are_those_of_a_process_and_its_connections() -> None:
    with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = client.getsockname()[1]
        assert port in local_ports(getpid())
        assert free_port() not in local_ports(getpid())
        assert local_ports(1 << 22) == set()  # no such process


def test_a_partition_that_is_handed_over_and_back_came_back(server: RedisServer, owners: Owners) -> None:
    first, second = (RedisLease(server.url, ttl_ms=60_000) for _ in range(2))
    lease = lease_name(KEYS[0])
    with owners.followed() as trails:

        def has_owners(number: int) -> Callable[[], bool]:
            return lambda: len(trails.get(lease, ())) == number

        for number, (owner, name) in enumerate([(first, "0001-a"), (second, "0002-b"), (first, "0001-a")], start=1):
            assert not came_back(trails)
            (grant,) = owner.acquire_all([KEYS[0]], name)
            assert until(has_owners(number), 5.0)
            owner.release(grant)

        assert came_back(trails)
        assert changed_workers(trails, [lease])
        assert not changed_workers(trails, [lease_name(KEYS[1])])


def test_a_stop_that_takes_a_lease_is_no_other_copy_worker() -> None:
    trails = {"lease": ["0001-a#x", "stop-7#y", "0001-a#x"]}

    assert not changed_workers(trails, ["lease"])
    assert changed_workers({"lease": ["0001-a#x", "stop-7#y", "0002-b#z"]}, ["lease"])


def test_mentions_are_counted_in_all_logs_that_exist(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one\ntwo one\n")
    (tmp_path / "b.log").write_bytes(b"\xff one")

    assert mentions([tmp_path / name for name in ("a.log", "b.log", "missing.log")], "one") == 3


def test_a_blow_is_effective_and_needs_no_repair_by_default() -> None:
    assert InjectedFault().proof()
    assert InjectedFault().repair()
