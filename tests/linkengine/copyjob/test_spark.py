"""Slices over a real Spark Connect server: shares, warm workers, killed workers, orders; with the real loop at the end."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import psutil
import pyarrow
import pytest
import time_machine
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from devcluster.spark import SparkConnectServer
from linkengine.coordination.client import clock_ms
from linkengine.coordination.orders import write_orders
from linkengine.coordination.progress import read_progress
from linkengine.copyjob.spark import COLLECT_AFTER, RunTask, interrupt_slice, run_shares, submit_copy
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.dealing import deal
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import CopyPlan, CopyTuning, PartitionAssignment, PartitionPhase, PartitionProgress
from linkengine.domain.plantexts import PLAN_VERSION, PlanText, write_plan
from linkengine.sparkclient import SparkUnavailableError, session
from tests.linkengine.copyjob.copying import Pair, create_pair, ends_of, plan_of, read_topic, wait_for
from tests.linkengine.copyjob.standin import hold_leases, outlive_the_slice, write_a_log_line
from tests.signing import SIGNER

NOWHERE = ClusterAddress(bootstrap_servers="127.0.0.1:1")
NO_REDIS = "redis://127.0.0.1:1"


def assignment(number: int, *, mirror_id: str = "1") -> PartitionAssignment:
    return PartitionAssignment(
        mirror_id=mirror_id, partition=number, source_topic="t", mirror_topic="t", source_topic_id="", producer_id=number
    )


def plan(redis_url: str, *, partitions: int, tasks: int, slice_ms: int = 300) -> CopyPlan:
    name = secrets.token_hex(6)
    return CopyPlan(
        link_id=f"link-{name}",
        revision=1,
        slice_id=f"slice-{name}",
        source=NOWHERE,
        destination=NOWHERE,
        redis_url=redis_url,
        assignments=tuple(assignment(number, mirror_id=name) for number in range(partitions)),
        tasks=tasks,
        tuning=CopyTuning(slice_ms=slice_ms, lease_ttl_ms=1_000),
        signing_keys=SIGNER.texts(),
    )


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the rest of the suite Spark may need long to begin."""
    monkeypatch.setattr("linkengine.copyjob.spark.LATE_S", 100.0)


def text_of(one: CopyPlan) -> PlanText:
    return write_plan(one, deal(one.assignments, one.tasks))


