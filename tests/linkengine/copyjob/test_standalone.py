"""Copy workers on a Spark standalone cluster: spread over executors, which are killed, as are a Spark worker and the master."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from devcluster.processes import Process
from devcluster.reaper import session_members
from devcluster.spark import SparkConnectServer
from devcluster.standalone import StandaloneCluster
from linkengine.coordination.pool import end_workers, read_workers, write_assignments
from linkengine.coordination.progress import read_progress
from linkengine.copyjob.spark_job import run_copy_worker
from linkengine.domain.plans import CopyPlan
from linkengine.domain.workers import Heartbeat, PartitionLoad, PoolWorker, assign, crowded_worker, number_of, worker_id_for
from linkengine.sparkclient import count_slots, session
from tests.linkengine.copyjob.copying import (
    Pair,
    assert_equal_topics,
    create_pair,
    ends_of,
    plan_of,
    setup_for,
    wait_for,
)
from tests.signing import SECRETS
from tests.sparksecrets import PASSED_ON, exposed

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]
PARTITIONS = 8
LONG_S = 120.0
MOST_S = 45.0  # until records are copied again after a kill; about 5 s on an idle machine, of which 4 s are the leases


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as standalone:
        yield standalone.start(workers=2)


@pytest.fixture(scope="module")
def connect(cluster: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectServer]:
    with cluster.connect_server(tmp_path_factory.mktemp("connect")) as server:
        yield server


class Workers:
    """A number of copy workers that are kept running and share a plan: what the reconciler does, in a few lines."""

    def __init__(self, redis_url: str, spark_url: str, plan: CopyPlan, *, size: int) -> None:
        self._redis_url, self._spark_url, self._plan, self.size = redis_url, spark_url, plan, size
        self._pool, self._jobs = ThreadPoolExecutor(32), dict[str, Future[None]]()
        self._newest: dict[int, str] = {}  # by number
        self._placed: dict[str, str] = {}
        self._counted_at = 0.0
        self.replaced = 0

    def alive(self) -> dict[str, Heartbeat]:
        beats = read_workers(self._redis_url, secrets=SECRETS)
        return {beat.worker_id: beat for beat in beats if beat.alive and beat.worker_id in self._jobs}

    def reconcile(self) -> None:
        for number in range(self.size):
            if number not in self._newest or self._jobs[self._newest[number]].done():
                self._submit(number)
        alive = self.alive()
        self._spread(alive)
        surplus = {name for name in alive if (newest := self._newest[number_of(name)]) != name and newest in alive}
        partitions = [
            PartitionLoad(key=assignment.key, link_id="l", worker_id=self._placed.get(assignment.key, ""))
            for assignment in self._plan.assignments
        ]
        moves = assign(partitions, [PoolWorker(worker_id=name, draining=name in surplus) for name in alive], fine=True)
        self._placed = {each.key: moves.get(each.key, each.worker_id) for each in partitions}
        end_workers(self._redis_url, surplus - set(self._placed.values()), secrets=SECRETS)
        for name in alive:
            share = tuple(assignment for assignment in self._plan.assignments if self._placed[assignment.key] == name)
            plan = replace(self._plan, assignments=share)
            write_assignments(self._redis_url, plan.link_id, {name: plan}, secrets=SECRETS, applied={name: 1})

    def _submit(self, number: int) -> None:
        setup = setup_for(worker_id_for(number, uuid.uuid4().hex[:12]), redis_url=self._redis_url)
        self._newest[number] = setup.worker_id
        self._jobs[setup.worker_id] = self._pool.submit(run_copy_worker, setup, spark_url=self._spark_url)

    def _spread(self, alive: Mapping[str, Heartbeat]) -> None:
        """Replace a worker once a second at most, if another executor has fewer."""
        if time.monotonic() < self._counted_at + 1.0:
            return
        self._counted_at = time.monotonic()
        crowded = crowded_worker(alive.values(), slots=count_slots(self._spark_url))
        if crowded in self._newest.values():
            self._submit(number_of(crowded))
            self.replaced += 1

    def is_spread(self, *, over: int) -> bool:
        """Return whether so many executors have a worker each and about the same number of partitions."""
        alive = self.alive().values()
        copied = sorted(beat.partitions for beat in alive)
        executors = {beat.executor for beat in alive}
        return len(executors) == len(copied) == over and sum(copied) == PARTITIONS and copied[-1] - copied[0] <= 1

    def ends(self) -> dict[int, int | None]:
        reports = read_progress(self._redis_url, self._plan.link_id, self._plan.signer)
        return {int(progress.key.split("/")[1]): progress.mirror_end for progress in reports}

    def until(self, condition: Callable[[], bool], *, deadline_s: float = LONG_S) -> None:
        def reconciled() -> bool:
            self.reconcile()
            time.sleep(0.1)
            return condition()

        wait_for(reconciled, deadline_s=deadline_s)

    def close(self) -> None:
        end_workers(self._redis_url, list(self._jobs), secrets=SECRETS)
        self._pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def workers(redis_url: str, spark_url: str, plan: CopyPlan, *, size: int) -> Iterator[Workers]:
    pool = Workers(redis_url, spark_url, plan, size=size)
    try:
        yield pool
    finally:
        pool.close()


def produce(cluster: KafkaCluster, topic: str, *, count: int) -> None:
    producer = Producer({**cluster.client("admin"), "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, value=f"{uuid.uuid4()}", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def spark_worker_of(cluster: StandaloneCluster, pid: int) -> tuple[Process, psutil.Process]:
    """Return the Spark worker, and its executor, that a copy worker's process runs in."""
    for worker in cluster.workers:
        for executor in cluster.executors(worker) if worker.running() else ():
            if any(child.pid == pid for child in executor.children(recursive=True)):
                return worker, executor
    raise AssertionError(f"no executor of process {pid}")


