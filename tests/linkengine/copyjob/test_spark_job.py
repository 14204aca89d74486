"""Copy workers on a real Spark Connect server: start, end, interruption, restart after a kill."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pyarrow
import pytest
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from devcluster.spark import SparkConnectServer
from linkengine.coordination.pool import end_workers, read_workers, write_assignments
from linkengine.coordination.progress import read_progress
from linkengine.copyjob.spark_job import (
    COLLECT_AFTER,
    executor_of,
    interrupt_worker,
    run_copy_worker,
    run_in_executor,
)
from linkengine.domain.plans import CopyPlan, PartitionPhase
from linkengine.domain.workers import Executor, Heartbeat, WorkerSetup, worker_id_for, write_setup
from linkengine.sparkclient import session
from tests.linkengine.copyjob.copying import (
    Pair,
    create_pair,
    ends_of,
    plan_of,
    read_topic,
    setup_for,
    wait_for,
)
from tests.signing import SECRETS

AGAIN_S = 30.0  # longest gap in the copy after a worker is killed: the expiry of its leases, and the restart; 5 s at rest


def setup_of_a_worker(redis_url: str, *, lease_ttl_ms: int = 4_000) -> WorkerSetup:
    return setup_for(worker_id_for(0, secrets.token_hex(6)), redis_url=redis_url, lease_ttl_ms=lease_ttl_ms)


@contextmanager
def submitted(setup: WorkerSetup, *, spark_url: str) -> Iterator[Future[None]]:
    """Submit a copy worker and end it after the block; yields the future of its job."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(run_copy_worker, setup, spark_url=spark_url)
        try:
            yield ended
        finally:
            end_workers(setup.redis_url, [setup.worker_id], secrets=SECRETS)


def beat_of(setup: WorkerSetup) -> Heartbeat | None:
    beats = {beat.worker_id: beat for beat in read_workers(setup.redis_url, secrets=SECRETS)}
    return beats.get(setup.worker_id)


def is_alive(setup: WorkerSetup) -> bool:
    beat = beat_of(setup)
    assert beat is not None
    return beat.alive


def test_garbage_collection_is_rare_and_skips_old_objects_while_a_worker_copies() -> None:
    earlier = gc.get_threshold()  # another number if a test in this process has imported the web process
    before = (700, 10, 10)  # Python's default
    gc.set_threshold(*before)
    seen: list[tuple[int, int]] = []

    def remember(_: WorkerSetup) -> None:
        seen.append((gc.get_freeze_count(), gc.get_threshold()[0]))

    numbers = [pyarrow.RecordBatch.from_pydict({"id": [0]})]
    list(run_in_executor(numbers, text=write_setup(setup_for()), run=remember))

    ((frozen, collects_after),) = seen
    assert frozen > 10_000
    assert collects_after == COLLECT_AFTER > before[0]
    assert (gc.get_freeze_count(), gc.get_threshold()) == (0, before)
    gc.freeze()  # as before this test: see tests/conftest.py
    gc.set_threshold(*earlier)


def test_worker_setup_shows_no_secret() -> None:
    setup = replace(setup_for(), redis_url="redis://:secret@host/0")

    assert setup.key not in repr(setup) + repr(write_setup(setup))
    assert "secret" not in repr(setup) + repr(write_setup(setup))


def test_executor_is_found_in_the_command_line_of_an_ancestor() -> None:
    inner = "import os; from linkengine.copyjob.spark_job import executor_of; print(executor_of(os.getpid()))"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}], check=True)"
    arguments = ["--driver-url", "spark://x", "--executor-id", "7", "--hostname", "h", "--cores", "3"]

    found = subprocess.run([sys.executable, "-c", outer, *arguments], check=True, capture_output=True, text=True, timeout=60)

    assert found.stdout.strip() == str(Executor(name=f"7@{socket.gethostname()}", slots=3))
    assert executor_of(os.getpid()) == Executor()
    assert executor_of(1 << 30) == Executor()  # no such process


