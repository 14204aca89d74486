"""Run copy workers, write their assignments and read their progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from linkengine.coordination import lease, losses, pool, progress
from linkengine.coordination.losses import Loss
from linkengine.coordination.progress import Readings
from linkengine.copyjob import spark_job
from linkengine.domain.plans import CopyPlan, PartitionProgress
from linkengine.domain.signatures import Signer
from linkengine.domain.workers import Heartbeat, WorkerSetup


def setup_worker(worker_id: str, *, redis_url: str, secrets: tuple[str, ...], lease_ttl_ms: int) -> WorkerSetup:
    """Return the setup of a new worker; its key is derived from the newest of the installation's secrets."""
    key = pool.key_for(secrets[0], worker_id)
    return WorkerSetup(worker_id=worker_id, redis_url=redis_url, key=key, lease_ttl_ms=lease_ttl_ms)


def run_copy_worker(setup: WorkerSetup, *, spark_url: str) -> None:
    """Run a copy worker in Spark until it has ended. Blocks for hours."""
    spark_job.submit_worker(setup, spark_url=spark_url)


def interrupt_worker(worker_id: str, *, spark_url: str) -> bool:
    """Interrupt a worker's Spark job that this process submitted; return whether it was found."""
    return spark_job.interrupt_worker(worker_id, spark_url=spark_url)


def read_workers(redis_url: str, *, secrets: tuple[str, ...]) -> list[Heartbeat]:
    """Return the workers with a heartbeat in the last ten minutes, by id."""
    return pool.read_workers(redis_url, secrets=secrets)


def write_assignments(
    redis_url: str,
    link_id: str,
    plans: Mapping[str, CopyPlan],
    *,
    secrets: tuple[str, ...],
    applied: Mapping[str, int] | None = None,
) -> set[str]:
    """Write workers' assignments of a link, by worker id; return the workers whose assignment changed.

    ``applied``: the numbers of the assignments that the workers follow now.
    """
    return pool.write_assignments(redis_url, link_id, plans, secrets=secrets, applied=applied)


def end_workers(redis_url: str, workers: Iterable[str], *, secrets: tuple[str, ...]) -> None:
    """Order workers to release everything and to end."""
    pool.end_workers(redis_url, workers, secrets=secrets)


def read_readings(redis_url: str, link_id: str, signer: Signer) -> Readings:
    """Return the latest report of each partition of a link and, after a change of owner, the previous owner's last report."""
    return progress.read_readings(redis_url, link_id, signer)


def read_renewal(redis_url: str, link_id: str, signer: Signer, names: AbstractSet[str]) -> int | None:
    """Return a time (Unix ms) at which the reports with these names still held; None if any was not renewed."""
    return progress.read_renewal(redis_url, link_id, signer, names)


def read_news(redis_url: str, link_ids: Sequence[str]) -> list[str]:
    """Return the count of news per link, which changes when a copy worker has reported something to act on immediately."""
    return progress.read_news(redis_url, link_ids)


def read_progress(redis_url: str, link_id: str, signer: Signer) -> list[PartitionProgress]:
    """Return the latest report of every partition of a link, in any order, with a single Redis request."""
    return progress.read_progress(redis_url, link_id, signer)


def has_kept(redis_url: str, link_id: str) -> bool:
    """Return whether kept reports of a link wait to be processed."""
    return progress.has_kept(redis_url, link_id)


def read_kept(redis_url: str, link_id: str, signer: Signer) -> dict[str, PartitionProgress | None]:
    """Return the kept reports by name, earliest first; None for a report that cannot be parsed."""
    return progress.read_kept(redis_url, link_id, signer)


def forget_kept(redis_url: str, link_id: str, names: Iterable[str]) -> None:
    """Remove kept reports that were processed."""
    progress.forget_kept(redis_url, link_id, names)


def read_losses(redis_url: str, link_id: str, signer: Signer) -> list[Loss]:
    """Return the data losses that copy workers found at the source, by partition key; each stays until it is removed."""
    return losses.read_losses(redis_url, link_id, signer)


def forget_losses(redis_url: str, link_id: str, signer: Signer, found: Iterable[Loss]) -> None:
    """Remove losses that are in the gap ledger."""
    losses.forget_losses(redis_url, link_id, signer, found)


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
