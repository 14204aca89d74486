"""Publishes the assignments of a link to the copy workers, according to its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog
from django.conf import settings
from django.db.models import F, prefetch_related_objects
from django.utils import timezone

from console.config import signing_keys
from console.mirrors import progress
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling import placing, plans
from console.workflows import pool
from console.workflows.pool import Pool
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.workers import CoordinationUnavailableError

PREFIX = "Copy engine unavailable: "
_log = structlog.get_logger(__name__)


def assign_link(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Mapping[str, MirrorPartition] | None = None
) -> None:
    """Place the partitions that are to be copied on workers, and publish the plans of all workers for this link.

    Workers release partitions that are no longer in their plan. Raises CoordinationUnavailableError if Redis is unavailable;
    workers then continue with their previous plans.
    """
    known = _rows_of(mirrors) if rows is None else rows
    wanted = placing.wanted_rows(link, mirrors, known)
    placing.take_from_workers(row for key, row in known.items() if key not in wanted)
    workers = pool.current_pool()
    _place(workers, wanted)
    key, trouble = plans.link_key(link), ""
    try:
        by_worker = plans.copy_plans(link, mirrors, wanted)
    except LinkEngineError as error:  # the source's address is unknown: workers release what they copy
        by_worker, trouble = {}, error.message
    empty = plans.empty_plan(key)
    published = {name: by_worker.get(name, empty) for name in (*workers.beats, *by_worker)}
    applied = {name: beat.links[key].applied for name, beat in workers.beats.items() if key in beat.links}
    jobs.write_assignments(settings.REDIS_URL, key, published, secrets=signing_keys.worker_secrets(), applied=applied)
    _note_trouble(link, trouble or _trouble(workers, key, wanted))


def write_assignments(link_id: int) -> None:
    """Write the assignments of a link as its rows are now, without waiting for the reconciler.

    A failure is logged and delays no stop: workers release partitions sooner with new assignments, but the fence works without.
    """
    link = plans.load_link(link_id)
    if link is None:
        return
    mirrors = list(link.mirrors.all())
    try:
        assign_link(link, mirrors)
    except CoordinationUnavailableError as error:
        _log.warning("orders.not_written", link=link.name, error=str(error))
    except Exception:  # noqa: BLE001 - logged with traceback; the reconciler reports it on the link
        _log.exception("orders.not_written", link=link.name)


def _place(workers: Pool, wanted: Mapping[str, MirrorPartition]) -> None:
    names = {place.worker_id for place in workers.places}
    unplaced = [row.pk for row in wanted.values() if row.worker_id not in names]
    if unplaced and any(not place.draining for place in workers.places):
        pool.place(workers, unplaced)
        placing.read_places(list(wanted.values()))


def _trouble(workers: Pool, key: str, wanted: Mapping[str, MirrorPartition]) -> str:
    """Return why some partitions of the link are not copied although they are to be, or "" if all are."""
    reported = next(
        (beat.links[key].error for beat in workers.beats.values() if key in beat.links and beat.links[key].error), ""
    )
    if reported:
        return reported
    names = {place.worker_id for place in workers.places}
    is_unplaced = any(row.worker_id not in names for row in wanted.values())
    return workers.trouble if is_unplaced else ""


def _note_trouble(link: ClusterLink, trouble: str) -> None:
    error = f"{PREFIX}{trouble}" if trouble else ""
    if link.engine_error != error:
        link.engine_error = error
        ClusterLink.objects.filter(pk=link.pk).update(engine_error=error, sequence=F("sequence") + 1)


def _rows_of(mirrors: Sequence[MirrorTopic]) -> dict[str, MirrorPartition]:
    prefetch_related_objects(list(mirrors), "partitions")
    progress.refresh(mirrors, now=timezone.now(), insist=True)
    return {f"{plans.mirror_key(mirror)}/{row.partition}": row for mirror in mirrors for row in mirror.partitions.all()}
