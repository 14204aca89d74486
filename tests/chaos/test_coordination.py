"""Faults of the coordination, on Redis without clusters: each is effective only through its own effect."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from os import getpid
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chaos.assignments import REFUSED, FormerAssignments
from chaos.effects import InjectedFault, lease_name
from chaos.environment import ChaosEnvironment
from linkengine.coordination.lease import RedisLease
from linkengine.coordination.pool import RedisAssignments, key_for, write_assignments
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.plans import CopyPlan, PartitionAssignment
from linkengine.domain.workers import CoordinationUnavailableError, Grant, WorkerSetup
from tests.signing import SECRETS

KEY = "m/0"
TTL_MS = 1_000
FIRST, SECOND = "0001-a", "0002-b"
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[ChaosEnvironment]:
    """The environment of a storm, of which only Redis runs."""
    environment = ChaosEnvironment(tmp_path, brokers=1)
    with environment._stack:
        environment._start_redis()
        yield environment


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.environment.CHANGE_TIMEOUT_S", 0.3)


class Worker:
    """Reads its assignments, and holds the lease of a partition on demand."""

    def __init__(self, environment: ChaosEnvironment, name: str, *, url: str = "", ttl_ms: int = 60_000) -> None:
        url = url or environment.redis.url
        self.name, self._lease, self._url = name, RedisLease(url, ttl_ms=ttl_ms), url
        self._grant: Grant | None = None
        self._applied = 1
        self._assignments = RedisAssignments(WorkerSetup(worker_id=name, redis_url=url, key=key_for(SECRETS[0], name)))

    def acquire(self) -> None:
        """Acquire the partition and renew it; does nothing while Redis is not available."""
        with suppress(CoordinationUnavailableError):
            self._grant = next(iter(self._lease.acquire_all([KEY], self.name)), self._grant)
            if self._grant is not None:
                self._lease.renew([self._grant])

    def release(self) -> None:
        assert self._grant is not None
        self._lease.release(self._grant)

    def publish(self, *partitions: int) -> None:
        applied = {self.name: self._applied}
        write_assignments(self._url, "link", {self.name: plan(*partitions)}, secrets=SECRETS, applied=applied)

    def read(self) -> set[int]:
        assigned = self._assignments.read()
        self._applied = assigned.numbers["link"]
        return {assignment.partition for assignment in assigned.plans["link"].assignments}


def plan(*partitions: int) -> CopyPlan:
    address = ClusterAddress(bootstrap_servers="127.0.0.1:1")
    assignments = tuple(
        PartitionAssignment(
            mirror_id="m", partition=number, source_topic="t", mirror_topic="t", source_topic_id="", producer_id=1 << 62
        )
        for number in partitions
    )
    return CopyPlan(link_id="link", revision=1, source=address, destination=address, assignments=assignments)


@contextmanager
def repeated(work: Callable[[], object]) -> Iterator[None]:
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(0.05):
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def hand_over(environment: ChaosEnvironment, before: Worker, after: Worker) -> None:
    """Move the partition, and wait until a thread that follows the owners has seen it."""
    before.release()
    after.acquire()
    assert environment.owners.tokens()[lease_name(KEY)].startswith(after.name)
    time.sleep(0.8)


def test_a_worker_refuses_former_assignments_that_are_published_again(environment: ChaosEnvironment) -> None:
    worker = Worker(environment, FIRST)
    worker.publish(0, 1)
    assert worker.read() == {0, 1}
    with environment.client() as client:
        former = FormerAssignments(client)
        assert former.publish() == 0  # nothing has replaced them
        worker.publish(1)
        assert worker.read() == {1}

        assert former.publish() == 1
        with capture_logs() as logs:
            assert worker.read() == {1}
        assert [entry["event"] for entry in logs] == [REFUSED]

        worker.publish(1)  # Redis no longer holds it: it is written again, with a higher number
        assert former.publish() == 1
        worker.publish(2)
        assert worker.read() == {2}


def test_replayed_assignments_count_if_a_worker_has_refused_them(
    environment: ChaosEnvironment, tmp_path: Path, short_wait: None
) -> None:
    log, first, second = tmp_path / "workers.log", Worker(environment, FIRST), Worker(environment, SECOND)
    log.touch()
    first.publish(0)
    first.acquire()

    def move() -> None:
        first.publish(1)
        hand_over(environment, first, second)

    unread = environment.replayed(move, lambda: [log])
    assert isinstance(unread, InjectedFault)
    assert not unread.proof()

    log.write_text(f"12:00 [warning] {REFUSED} worker={FIRST}")
    assert unread.proof()


@pytest.mark.parametrize("down", [False, True], ids=["nothing replaced them", "Redis is down"])
def test_former_assignments_are_not_replayed(
    environment: ChaosEnvironment, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    monkeypatch.setattr(environment.owners, "taken_over", lambda _: False)  # without its wait
    worker = Worker(environment, FIRST)
    worker.publish(0)
    worker.acquire()

    assert environment.replayed(environment.redis.kill if down else lambda: None, list) is None


def test_two_assigners_count_if_a_partition_is_handed_over_and_back(environment: ChaosEnvironment, short_wait: None) -> None:
    first, second = Worker(environment, FIRST), Worker(environment, SECOND)
    first.acquire()

    once = environment.contested(partial(hand_over, environment, first, second))
    assert once is not None
    assert not once.proof()

    def there_and_back() -> None:
        hand_over(environment, second, first)
        hand_over(environment, first, second)

    twice = environment.contested(there_and_back)
    assert twice is not None
    assert twice.proof()


def test_a_worker_without_redis_loses_its_partition_while_it_runs(environment: ChaosEnvironment) -> None:
    first, second = Worker(environment, FIRST, url=environment.redis_url, ttl_ms=TTL_MS), Worker(environment, SECOND)
    first.acquire()
    with repeated(first.acquire):
        injected = environment.cut_off(getpid())  # this process, whose other connections to Redis do not use the proxy
        assert injected is not None
        assert environment.cut_off(getpid()) is None  # it is cut off already
        with repeated(second.acquire):
            assert injected.proof()
        injected.repair()
    assert {token.partition("#")[0] for token in environment.owners.tokens().values()} == {SECOND}


def test_nothing_is_injected_while_no_partition_has_an_owner(
    environment: ChaosEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.effects.OWNERS_TIMEOUT_S", 0.1)

    assert environment.moved(pytest.fail) is None
    assert environment.contested(pytest.fail) is None
    assert environment.replayed(pytest.fail, list) is None
    assert environment.cut_off(getpid()) is None
