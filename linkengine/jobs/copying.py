"""Run slices of the copy job, give running tasks their orders and read how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from linkengine.coordination import lease, losses, orders, progress
from linkengine.coordination.losses import Loss
from linkengine.copyjob import spark
from linkengine.domain.plans import CopyPlan, PartitionProgress
from linkengine.domain.signatures import Signer


def copy_slice(plan: CopyPlan, *, spark_url: str) -> list[PartitionProgress]:
    """Copy for one slice (``plan.tuning.slice_ms``) and answer the last observation of every partition. Blocks."""
    return spark.submit_copy(plan, spark_url=spark_url)


def interrupt_slice(slice_id: str, *, spark_url: str) -> bool:
    """Free whoever waits for the slice in this process; its tasks end by their orders. Answer whether there was one."""
    return spark.interrupt_slice(slice_id, spark_url=spark_url)


def read_progress(redis_url: str, link_id: str, signer: Signer) -> list[PartitionProgress]:
    """Read the latest report of every partition of a link, in any order; one Redis request."""
    return progress.read_progress(redis_url, link_id, signer)


def write_report(report: PartitionProgress) -> str:
    """Write what a task answered as one line of text, for who keeps it."""
    return progress.to_json(report)


def read_report(line: str) -> PartitionProgress:
    """Read what ``write_report`` wrote; raise ValueError for anything else."""
    return progress.from_json(line)


def read_losses(redis_url: str, link_id: str, signer: Signer) -> list[Loss]:
    """Read what copiers found to be gone from the source, by partition key; each stays until it is forgotten."""
    return losses.read_losses(redis_url, link_id, signer)


def forget_losses(redis_url: str, link_id: str, signer: Signer, found: Iterable[Loss]) -> None:
    """Let go of losses that are in the gap ledger."""
    losses.forget_losses(redis_url, link_id, signer, found)


def write_orders(
    redis_url: str,
    link_id: str,
    signer: Signer,
    *,
    revision: int,
    wanted: Mapping[str, bool],
    lives: Mapping[str, str] | None = None,
) -> bool:
    """Tell running tasks which mirrors (by id) go on, and in which life; answer False where a newer revision is written."""
    return orders.write_orders(redis_url, link_id, signer, revision=revision, wanted=wanted, lives=lives or {})


def clear_mirror(redis_url: str, link_id: str, *, mirror_id: str, keys: Iterable[str] = ()) -> None:
    """Forget the reports of a mirror that is gone, what its copiers had lost, and the leases of its partitions (``keys``)."""
    progress.clear_mirror(redis_url, link_id, mirror_id=mirror_id)
    losses.clear_mirror(redis_url, link_id, mirror_id=mirror_id)
    lease.forget_leases(redis_url, keys)


def clear_link(redis_url: str, link_id: str, *, keys: Iterable[str] = ()) -> None:
    """Forget the orders of a link that is gone, what its copiers had lost, and the leases of its mirrors' partitions."""
    orders.clear_orders(redis_url, link_id)
    losses.clear_losses(redis_url, link_id)
    lease.forget_leases(redis_url, keys)
