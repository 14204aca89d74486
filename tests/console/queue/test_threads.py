"""A real worker with few threads, and a Spark that does not respond: copy workers leave threads to all other tasks."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.db import connection

from console.celery import threads_for_long
from console.models import CopyWorker
from console.redis import heartbeats as redis_health
from console.redis import redis_client
from devcluster.ports import LOOPBACK
from devcluster.processes import Process

ROOT = Path(__file__).resolve().parents[3]
THREADS, WORKERS = 4, 6


@pytest.mark.parametrize(("threads", "for_long"), [(1, 1), (3, 3), (4, 3), (64, 48), (200, 184)])
def test_quarter_of_the_threads_is_kept_free_but_at_most_sixteen(threads: int, for_long: int) -> None:
    assert threads_for_long(threads) == for_long


@pytest.fixture
def hanging_spark() -> Iterator[str]:
    with socket.create_server((LOOPBACK, 0), backlog=64) as server:
        yield f"sc://{LOOPBACK}:{server.getsockname()[1]}"


@pytest.fixture
def queue(settings: Any, redis_url: str) -> Celery:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/9"
    redis_client().flushdb()
    return Celery(broker=settings.REDIS_URL)


@pytest.fixture
def worker(transactional_db: None, queue: Celery, hanging_spark: str, settings: Any, tmp_path: Path) -> Iterator[Process]:
    env = {
        "CLUSTERLINK_DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
        "CLUSTERLINK_REDIS_URL": settings.REDIS_URL,
        "CLUSTERLINK_SPARK_URL": hanging_spark,
        "CLUSTERLINK_WORKER_THREADS": str(THREADS),
    }
    command = [sys.executable, "-m", "celery", "-A", "console.celery", "worker", "-n", "few-threads@%h", "--loglevel=INFO"]
    process = Process(command, name="worker", log=tmp_path / "worker.log", env=env, cwd=ROOT)
    yield process
    process.kill()


def wait(worker: Process, check: Callable[[], Any], *, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, worker.log_tail()
        time.sleep(0.1)


def taken() -> int:
    return CopyWorker.objects.exclude(submitted_at=None).count()


@pytest.mark.timeout(180)
def test_copy_workers_leave_threads_to_other_tasks(transactional_db: None, queue: Celery, worker: Process) -> None:
    for number in range(WORKERS):
        CopyWorker.objects.create(number=number)
        queue.send_task("run_copy_worker", kwargs={"number": number}, queue="spark")
    wait(worker, lambda: taken() == THREADS - 1, timeout_s=60)
    wait(worker, lambda: not redis_client().llen("spark"), timeout_s=60)
    assert taken() == THREADS - 1

    queue.send_task("reconcile", queue="control")

    wait(worker, lambda: redis_health.heartbeat_age_ms() is not None, timeout_s=60)
