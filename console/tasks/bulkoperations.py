"""Carries out operations on several mirror topics (``console.actions.bulkoperations``) in slices of a few seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery import shared_task
from django.utils import timezone

from console.actions import bulkoperations
from console.models import BulkOperation, MirrorTopic
from console.queue import dispatch
from console.reconciling import plans
from console.redis import locks
from console.tasks.autocreate import AT_ONCE, refusal_of
from linkengine.domain.errors import LinkEngineError

RESEND_MS = 2_000
SLICE_S = 10.0  # then the task is sent again, so that it can be acknowledged
_RELATED = ("link__destination__environment__organization", "link__source", "user")


@shared_task(name="advance_bulk_operation")
def advance_bulk_operation(*, operation_id: int, **_: Any) -> None:
    """Carry out the waiting topics of an operation for ``SLICE_S``, under its lock."""
    until = time.monotonic() + SLICE_S
    with locks.lock(f"bulk-operation:{operation_id}") as acquired:
        while acquired and time.monotonic() < until:
            # read again for each batch: the user may have lost a role, the link may have been paused
            rows = BulkOperation.objects.select_related(*_RELATED).filter(pk=operation_id, finished_at=None)
            operation = rows.first()
            if operation is None:
                return
            if not bulkoperations.carry_out(operation, check_clusters=check_together, now=timezone.now()):
                return
    if acquired:
        dispatch.send("advance_bulk_operation", operation_id=operation_id)


def look_after_operations() -> None:
    """Send the task for each operation that has waiting topics: its message may be lost, or its worker may have crashed."""
    for operation_id in BulkOperation.objects.filter(finished_at=None).values_list("pk", flat=True):
        if not locks.is_locked(f"bulk-operation:{operation_id}") and locks.claim(f"bulk:{operation_id}", ttl_ms=RESEND_MS):
            dispatch.send("advance_bulk_operation", operation_id=operation_id)


def check_together(mirrors: Sequence[MirrorTopic]) -> list[LinkEngineError | None]:
    """Return why the clusters refuse to create each of the mirrors, None if they do not; ``AT_ONCE`` are checked at once."""
    try:
        setups = [plans.setup_of(mirror) for mirror in mirrors]
    except LinkEngineError as error:  # the link's properties cannot be used
        return [error] * len(mirrors)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="check-mirror") as pool:
        return list(pool.map(refusal_of, setups))
