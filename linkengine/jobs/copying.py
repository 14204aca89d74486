"""Run copy workers, and remove what they have stored in Redis."""

from __future__ import annotations

from collections.abc import Iterable

from linkengine.coordination import lease, losses, pool, progress
from linkengine.copyjob import spark_job
from linkengine.domain.workers import WorkerSetup


def setup_worker(worker_id: str, *, redis_url: str, secrets: tuple[str, ...], lease_ttl_ms: int) -> WorkerSetup:
    """Return the setup of a new worker; its key is derived from the newest of the installation's secrets."""
    key = pool.key_for(secrets[0], worker_id)
    return WorkerSetup(worker_id=worker_id, redis_url=redis_url, key=key, lease_ttl_ms=lease_ttl_ms)


def run_copy_worker(setup: WorkerSetup, *, spark_url: str) -> None:
    """Run a copy worker in Spark until it has ended. Blocks for hours."""
    spark_job.submit_worker(setup, spark_url=spark_url)


def clear_mirror(redis_url: str, link_id: str, *, mirror_id: str, keys: Iterable[str] = ()) -> None:
    """Remove the reports and losses of a deleted mirror, and the leases of its partitions (``keys``)."""
    progress.clear_mirror(redis_url, link_id, mirror_id=mirror_id)
    losses.clear_mirror(redis_url, link_id, mirror_id=mirror_id)
    lease.forget_leases(redis_url, keys)


def clear_link(redis_url: str, link_id: str, *, keys: Iterable[str] = ()) -> None:
    """Remove the reports and losses of a deleted link, and the leases of its mirrors' partitions (``keys``)."""
    progress.clear_link(redis_url, link_id)
    losses.clear_losses(redis_url, link_id)
    lease.forget_leases(redis_url, keys)
