"""Fails many mirrors of a link over at once: the steps of ``stopping``, each for all mirrors together.

Takes only mirrors without a mark, and marks them first. Mirrors that are not finished keep the mark, so the task for a single
mirror continues with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import structlog
from celery import shared_task
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from console.models import MirrorTopic
from console.queue import dispatch
from console.reconciling import ends, groups, plans
from console.reconciling.due_tasks import MANY
from console.redis import locks
from console.tasks import leases
from console.tasks.stopping import (
    FAILOVER_RELEASE_S,
    Opening,
    StopTakenOverError,
    batch_name,
    check_marks,
    note_many_stopped,
    write_assignments,
)
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorjobs import MirrorStopped
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import BECOMING, MirrorState, StopReason

PER_COMMIT = 100  # so that other writers are not blocked for long
_log = structlog.get_logger(__name__)


@shared_task(name="stop_many")
def stop_many(*, link_id: int, **_: Any) -> None:
    """Fence all mirrors of the link that are failing over, and make their topics writable."""
    with locks.lock(batch_name(link_id)) as acquired:
        if not acquired:
            return
        write_assignments(link_id)
        mirrors = _claim(link_id)
        if mirrors:
            _stop({mirror.name: mirror for mirror in mirrors})
    dispatch.send("reconcile_link", link_id=link_id)


def _claim(link_id: int) -> list[MirrorTopic]:
    """Mark the mirrors that can be stopped together, and return them."""
    eligible = MirrorTopic.objects.filter(
        link=link_id,
        state=MirrorState.PENDING_STOPPED,
        stop_reason=StopReason.FAILOVER,
        fencing_at=None,
        deletion_requested_at=None,
        num_partitions__gt=0,
        holds_copy=True,
        link__gap_filler=GapFiller.MARKERS,
    ).exclude(Q(partitions__stopped_end__isnull=False) | Q(prior_state__in=BECOMING))
    keys = list(eligible.values_list("pk", flat=True))
    if len(keys) < MANY:
        return []
    now = timezone.now()
    eligible.filter(pk__in=keys).update(fencing_at=now)
    return list(MirrorTopic.objects.filter(pk__in=keys, fencing_at=now).with_links().prefetch_related("partitions"))


def _stop(mirrors: Mapping[str, MirrorTopic]) -> None:
    with leases.taken_from_many(list(mirrors.values()), wait_s=FAILOVER_RELEASE_S) as taken:
        stops = plans.stops_of(mirrors.values(), generations={key: lease.generation for key, lease in taken.items()})
        grants = [grant for lease in taken.values() for grant in lease.grants]
        opened = Opening()
        known = ends.many_with_known_ends(list(zip(mirrors.values(), stops, strict=True)), grants=grants)
        try:
            stopped = jobs.stop_many(
                [stop for _, stop in known],
                on_fenced=lambda found: _record(mirrors, found.items()),
                on_open=opened.note,
                check_ours=partial(_check_ours, mirrors),
            )
        except StopTakenOverError:
            _log.warning("stop_many.taken_over", mirrors=len(mirrors))
            return
        except LinkEngineError as error:  # the task for a single mirror recognizes those that were fenced
            _log.warning("stop_many.failed", code=error.code, mirrors=len(mirrors))
            return
    done = list(stopped.items())
    for first in range(0, len(done), PER_COMMIT):
        with transaction.atomic():
            batch = done[first : first + PER_COMMIT]
            for name, result in batch:
                if result.clamped:
                    groups.store_clamped(mirror=mirrors[name], clamped=result.clamped, now=timezone.now())
            note_many_stopped([(mirrors[name], result) for name, result in batch], now=opened.at or timezone.now())


def _check_ours(mirrors: Mapping[str, MirrorTopic]) -> None:
    marks = {mirror.fencing_at for mirror in mirrors.values()}
    for marked_at in marks - {None}:
        assert marked_at is not None
        check_marks([mirror.pk for mirror in mirrors.values() if mirror.fencing_at == marked_at], marked_at=marked_at)


def _record(mirrors: Mapping[str, MirrorTopic], found: Iterable[tuple[str, MirrorStopped]]) -> None:
    ends.record_many_ends((mirrors[name], stopped) for name, stopped in found)