@pytest.mark.spark
def test_worker_sends_heartbeats_and_ends_on_request(spark_connect_url: str, redis_url: str) -> None:
    setup = setup_of_a_worker(redis_url)

    with submitted(setup, spark_url=spark_connect_url) as ended:
        beat = wait_for(lambda: beat_of(setup))
        assert beat.partitions == 0
        assert (beat.executor, beat.executor_slots) == ("", 0)  # local mode
        assert not ended.done()
        end_workers(redis_url, [setup.worker_id], secrets=SECRETS)

        assert ended.result(30) is None


@pytest.mark.spark
def test_interrupted_worker_ends_and_its_caller_returns(spark_connect_url: str, redis_url: str) -> None:
    setup, other = setup_of_a_worker(redis_url), setup_of_a_worker(redis_url)

    with submitted(setup, spark_url=spark_connect_url) as freed, submitted(other, spark_url=spark_connect_url) as kept:
        wait_for(lambda: beat_of(setup) and beat_of(other))
        assert interrupt_worker(setup.worker_id, spark_url=spark_connect_url)

        assert "was interrupted" in str(freed.exception(20))
        wait_for(lambda: not is_alive(setup), deadline_s=30)
        assert is_alive(other)
        assert not kept.done()
    assert not interrupt_worker(setup.worker_id, spark_url=spark_connect_url)


@pytest.mark.spark
def test_threads_share_a_session_and_have_separate_tags(spark_connect_url: str) -> None:
    seen: dict[int, tuple[object, set[str]]] = {}

    def look(number: int) -> None:
        spark = session(spark_connect_url)
        spark.addTag(f"tag-{number}")
        together.wait(20)
        seen[number] = spark, set(spark.getTags())
        spark.removeTag(f"tag-{number}")

    together = threading.Barrier(3)
    threads = [threading.Thread(target=look, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len({id(spark) for spark, _ in seen.values()}) == 1
    assert [tags for _, (_, tags) in sorted(seen.items())] == [{"tag-0"}, {"tag-1"}, {"tag-2"}]


@pytest.mark.spark
@pytest.mark.kafka
def test_killed_worker_is_restarted_and_loses_and_duplicates_nothing(
    clusters: Pair, topic_name: str, spark_server: SparkConnectServer, redis_url: str
) -> None:
    create_pair(clusters, topic_name, partitions=2)
    produce(clusters[0], topic_name, count=3_000)
    plan = replace(plan_of(clusters, topic_name, partitions=2), link_id=f"link-{topic_name}")
    setup = setup_of_a_worker(redis_url)

    with submitted(setup, spark_url=spark_server.url) as ended:
        write_assignments(redis_url, plan.link_id, {setup.worker_id: plan}, secrets=SECRETS)
        wait_for(lambda: copied(plan, redis_url))
        first = beat_of(setup)
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        produce(clusters[0], topic_name, count=3_000)
        ends = ends_of(clusters[0], topic_name, partitions=2)
        wait_for(lambda: mirror_ends(plan, redis_url) == ends)
        took_s = time.monotonic() - killed_at
        assert not ended.done()
        second = beat_of(setup)
        assert second is not None
        assert second.pid != first.pid
        end_workers(redis_url, [setup.worker_id], secrets=SECRETS)
        ended.result(30)

    assert {progress.phase for progress in read_progress(redis_url, plan.link_id, plan.signer)} == {PartitionPhase.RELEASED}
    records = read_topic(clusters[1], topic_name, partitions=2)
    assert len(records) == 6_000
    assert records == read_topic(clusters[0], topic_name, partitions=2)
    assert took_s < AGAIN_S


def produce(cluster: KafkaCluster, topic: str, *, count: int) -> None:
    producer = Producer({**cluster.client("admin"), "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, key=str(number), value=secrets.token_bytes(50), partition=number % 2)
    assert producer.flush(30) == 0


def mirror_ends(plan: CopyPlan, redis_url: str) -> dict[int, int | None]:
    return {int(seen.key.split("/")[1]): seen.mirror_end for seen in read_progress(redis_url, plan.link_id, plan.signer)}


def copied(plan: CopyPlan, redis_url: str) -> bool:
    ends = mirror_ends(plan, redis_url)
    return len(ends) == 2 and all(ends.values())


def python_workers(spark_pid: int) -> set[int]:
    """Return the pids of the forked workers: children of the daemon, which is a child of Spark."""
    daemons = psutil.Process(spark_pid).children()
    return {worker.pid for daemon in daemons for worker in daemon.children()}
