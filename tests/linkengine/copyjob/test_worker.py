"""A copy worker with several links: they are added and removed while it runs, and none affects another."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import structlog
from confluent_kafka import Consumer, TopicPartition

from linkengine.copyjob import link_copy, worker
from linkengine.copyjob.coordination_thread import CoordinationPorts
from linkengine.copyjob.link_copy import LinkCopy
from linkengine.copyjob.worker import run_worker
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import CopyPlan, PartitionPhase
from linkengine.domain.workers import CoordinationUnavailableError, Grant, WorkerAssignments
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import CONNECT_TIMEOUT_S, Connection
from tests.linkengine.copyjob.copying import (
    DEADLINE_S,
    Pair,
    address,
    assert_equal_topics,
    assignments_for,
    create_pair,
    ends_of,
    plan_for,
    producer_for,
    setup_for,
    wait_for,
)
from tests.linkengine.copyjob.memory import MemoryAssignments, MemoryLease, MemoryProgress

LINKS = 3
MANY, ROUNDS, ROUND_S = 50, 60, 0.1


@contextmanager
def working(
    assignments: MemoryAssignments, progress: MemoryProgress, lease: MemoryLease | None = None
) -> Iterator[list[BaseException]]:
    """Run a copy worker in a thread and end it after the block; yields the errors it raised."""
    errors: list[BaseException] = []
    lease = lease or MemoryLease()
    ports = CoordinationPorts(lease=lease, assignments=assignments, progress=progress)

    def run() -> None:
        try:
            run_worker(setup_for(lease_ttl_ms=int(lease.ttl_s * 1000)), ports=ports)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield errors
    finally:
        assignments.end()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def link_of(clusters: Pair, topic: str, number: int, *, partitions: int = 1) -> CopyPlan:
    """Create a pair of topics; return the plan of a link with them."""
    create_pair(clusters, topic, partitions=partitions)
    assignments = assignments_for(clusters[0], topic, topic, partitions=partitions)
    return plan_for(address(clusters[0]), address(clusters[1]), assignments, link_id=f"link-{number}")


def write(clusters: Pair, topic: str, *values: str) -> None:
    producer = producer_for(clusters[0], linger_ms=0)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def has_copied(progress: MemoryProgress, plan: CopyPlan, end: int) -> bool:
    seen = progress.latest.get(plan.assignments[0].key)
    return seen is not None and seen.mirror_end == end


def wait_until_copied(progress: MemoryProgress, plan: CopyPlan, end: int) -> None:
    try:
        wait_for(lambda: has_copied(progress, plan, end))
    except AssertionError:
        raise AssertionError(f"not copied up to {end}: {progress.latest}, {progress.history}") from None


def test_links_are_added_and_removed_while_a_worker_runs(clusters: Pair, topic_name: str) -> None:
    topics = [f"{topic_name}-{number}" for number in range(LINKS)]
    plans = [link_of(clusters, topic, number) for number, topic in enumerate(topics)]
    assignments, progress, lease = MemoryAssignments(), MemoryProgress(), MemoryLease()

    with working(assignments, progress, lease) as errors:
        for number, plan in enumerate(plans):
            write(clusters, topics[number], "one")
            assigned_at = time.monotonic()
            assignments.assign(plan)
            wait_until_copied(progress, plan, 1)
            assert time.monotonic() - assigned_at < DEADLINE_S / 2  # a few polls, also on a slow machine
        assignments.assign(replace(plans[0], assignments=()))
        wait_for(lambda: lease.acquire_all([plans[0].assignments[0].key], "next"))
        for topic in topics[1:]:
            write(clusters, topic, "two")
        for plan in plans[1:]:
            wait_until_copied(progress, plan, 2)

    assert errors == []
    assert assignments.errors == []
    for topic in topics[1:]:
        assert_equal_topics(clusters[0], topic, clusters[1], topic)
    *earlier, last = assignments.beats
    assert last.partitions == 0
    assert set(last.links) == {plan.link_id for plan in plans[1:]}  # the first link is no longer reported
    assert not last.alive  # partitions are placed on other workers immediately
    assert all(heartbeat.alive for heartbeat in earlier)


@pytest.fixture
def unresponsive_servers() -> Iterator[ClusterAddress]:
    """A cluster that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        host, port = server.getsockname()
        yield ClusterAddress(bootstrap_servers=f"{host}:{port}", security_protocol="PLAINTEXT")