@contextmanager
def submitted(one: CopyPlan, *, spark_url: str, run: RunTask | None = hold_leases) -> Iterator[Future[list[PartitionProgress]]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(submit_copy, one, spark_url=spark_url, run=run)


def worker_of(one: CopyPlan, partition: int) -> int | None:
    """The process that holds a partition's lease, as the stand-in tells it."""
    seen = {progress.key: progress.mirror_end for progress in read_progress(one.redis_url, one.link_id, one.signer)}
    return seen.get(one.assignments[partition].key)


def slice_ms_of_a_task(redis_url: str, *, ends_at_ms: int | None) -> int:
    """For how long a task copies that belongs to a slice of ten seconds."""
    seen: list[int] = []

    def remember(shortened: CopyPlan, *_: object, **__: object) -> list[PartitionProgress]:
        seen.append(shortened.tuning.slice_ms)
        return []

    numbers = [pyarrow.RecordBatch.from_pydict({"id": [0]})]
    one = plan(redis_url, partitions=1, tasks=1, slice_ms=10_000)
    assert len(list(run_shares(numbers, text=text_of(one), ends_at_ms=ends_at_ms, run=remember))) == 1
    return seen[0]


@pytest.mark.parametrize(("ends_in_ms", "expected_ms"), [(99_000, 10_000), (4_000, 4_000), (-5_000, 1)])
def test_a_task_that_runs_again_ends_with_the_slice_it_belongs_to(redis_url: str, ends_in_ms: int, expected_ms: int) -> None:
    found_ms = slice_ms_of_a_task(redis_url, ends_at_ms=clock_ms(redis_url) + ends_in_ms)

    assert expected_ms - 1_000 < found_ms <= expected_ms


def test_a_task_whose_machine_has_another_time_copies_as_long_as_others(redis_url: str) -> None:
    with time_machine.travel(datetime.now(tz=UTC) + timedelta(hours=1)):
        assert slice_ms_of_a_task(redis_url, ends_at_ms=clock_ms(redis_url) + 10_000) > 9_000


def test_a_task_that_nobody_can_tell_the_time_copies_for_a_whole_slice(redis_url: str) -> None:
    assert slice_ms_of_a_task(NO_REDIS, ends_at_ms=1) == 10_000
    assert slice_ms_of_a_task(redis_url, ends_at_ms=None) == 10_000


def test_the_garbage_collector_leaves_old_objects_alone_and_comes_rarely_while_a_task_copies() -> None:
    one = plan(NO_REDIS, partitions=1, tasks=1, slice_ms=10_000)
    before = gc.get_threshold()
    seen: list[tuple[int, int]] = []

    def remember(*_: object, **__: object) -> list[PartitionProgress]:
        seen.append((gc.get_freeze_count(), gc.get_threshold()[0]))
        return []

    numbers = [pyarrow.RecordBatch.from_pydict({"id": [0]})]
    list(run_shares(numbers, text=text_of(one), ends_at_ms=None, run=remember))

    ((frozen, collects_after),) = seen
    assert frozen > 10_000
    assert collects_after == COLLECT_AFTER > before[0]
    assert (gc.get_freeze_count(), gc.get_threshold()) == (0, before)


@pytest.mark.spark
def test_a_slice_answers_one_outcome_per_partition_and_leaves_clean_leases(spark_connect_url: str, redis_url: str) -> None:
    one = plan(redis_url, partitions=5, tasks=2)

    outcomes = submit_copy(one, spark_url=spark_connect_url, run=hold_leases)

    assert sorted(outcome.key for outcome in outcomes) == [each.key for each in one.assignments]
    assert {outcome.source_end for outcome in outcomes} == {1}  # the stand-in tells generations as source ends
    assert submit_copy(one, spark_url=spark_connect_url, run=hold_leases)[0].source_end == 2


@pytest.mark.spark
def test_an_executor_that_is_too_old_for_the_plan_says_so(
    spark_connect_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executors know the present version only; the worker is one ahead."""
    one = plan(redis_url, partitions=1, tasks=1)
    newer = partial(write_plan, version=PLAN_VERSION + 1)
    monkeypatch.setattr("linkengine.copyjob.spark.write_plan", newer)

    with pytest.raises(LinkEngineError) as told:
        submit_copy(one, spark_url=spark_connect_url, run=hold_leases)

    assert told.value.message.startswith(
        "A Spark executor has another version than the worker: it was sent a copy plan of version"
    )
    assert "Traceback" not in told.value.message


def test_a_slice_without_partitions_is_over_at_once(redis_url: str) -> None:
    assert submit_copy(plan(redis_url, partitions=0, tasks=4), spark_url="sc://127.0.0.1:1", run=hold_leases) == []


@pytest.mark.spark
def test_workers_stay_warm_from_slice_to_slice(spark_connect_url: str, redis_url: str) -> None:
    slices = [
        submit_copy(plan(redis_url, partitions=1, tasks=1), spark_url=spark_connect_url, run=hold_leases) for _ in range(4)
    ]

    assert len({outcome.mirror_end for outcomes in slices for outcome in outcomes}) < 4  # process ids


@pytest.mark.spark
def test_orders_end_a_slice_early(spark_connect_url: str, redis_url: str) -> None:
    one = plan(redis_url, partitions=2, tasks=2, slice_ms=60_000)

    with submitted(one, spark_url=spark_connect_url) as outcomes:
        wait_for(lambda: len(read_progress(redis_url, one.link_id, one.signer)) == 2)
        write_orders(redis_url, one.link_id, one.signer, revision=1, wanted={})

        assert len(outcomes.result(20)) == 2


@pytest.mark.spark
def test_a_killed_worker_is_replaced_inside_the_slice(spark_connect_url: str, redis_url: str) -> None:
    one = plan(redis_url, partitions=2, tasks=2, slice_ms=60_000)

    with submitted(one, spark_url=spark_connect_url) as outcomes:
        victim = wait_for(lambda: worker_of(one, 1) and worker_of(one, 0))
        os.kill(victim, signal.SIGKILL)
        successor = wait_for(lambda: (now := worker_of(one, 0)) != victim and now)
        write_orders(redis_url, one.link_id, one.signer, revision=1, wanted={})
        generations = {outcome.key: outcome.source_end for outcome in outcomes.result(35)}

    assert successor
    assert generations == {one.assignments[0].key: 2, one.assignments[1].key: 1}


@pytest.mark.spark
def test_a_slice_that_does_not_end_in_time_is_given_up(
    spark_connect_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linkengine.copyjob.spark.LATE_S", 5.0)  # before its tasks have begun, an interrupt would be lost
    one = plan(redis_url, partitions=1, tasks=1, slice_ms=100)

    with pytest.raises(SparkUnavailableError, match="interrupted before all of its tasks had ended"):
        submit_copy(one, spark_url=spark_connect_url, run=outlive_the_slice)
    write_orders(redis_url, one.link_id, one.signer, revision=1, wanted={})


@pytest.mark.spark
def test_an_interrupted_slice_frees_its_caller_and_only_its_own(spark_connect_url: str, redis_url: str) -> None:
    one, other = (plan(redis_url, partitions=1, tasks=1, slice_ms=8_000) for _ in range(2))

    with submitted(one, spark_url=spark_connect_url) as freed, submitted(other, spark_url=spark_connect_url) as kept:
        wait_for(lambda: worker_of(one, 0) and worker_of(other, 0))
        assert interrupt_slice(one.slice_id, spark_url=spark_connect_url)

        assert "was interrupted" in str(freed.exception(10))
        assert len(kept.result(60)) == 1
    assert not interrupt_slice(one.slice_id, spark_url=spark_connect_url)


@pytest.mark.spark
def test_threads_share_one_session_and_keep_their_tags_apart(spark_connect_url: str) -> None:
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
def test_a_worker_killed_while_copying_loses_and_doubles_nothing(
    clusters: Pair, topic_name: str, spark_server: SparkConnectServer, redis_url: str
) -> None:
    create_pair(clusters, topic_name, partitions=2)
    produce(clusters[0], topic_name, count=3_000)
    name = secrets.token_hex(4)
    one = plan_of(clusters, topic_name, partitions=2, slice_id=name, slice_ms=60_000, lease_ttl_ms=1_500)
    one = replace(one, link_id=f"link-{name}", redis_url=redis_url)

    with submitted(one, spark_url=spark_server.url, run=None) as outcomes:
        wait_for(lambda: copied(one))
        for pid in python_workers(spark_server.pid):
            os.kill(pid, signal.SIGKILL)
        produce(clusters[0], topic_name, count=3_000)
        ends = ends_of(clusters[0], topic_name, partitions=2)
        wait_for(lambda: mirror_ends(one) == ends)
        write_orders(redis_url, one.link_id, one.signer, revision=1, wanted={})
        phases = {outcome.phase for outcome in outcomes.result(30)}

    assert phases == {PartitionPhase.RELEASED}
    records = read_topic(clusters[1], topic_name, partitions=2)
    assert len(records) == 6_000
    assert records == read_topic(clusters[0], topic_name, partitions=2)


def produce(cluster: KafkaCluster, topic: str, *, count: int) -> None:
    producer = Producer({**cluster.client("admin"), "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, key=str(number), value=secrets.token_bytes(50), partition=number % 2)
    assert producer.flush(30) == 0


def mirror_ends(one: CopyPlan) -> dict[int, int | None]:
    return {int(seen.key.split("/")[1]): seen.mirror_end for seen in read_progress(one.redis_url, one.link_id, one.signer)}


def copied(one: CopyPlan) -> bool:
    ends = mirror_ends(one)
    return len(ends) == 2 and all(ends.values())


def python_workers(spark_pid: int) -> set[int]:
    """The forked workers: children of the daemon, which is a child of Spark."""
    daemons = psutil.Process(spark_pid).children()
    return {worker.pid for daemon in daemons for worker in daemon.children()}


def test_log_lines_of_a_task_have_the_id_of_the_request_and_of_the_slice(
    redis_url: str, spark_server: SparkConnectServer
) -> None:
    one = replace(plan(redis_url, partitions=1, tasks=1), request_id=f"request-{secrets.token_hex(6)}")

    submit_copy(one, spark_url=spark_server.url, run=write_a_log_line)

    (line,) = [line for line in spark_server.log.read_text(errors="replace").splitlines() if one.link_id in line]
    assert one.request_id in line
    assert one.slice_id in line
