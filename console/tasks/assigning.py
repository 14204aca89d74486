"""Tells copy workers what to copy of a link, as its rows are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.conf import settings
from django.db.models import F, prefetch_related_objects
from django.utils import timezone

from console.config import signing_keys
from console.mirrors import progress
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling import placing, plans
from console.tasks import pool
from console.tasks.pool import Pool
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError

PREFIX = "Copy engine unavailable: "


def assign_link(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Mapping[str, MirrorPartition] | None = None
) -> None:
    """Have workers begin with what is wanted and nobody copies, and let go of what is not wanted any more.

    Raises CoordinationUnavailableError in an outage; what is copied goes on then as it was told before.
    """
    known = _rows_of(mirrors) if rows is None else rows
    wanted = placing.wanted_rows(link, mirrors, known)
    placing.take_from_workers(row for key, row in known.items() if key not in wanted)
    standing = pool.current_pool()
    _place(standing, wanted)
    key, trouble = plans.link_key(link), ""
    try:
        shares = plans.copy_plans(link, mirrors, wanted)
    except LinkEngineError as error:  # nobody knows where to copy from: what is copied is let go of
        shares, trouble = {}, error.message
    empty = plans.empty_plan(key)
    told = {name: shares.get(name, empty) for name in (*standing.beats, *shares)}
    applied = {name: beat.links[key].applied for name, beat in standing.beats.items() if key in beat.links}
    jobs.write_assignments(settings.REDIS_URL, key, told, secrets=signing_keys.worker_secrets(), applied=applied)
    _note_trouble(link, trouble or _trouble(standing, key, wanted))


def _place(standing: Pool, wanted: Mapping[str, MirrorPartition]) -> None:
    names = {one.worker_id for one in standing.places}
    homeless = [row.pk for row in wanted.values() if row.worker_id not in names]
    if homeless and any(not one.draining for one in standing.places):
        pool.place(standing, homeless)
        placing.read_places(list(wanted.values()))


def _trouble(standing: Pool, key: str, wanted: Mapping[str, MirrorPartition]) -> str:
    """Why something of the link is not copied though it shall be; "" where all of it is."""
    told = next((beat.links[key].error for beat in standing.beats.values() if key in beat.links and beat.links[key].error), "")
    if told:
        return told
    names = {one.worker_id for one in standing.places}
    nobodys = any(row.worker_id not in names for row in wanted.values())
    return standing.trouble if nobodys else ""


def _note_trouble(link: ClusterLink, trouble: str) -> None:
    error = f"{PREFIX}{trouble}" if trouble else ""
    if link.engine_error != error:
        link.engine_error = error
        ClusterLink.objects.filter(pk=link.pk).update(engine_error=error, sequence=F("sequence") + 1)


def _rows_of(mirrors: Sequence[MirrorTopic]) -> dict[str, MirrorPartition]:
    prefetch_related_objects(list(mirrors), "partitions")
    progress.refresh(mirrors, now=timezone.now(), insist=True)
    return {f"{plans.mirror_key(mirror)}/{row.partition}": row for mirror in mirrors for row in mirror.partitions.all()}