def kill_executor(executor: psutil.Process) -> None:
    """Kill an executor with its Python processes, which otherwise copy on until PySpark's daemon notices its death."""
    processes = [executor, *executor.children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # the daemon was faster
            process.kill()
    _, running = psutil.wait_procs(processes, timeout=LONG_S)
    assert running == []


def test_processes_of_a_cluster_have_no_secret_in_environment_or_arguments(
    cluster: StandaloneCluster, connect: SparkConnectServer
) -> None:
    def unchanged(batches: Iterator[Any]) -> Iterator[Any]:  # nested, so that it is pickled by value
        return batches

    assert session(connect.url).range(0, 8, 1, 8).mapInArrow(unchanged, "id long").count() == 8  # starts Python workers
    running = [process for process in cluster.processes if process.running()]
    executors = [executor for worker in cluster.workers if worker.running() for executor in cluster.executors(worker)]
    assert len(running) >= 3  # the master and its workers
    assert executors
    (token,) = (line.split()[1] for line in connect.secrets_file.read_text().splitlines() if ".token" in line)
    assert cluster.secret in connect.secrets_file.read_text()

    for pid in (connect.pid, *(process.pid for process in running)):
        members = session_members(pid)
        assert exposed(members, [token, cluster.secret], passed_on=PASSED_ON) == []
        assert exposed(set(members) - _below(executors), [token, cluster.secret]) == []
    assert exposed([executor.pid for executor in executors], [token]) == []


def _below(processes: list[psutil.Process]) -> set[int]:
    """Return the ids of the processes and of all that they started."""
    return {each.pid for process in processes for each in (process, *process.children(recursive=True))}


def test_copy_workers_spread_over_executors_and_continue_after_kills(
    cluster: StandaloneCluster,
    connect: SparkConnectServer,
    clusters: Pair,
    topic_name: str,
    redis_url: str,
    record_property: Callable[[str, object], None],
) -> None:
    create_pair(clusters, topic_name, partitions=PARTITIONS)
    plan = replace(plan_of(clusters, topic_name, partitions=PARTITIONS), link_id=f"link-{topic_name}")
    assert count_slots(connect.url) == 4

    def copied() -> bool:
        return pool.ends() == ends_of(clusters[0], topic_name, partitions=PARTITIONS)

    def seconds_until_copied(name: str) -> float:
        killed_at = time.monotonic()
        produce(clusters[0], topic_name, count=800)
        pool.until(copied)
        took_s = time.monotonic() - killed_at
        record_property(f"seconds_until_copied_after_kill_of_{name}", took_s)
        return took_s

    with workers(redis_url, connect.url, plan, size=2) as pool:
        produce(clusters[0], topic_name, count=800)
        pool.until(lambda: pool.is_spread(over=2) and copied())

        (beat, *_) = pool.alive().values()
        kill_executor(spark_worker_of(cluster, beat.pid)[1])
        assert seconds_until_copied("executor") < MOST_S
        pool.until(lambda: pool.is_spread(over=2))  # Spark has started another executor

        (beat, *_) = pool.alive().values()
        spark_worker_of(cluster, beat.pid)[0].kill()  # the Spark worker with its executor
        assert seconds_until_copied("spark_worker") < MOST_S
        cluster.add_worker()
        pool.until(lambda: pool.is_spread(over=2))

        added_at = time.monotonic()
        cluster.add_worker()
        wait_for(lambda: count_slots(connect.url) == 6)
        pool.size = 3  # as the console decides by the slots
        pool.until(lambda: pool.is_spread(over=3))
        record_property("seconds_until_a_third_spark_worker_copies_its_share", time.monotonic() - added_at)
        record_property("replaced", pool.replaced)

        cluster.kill_master()
        produce(clusters[0], topic_name, count=800)
        pool.until(copied)  # executors need no master
        cluster.start_master()
        produce(clusters[0], topic_name, count=800)
        pool.until(copied)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name, partitions=PARTITIONS) == 4_000