def test_source_that_never_responds_delays_no_other_link(
    clusters: Pair, topic_name: str, unresponsive_servers: ClusterAddress
) -> None:
    plan = link_of(clusters, topic_name, 0)
    frozen = [
        replace(
            plan,
            link_id=f"frozen-{number}",
            source=unresponsive_servers,
            assignments=tuple(replace(assignment, mirror_id=f"frozen-{number}") for assignment in plan.assignments),
        )
        for number in range(4)
    ]
    assignments, progress = MemoryAssignments(*frozen, plan), MemoryProgress()

    with working(assignments, progress) as errors:
        wait_until_copied(progress, plan, 0)
        longest_s = 0.0
        for number in range(40):
            write(clusters, topic_name, f"{number}")
            written_at = time.monotonic()
            wait_for(partial(has_copied, progress, plan, number + 1))
            longest_s = max(longest_s, time.monotonic() - written_at)

    assert errors == []
    assert longest_s < CONNECT_TIMEOUT_S  # otherwise a copy waited for a source that never responds


def test_unexpected_failure_of_a_link_is_reported_and_other_links_continue(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = (link_of(clusters, f"{topic_name}-{number}", number) for number in range(2))
    real, fails = LinkCopy.tick, threading.Event()

    def tick(self: LinkCopy, now: float) -> None:
        if fails.is_set() and self.plan.link_id == bad.link_id:
            raise KeyError("a mistake in the code")
        real(self, now)

    monkeypatch.setattr(LinkCopy, "tick", tick)
    monkeypatch.setattr(worker, "BROKEN_RETRY_S", 1.0)
    lease = MemoryLease(ttl_s=0.5)
    assignments, progress = MemoryAssignments(good, bad), MemoryProgress()

    with working(assignments, progress, lease) as errors:
        wait_for(lambda: has_copied(progress, bad, 0) and has_copied(progress, good, 0))
        fails.set()
        wait_for(lambda: any("KeyError" in error for error in assignments.errors))
        write(clusters, f"{topic_name}-0", "continues")
        wait_until_copied(progress, good, 1)
        fails.clear()
        write(clusters, f"{topic_name}-1", "continues after the retry")
        wait_until_copied(progress, bad, 1)
        wait_for(lambda: not assignments.beats[-1].links[bad.link_id].error)

    assert errors == []
    assert all(not beat.links[good.link_id].error for beat in assignments.beats if good.link_id in beat.links)


def test_log_lines_name_the_link_and_the_request_that_its_assignments_came_from(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of the loop and of its background threads, with the request of the newest assignments."""
    plans = [link_of(clusters, f"{topic_name}-{number}", number) for number in range(2)]
    assigned = [replace(plan, request_id=f"request-{plan.link_id}") for plan in plans]
    log, real_tick, real_open = structlog.get_logger("test"), LinkCopy.tick, Cluster.open

    def tick(self: LinkCopy, now: float) -> None:
        log.info("looped", plan=self.plan.link_id)
        real_tick(self, now)

    def opened(self: Cluster, broker: int, **options: float) -> Connection:
        log.info("opened")
        return real_open(self, broker, **options)

    monkeypatch.setattr(LinkCopy, "tick", tick)
    monkeypatch.setattr(Cluster, "open", opened)
    assignments, progress = MemoryAssignments(*assigned), MemoryProgress()

    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        with working(assignments, progress) as errors:
            for plan in assigned:
                wait_until_copied(progress, plan, 0)
            assignments.assign(replace(assigned[0], request_id="request-later", revision=2))
            wait_for(lambda: any(line.get("request_id") == "request-later" for line in lines))
        seen = {(line["event"], line["link"], line["request_id"]) for line in lines if line["event"] in ("looped", "opened")}

    assert errors == []
    first, second = (plan.link_id for plan in assigned)
    expected = {(event, link, f"request-{link}") for event in ("looped", "opened") for link in (first, second)}
    assert expected <= seen
    assert {request for _, link, request in seen if link == second} == {f"request-{second}"}
    assert all(line["link"] == line["plan"] for line in lines if line["event"] == "looped")


class CutOff(MemoryLease, MemoryAssignments):
    """Leases and assignments in a Redis that can be made unavailable."""

    def __init__(self, *plans: CopyPlan) -> None:
        MemoryLease.__init__(self, ttl_s=1.0)
        MemoryAssignments.__init__(self, *plans)
        self.away = threading.Event()

    def renew(self, grants: Iterable[Grant]) -> set[str]:
        self._check()
        return super().renew(grants)

    def acquire_all(self, keys: Sequence[str], owner: str) -> list[Grant]:
        self._check()
        return super().acquire_all(keys, owner)

    def read(self) -> WorkerAssignments:
        self._check()
        return super().read()

    def _check(self) -> None:
        if self.away.is_set():
            raise CoordinationUnavailableError("away")


def test_worker_without_redis_stops_writing_when_its_leases_expire(clusters: Pair, topic_name: str) -> None:
    plan = link_of(clusters, topic_name, 0)
    redis, progress = CutOff(plan), MemoryProgress()

    with working(redis, progress, redis) as errors:
        wait_until_copied(progress, plan, 0)
        redis.away.set()
        time.sleep(1.5)
        write(clusters, topic_name, "waits")
        time.sleep(1.0)
        assert ends_of(clusters[1], topic_name) == {0: 0}
        redis.away.clear()
        wait_until_copied(progress, plan, 1)

    assert errors == []


def test_fenced_partition_that_is_still_assigned_is_started_again(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_copy, "FENCED_RETRY_S", 0.5)
    plan = link_of(clusters, topic_name, 0)
    lease = MemoryLease(ttl_s=0.3)
    assignments, progress = MemoryAssignments(plan), MemoryProgress()
    fenced = threading.Event()
    real = LinkCopy.tick

    def tick(self: LinkCopy, now: float) -> None:
        if fenced.is_set():
            fenced.clear()
            for partition in list(self._active.values()):
                self._fenced(partition, LinkEngineError(ErrorCode.MIRROR_WAS_STOPPED, "Fenced."))
        real(self, now)

    monkeypatch.setattr(LinkCopy, "tick", tick)
    with working(assignments, progress, lease) as errors:
        wait_until_copied(progress, plan, 0)
        first = progress.latest[plan.assignments[0].key].copy_run_id
        fenced.set()
        wait_for(lambda: (plan.assignments[0].key, PartitionPhase.RELEASED, "") in progress.history)
        write(clusters, topic_name, "later")
        wait_until_copied(progress, plan, 1)

    assert errors == []
    assert progress.latest[plan.assignments[0].key].copy_run_id != first


def test_partitions_with_irrelevant_changes_are_not_released(clusters: Pair, topic_name: str) -> None:
    plan = link_of(clusters, topic_name, 0)
    assignments, progress = MemoryAssignments(plan), MemoryProgress()

    with working(assignments, progress):
        wait_until_copied(progress, plan, 0)
        later = tuple(replace(assignment, source_seen=(0, 0), since_ms=77) for assignment in plan.assignments)
        assignments.assign(replace(plan, assignments=later, workers=5))
        wait_for(lambda: progress.latest[plan.assignments[0].key].since_ms == 77)

    assert [entry for entry in progress.history if entry[1] is PartitionPhase.RELEASED] == [progress.history[-1]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("frozen", [0, 1], ids=["all sources respond", "one source is frozen"])
def test_fifty_links_are_copied_all_the_time_by_one_worker(
    clusters: Pair,
    topic_name: str,
    unresponsive_servers: ClusterAddress,
    frozen: int,
    record_property: Callable[[str, object], None],
) -> None:
    """Each record contains the time at which it was written; a consumer of the mirror measures its latency."""
    create_pair(clusters, topic_name, partitions=MANY)
    assignments = assignments_for(clusters[0], topic_name, topic_name, partitions=MANY)
    plans = [
        plan_for(address(clusters[0]), address(clusters[1]), (assignment,), link_id=f"link-{number}", progress_ms=500)
        for number, assignment in enumerate(assignments)
    ]
    plans[:frozen] = [replace(plan, source=unresponsive_servers) for plan in plans[:frozen]]
    responding = range(frozen, MANY)
    assigned, progress = MemoryAssignments(*plans), MemoryProgress()
    consumer = Consumer({**clusters[1].client("admin"), "group.id": topic_name, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topic_name, number, 0) for number in range(MANY)])
    producer = producer_for(clusters[0], linger_ms=0)
    latencies: list[float] = []

    def read() -> int:
        """Note the latencies of the records that have arrived; return the number of latencies."""
        for message in consumer.consume(1_000, 0.0):
            if not message.error():
                value = message.value()
                assert value is not None
                latencies.append(time.time() - float(value))
        return len(latencies)

    with working(assigned, progress) as errors:
        for partition in responding:  # connections are made, logs have their first record
            producer.produce(topic_name, f"{time.time()}", partition=partition)
        wait_for(lambda: read() == len(responding))
        latencies.clear()
        used_s, began_at = time.process_time(), time.monotonic()
        for number in range(ROUNDS):
            for partition in responding:
                producer.produce(topic_name, f"{time.time()}", partition=partition)
            while time.monotonic() < began_at + (number + 1) * ROUND_S:
                producer.poll(0)
                read()
                time.sleep(0.002)
        deadline = time.monotonic() + DEADLINE_S
        while len(latencies) < len(responding) * ROUNDS and time.monotonic() < deadline:
            read()
        cores = (time.process_time() - used_s) / (ROUNDS * ROUND_S)
    consumer.close()

    latencies.sort()
    record_property("p99_ms", latencies[len(latencies) * 99 // 100] * 1000)
    record_property("worst_ms", latencies[-1] * 1000)
    record_property("cores", cores)
    assert errors == []
    assert len(latencies) == len(responding) * ROUNDS  # their latencies are properties of the report: figures, not a test
