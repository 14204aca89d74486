"""Events that must never damage a mirror: killed and frozen copy workers, two at once, brokers that restart."""

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.coordination.pool import write_assignments
from linkengine.coordination.progress import read_progress
from linkengine.domain.plans import CopyPlan
from linkengine.domain.workers import worker_id_for
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    assert_equal_topics,
    create_pair,
    create_topic,
    ends_of,
    plan_of,
    producer_for,
    setup_for,
    wait_for,
)
from tests.linkengine.copyjob.memory import MemoryLease, NoLease
from tests.signing import SECRETS

ROOT = Path(__file__).parents[3]
LEASE_TTL_MS = 500
MOST_WORKERS = 25


@contextmanager
def transactions_being_written(cluster: KafkaCluster, topic: str, *, partitions: int) -> Iterator[None]:
    """Write transactions of random size, one in four aborted, and plain records, until the block ends."""
    producer = producer_for(cluster, transactional_id=topic)
    producer.init_transactions()
    plain = producer_for(cluster)
    over = threading.Event()

    def write() -> None:
        count = 0
        while not over.is_set():
            producer.begin_transaction()
            for number in range(random.randint(1, 40)):
                count += 1
                producer.produce(topic, key=f"{count}", value=f"{number} " * 10, partition=count % partitions)
            plain.produce(topic, value=f"plain {count}", partition=count % partitions)
            producer.flush()
            producer.commit_transaction() if count % 4 else producer.abort_transaction()
            over.wait(0.03)  # slow enough that a copy worker that is killed again and again can catch up in the end
        plain.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


@contextmanager
def copier_parent(plan: CopyPlan, redis_url: str, directory: Path) -> Iterator[Callable[[], int]]:
    """Yield a function that starts another worker process, which is assigned the plan."""
    lease_ttl_ms = plan.tuning.lease_ttl_ms
    names = [worker_id_for(number, uuid.uuid4().hex) for number in range(MOST_WORKERS)]
    setups = [setup_for(name, redis_url=redis_url, lease_ttl_ms=lease_ttl_ms) for name in names]
    write_assignments(redis_url, plan.link_id, dict.fromkeys(names, plan), secrets=SECRETS)
    plan_file = directory / "setups.pickle"
    plan_file.write_bytes(pickle.dumps(setups))
    command = [sys.executable, str(Path(__file__).with_name("copier_process.py")), str(plan_file)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        orders, processes = parent.stdin, parent.stdout
        assert orders is not None
        assert processes is not None
        children: list[int] = []

        def start() -> int:
            orders.write("\n")
            orders.flush()
            children.append(int(processes.readline()))
            return children[-1]

        yield start
        orders.close()
        for child in children:
            send_signal(child, signal.SIGKILL)
        parent.wait(30)


def send_signal(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return


def mirror_ends(plan: CopyPlan, redis_url: str) -> dict[int, int | None]:
    return {
        int(progress.key.split("/")[1]): progress.mirror_end for progress in read_progress(redis_url, plan.link_id, plan.signer)
    }


def start_copying(start: Callable[[], int], plan: CopyPlan, redis_url: str) -> int:
    """Start another worker process; return its id once the mirror has other ends than before."""
    before = mirror_ends(plan, redis_url)
    process = start()
    wait_for(lambda: mirror_ends(plan, redis_url) != before)
    return process


@pytest.mark.timeout(600)
def test_killed_and_frozen_copy_workers_lose_and_duplicate_nothing(
    clusters: Pair, topic_name: str, redis_url: str, tmp_path: Path
) -> None:
    source, destination = clusters
    create_pair(clusters, topic_name, partitions=2)
    plan = plan_of(clusters, topic_name, partitions=2, lease_ttl_ms=LEASE_TTL_MS, progress_ms=20, fetch_max_bytes=30_000)
    plan = replace(plan, link_id=f"link-{topic_name}")
    frozen: list[int] = []

    with copier_parent(plan, redis_url, tmp_path) as start:
        with transactions_being_written(source, topic_name, partitions=2):
            for number in range(14):
                copier = start_copying(start, plan, redis_url)
                time.sleep(random.uniform(0.0, 0.15))
                if number % 5 == 3:
                    os.kill(copier, signal.SIGSTOP)
                    frozen.append(copier)
                else:
                    os.kill(copier, signal.SIGKILL)
        for copier in frozen:
            os.kill(copier, signal.SIGCONT)
        start()
        ends = ends_of(source, topic_name, partitions=2)
        wait_for(lambda: mirror_ends(plan, redis_url) == ends)

        assert assert_equal_topics(source, topic_name, destination, topic_name, partitions=2) > 100


def test_two_copy_workers_of_the_same_partition_duplicate_nothing(clusters: Pair, topic_name: str) -> None:
    source, destination = clusters
    create_pair(clusters, topic_name)
    producer = producer_for(source, linger_ms=0)
    for number in range(30_000):
        producer.produce(topic_name, value=f"{number} " * 20)
        if number % 1_000 == 0:
            producer.flush()
    producer.flush()
    plan = plan_of(clusters, topic_name, fetch_partition_max_bytes=50_000)
    ends = ends_of(source, topic_name)

    # a lease that does not exclude: only compare-and-append protects the log
    with Copier(plan, lease=NoLease()) as first, Copier(plan, lease=NoLease()) as second:
        first.wait_for_ends(ends)
        second.wait_for_ends(ends)

    assert assert_equal_topics(source, topic_name, destination, topic_name) == 30_000


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster("own", directory=tmp_path_factory.mktemp("own")) as cluster:
        yield cluster


@pytest.mark.parametrize("side", ["source", "destination"])
@pytest.mark.timeout(600)
def test_broker_restart_only_delays_the_copy(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, own: KafkaCluster, topic_name: str, side: str
) -> None:
    source, destination = (own, destination_cluster) if side == "source" else (source_cluster, own)
    for cluster in (source, destination):
        create_topic(cluster, topic_name, partitions=2)
    plan = plan_of((source, destination), topic_name, partitions=2, request_timeout_ms=10_000)

    with Copier(plan) as copier:
        with transactions_being_written(source, topic_name, partitions=2):
            copier.wait_until(lambda progress: (progress.mirror_end or 0) > 100)
            if side == "destination":
                own.kill()
                time.sleep(0.5)
                own.restart()
        if side == "source":
            own.kill()
            copier.wait_until(lambda progress: progress.phase == "SOURCE_UNREACHABLE")
            own.restart()
            with transactions_being_written(source, f"{topic_name}", partitions=2):
                time.sleep(0.5)
        copier.wait_for_ends(ends_of(source, topic_name, partitions=2), deadline_s=90)

    assert assert_equal_topics(source, topic_name, destination, topic_name, partitions=2) > 0


def test_owner_after_lost_lease_data_passes_on_that_markers_may_be_in_flight(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0])
    producer.produce(topic_name, value="no gap follows")
    producer.flush()
    plan = plan_of(clusters, topic_name)

    with Copier(plan) as forgotten:
        forgotten.wait_for_ends({0: 1})
    without_memory = MemoryLease()
    with Copier(plan, lease=without_memory) as second:
        second.wait_for_ends({0: 1})

    (third,) = without_memory.acquire_all([plan.assignments[0].key], "third")
    assert (third.clean, third.markers_announced) == (False, True)
