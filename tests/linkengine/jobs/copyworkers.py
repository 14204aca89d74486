"""A copy worker in Spark that runs during a block."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import uuid4

from linkengine import jobs
from linkengine.domain.workers import worker_id_for
from tests.signing import SECRETS

COPIED_WITHIN_S = 80.0  # the first task of a fresh Spark server waits for Python workers


@contextmanager
def copy_worker(*, redis_url: str, spark_url: str) -> Iterator[str]:
    """Run a copy worker in Spark and yield its id; it is ended after the block."""
    setup = jobs.setup_worker(worker_id_for(0, uuid4().hex), redis_url=redis_url, secrets=SECRETS, lease_ttl_ms=4_000)
    with ThreadPoolExecutor(1) as pool:
        copying = pool.submit(jobs.run_copy_worker, setup, spark_url=spark_url)
        try:
            yield setup.worker_id
        finally:
            jobs.end_workers(redis_url, [setup.worker_id], secrets=SECRETS)
            copying.result(timeout=COPIED_WITHIN_S)
