"""Faults that need the product's own code and rows: run in a process of their own with the product's settings.

``python manage.py shell -c "from chaos import inside; print(inside.rotate())"``. A reconciler here is the product's, run beside
that of its Celery worker, as after the loss of a lock.
"""

from __future__ import annotations

import base64
import pickle
import time
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import redis
from django.utils import timezone

from console.actors import SYSTEM
from console.errors import ConsoleError
from console.mirrors.operation_actions import operate
from console.models import ClusterLink, CopyWorker, MirrorPartition, MirrorTopic
from console.reconciling import plans
from console.reconciling.transition_errors import Failures
from console.workflows import leases
from console.workflows.observing import ensure_rows
from linkengine import jobs
from linkengine.domain.states import MirrorEvent, MirrorState

VIEW_S = 0.5  # between two publications: copy workers read assignments ten times a second
ACCEPT_TIMEOUT_S, RETRY_S = 60.0, 0.5  # until the product accepts a promotion: other faults may prevent it for a while


def plan() -> str:
    """Return a plan of all partitions, as a copy worker would get it, and the lease's duration; pickled."""
    link = _link()
    mirrors = list(link.mirrors.select_related("link"))
    rows = ensure_rows(mirrors, Failures())
    for row in rows.values():
        row.worker_id = "by hand"
    whole = plans.copy_plans(link, mirrors, rows)["by hand"]
    return base64.b64encode(pickle.dumps((whole, plans.TUNING.lease_ttl_ms))).decode()


def drain() -> None:
    """Replace the copy workers: the next reconcile pass starts others for all numbers and drains the present ones."""
    for row in CopyWorker.objects.all():
        CopyWorker.objects.filter(pk=row.pk).update(worker_id=f"{row.number:04d}-none", left_at=None)


def rotate() -> int:
    """Move every partition to the next copy worker; return how many moved. The next reconcile pass publishes it."""
    names = sorted(CopyWorker.objects.exclude(worker_id="").values_list("worker_id", flat=True))
    placed = MirrorPartition.objects.filter(worker_id__in=names).values_list("pk", "worker_id")
    return sum(
        MirrorPartition.objects.filter(pk=pk, worker_id=name).update(worker_id=names[(names.index(name) + 1) % len(names)])
        for pk, name in list(placed)
    )


def assign_twice(seconds: float) -> int:
    """Run two reconcilers of the same link; return how often the reconciler with the older view was the last to publish.

    The first computes the plans of all copy workers. Before it publishes them, partitions move, and the second computes and
    publishes theirs. Then the first publishes, with a higher number. The product's own reconciler publishes at the same time.
    """
    link_id, publish, overwritten = _link().pk, jobs.write_assignments, 0

    def publish_late(*arguments: Any, **named: Any) -> set[str]:
        nonlocal overwritten
        with patch.object(jobs, "write_assignments", publish):
            rotate()
            leases.publish_assignments(link_id)
        time.sleep(VIEW_S)
        changed = publish(*arguments, **named)
        overwritten += bool(changed)
        return changed

    deadline = time.monotonic() + seconds
    with patch.object(jobs, "write_assignments", publish_late):
        while time.monotonic() < deadline:
            with suppress(redis.RedisError):
                leases.publish_assignments(link_id)
            time.sleep(VIEW_S)
    return overwritten


def promote_and_rotate(name: str) -> bool:
    """Start the promotion of a mirror, then move all partitions and publish that; return whether it had not drained by then."""
    deadline = time.monotonic() + ACCEPT_TIMEOUT_S
    while not _is_accepted(name):
        if time.monotonic() > deadline:
            raise TimeoutError(f"The promotion of {name} was not accepted in {ACCEPT_TIMEOUT_S:.0f} s.")
        time.sleep(RETRY_S)
    rotate()
    with suppress(redis.RedisError):
        leases.publish_or_request_assignments(_link().pk)
    row = MirrorTopic.objects.get(name=name)
    return row.state == MirrorState.PENDING_STOPPED and row.drained_at is None and row.fencing_at is None


def _is_accepted(name: str) -> bool:
    mirror = MirrorTopic.objects.select_related("link__destination__environment").get(name=name)
    with suppress(ConsoleError):
        operate(mirror=mirror, operation=MirrorEvent.PROMOTE, by=SYSTEM, now=timezone.now())
        return True
    return False


def _link() -> ClusterLink:
    return ClusterLink.objects.select_related("destination", "source").get()
