"""Leases of all partitions of mirrors for stops and deletions, and the assignments of a link to the copy workers."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import Any

import redis
import structlog
from django.conf import settings
from django.db.models import F, prefetch_related_objects
from django.utils import timezone

from console.config import signing_keys
from console.mirrors import progress
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling import plans
from console.redis import locks
from console.workflows import pool
from console.workflows.pool import Pool
from linkengine import jobs
from linkengine.coordination.lease import RedisLease
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import COPYING, LinkState, MirrorState, StopReason
from linkengine.domain.workers import FIRST_GENERATION, CoordinationUnavailableError, Grant

# --- leases for stops and deletions -----------------------------------------------------------------------------------
#
# The leases make a stop faster and cleaner, but they are not what makes it safe. The lease of a crashed or unreachable copy
# worker cannot be taken before it expires, and Redis may be down. Then the stop continues without it: the fence has a higher
# generation than every known owner, so the broker refuses whatever that owner still sends.


POLL_S = 0.05
RENEWALS_PER_TTL = 4
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Taken:
    """Leases of a mirror that this process holds.

    ``complete``: of all partitions. ``generation`` is higher than that of every owner.
    """

    complete: bool = False
    generation: int = 1
    grants: list[Grant] = field(default_factory=list)


@contextmanager
def taken(mirror: MirrorTopic, *, wait_s: float) -> Iterator[Taken]:
    """Hold a mirror's leases inside the block.

    The caller has written assignments without the mirror; waits at most ``wait_s`` until the copy workers have released it. The
    leases are renewed until the block ends, since fencing many partitions may take longer than a lease lasts.
    """
    with taken_from_many([mirror], wait_s=wait_s) as by_mirror:
        yield by_mirror[mirror.pk]


@contextmanager
def taken_from_many(mirrors: Sequence[MirrorTopic], *, wait_s: float) -> Iterator[dict[int, Taken]]:
    """Hold the leases of many mirrors, with a common wait and few round trips. Yields them by the mirror's primary key."""
    lease = RedisLease(settings.REDIS_URL, ttl_ms=plans.TUNING.lease_ttl_ms)
    by_mirror, done = {mirror.pk: Taken() for mirror in mirrors}, Event()
    name = f"keep-leases-{min(by_mirror)}"
    keeper = Thread(target=_keep, args=(lease, tuple(by_mirror.values()), done), name=name, daemon=True)
    keeper.start()
    try:
        by_partition = {partition.key: by_mirror[mirror.pk] for mirror in mirrors for partition in plans.assignments_of(mirror)}
        _take(lease, by_partition, by_mirror, wait_s=wait_s)
        yield by_mirror
    finally:
        done.set()
        keeper.join()
        _release(lease, [grant for held in by_mirror.values() for grant in held.grants])


def check_released(mirror: MirrorTopic, taken: Taken) -> None:
    """Raise TIMEOUT_ERROR or ILLEGAL_STATE unless every partition was released cleanly. Unclean leases are left to expire."""
    # the first generation: Redis has lost the leases, so the previous owner is unknown
    unclean = [grant for grant in taken.grants if not grant.clean or grant.generation <= FIRST_GENERATION]
    for grant in unclean:  # not released, so that the next owner sees the missing release
        taken.grants.remove(grant)
    if not taken.complete:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR,
            f"The copy workers have not released every partition of {mirror.name!r} yet. Try again in a few seconds.",
        )
    if unclean:
        raise LinkEngineError(
            ErrorCode.ILLEGAL_STATE,
            f"The last copy worker of {mirror.name!r} may have crashed, and its requests may still arrive. Resume the mirror "
            "topic, wait until its partitions are reported again, pause it and retry. If that does not help, it crashed while "
            "filling a gap: repeat this half an hour later.",
        )


def _take(lease: RedisLease, by_partition: Mapping[str, Taken], by_mirror: Mapping[int, Taken], *, wait_s: float) -> None:
    deadline, missing = time.monotonic() + wait_s, dict(by_partition)
    try:
        while missing:
            for grant in lease.acquire_all(sorted(missing), f"stop-{min(by_mirror)}"):
                _add(missing.pop(grant.key), grant)
            if not missing or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
        raised = lease.raise_generations(sorted(missing), 0) if missing else {}
        for key, known in raised.items():
            missing[key].generation = max(missing[key].generation, known + 1)
    except CoordinationUnavailableError as error:  # the fence works without leases
        _log.warning("leases.unavailable", mirrors=len(by_mirror), missing=len(missing), error=str(error))
        return
    incomplete = {id(held) for held in missing.values()}
    for held in by_mirror.values():
        held.complete = id(held) not in incomplete


def _add(held: Taken, grant: Grant) -> None:
    held.grants.append(grant)
    held.generation = max(held.generation, grant.generation)


def _keep(lease: RedisLease, taken: Sequence[Taken], done: Event) -> None:
    while not done.wait(plans.TUNING.lease_ttl_ms / 1000 / RENEWALS_PER_TTL):
        try:
            lease.renew([grant for held in taken for grant in list(held.grants)])
        except CoordinationUnavailableError as error:  # the next renewal may be in time
            _log.warning("leases.not_renewed", error=str(error))


def _release(lease: RedisLease, grants: Sequence[Grant]) -> None:
    """Release the leases that were handed over cleanly. The others expire, so that the next owner runs a tail check."""
    try:
        lease.release_all([grant for grant in grants if grant.clean])
    except CoordinationUnavailableError as error:  # they expire
        _log.warning("leases.not_released", leases=len(grants), error=str(error))


# --- assignments ------------------------------------------------------------------------------------------------------


PREFIX = "Copy engine unavailable: "
ROUNDS = 5  # of writing assignments for other tasks; then the reconciler writes them


def is_to_be_copied(mirror: MirrorTopic, link: ClusterLink) -> bool:
    """Return whether the mirror is to be copied now. A stopping mirror is, while its promotion waits for lag zero."""
    if link.error_code == ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR:  # the side that opens the connections does not exist
        return False
    if link.state == LinkState.PAUSED or mirror.deletion_requested_at is not None or not mirror.num_partitions:
        return False
    state = MirrorState(mirror.state)
    if state is MirrorState.PENDING_STOPPED:
        draining = mirror.drained_at is None and mirror.fencing_at is None
        return mirror.stop_reason == StopReason.PROMOTE and draining
    return state in COPYING


def wanted_rows(
    link: ClusterLink, mirrors: Iterable[MirrorTopic], rows: Mapping[str, MirrorPartition]
) -> dict[str, MirrorPartition]:
    """Return the rows of the partitions that are to be copied now, by key."""
    keys = [key for mirror in mirrors if is_to_be_copied(mirror, link) for key in plans.partition_keys(mirror)]
    return {key: rows[key] for key in keys if key in rows}


def assign_link(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Mapping[str, MirrorPartition] | None = None
) -> None:
    """Place the partitions that are to be copied on workers, and publish the plans of all workers for this link.

    Workers release partitions that are no longer in their plan. Raises CoordinationUnavailableError if Redis is unavailable;
    workers then continue with their previous plans.
    """
    known = _rows_of(mirrors) if rows is None else rows
    wanted = wanted_rows(link, mirrors, known)
    _take_from_workers(row for key, row in known.items() if key not in wanted)
    live = pool.current_pool()
    _place(live, wanted)
    key, problem = plans.link_key(link), ""
    try:
        by_worker = plans.copy_plans(link, mirrors, wanted)
    except LinkEngineError as error:  # the source's address is unknown: workers release what they copy
        by_worker, problem = {}, error.message
    empty = plans.empty_plan(key)
    published = {name: by_worker.get(name, empty) for name in (*live.beats, *by_worker)}
    applied = {name: beat.links[key].applied for name, beat in live.beats.items() if key in beat.links}
    jobs.write_assignments(settings.REDIS_URL, key, published, secrets=signing_keys.worker_secrets(), applied=applied)
    _note_problem(link, problem or _problem(live, key, wanted))


def publish_or_request_assignments(link_id: int) -> None:
    """Write the assignments of a link as its rows are now, without waiting for the reconciler.

    If another task is writing them, it repeats the write afterwards, so that a thousand stops do not cause a thousand writes. A
    failure is logged and delays no stop: workers release partitions sooner
    with new assignments, but the fence works without.
    """
    try:
        locks.run_or_request(f"assignments:{link_id}", partial(publish_assignments, link_id), rounds=ROUNDS)
    except redis.RedisError as error:
        _log.warning("assignments.not_written", link=link_id, error=str(error))


def publish_assignments(link_id: int) -> None:
    """Write the assignments of a link as its rows are now, also while another task writes them. A failure is logged."""
    link = plans.load_link(link_id)
    if link is None:
        return
    mirrors = list(link.mirrors.all())
    try:
        assign_link(link, mirrors)
    except CoordinationUnavailableError as error:
        _log.warning("assignments.not_written", link=link.name, error=str(error))
    except Exception:  # noqa: BLE001 - logged with traceback; the reconciler reports it on the link
        _log.exception("assignments.not_written", link=link.name)


def _take_from_workers(rows: Iterable[MirrorPartition]) -> None:
    """Store that these partitions are no longer copied, so that they count for no worker."""
    placed = [row for row in rows if row.worker_id]
    if placed:
        MirrorPartition.objects.filter(pk__in=[row.pk for row in placed]).update(worker_id="")
    for row in placed:
        row.worker_id = ""


def _place(live: Pool, wanted: Mapping[str, MirrorPartition]) -> None:
    names = {worker.worker_id for worker in live.workers}
    unplaced = [row.pk for row in wanted.values() if row.worker_id not in names]
    if unplaced and any(not worker.draining for worker in live.workers):
        pool.place(live, unplaced)
        _read_places(list(wanted.values()))


def _read_places(rows: Collection[MirrorPartition]) -> None:
    """Update the rows' placements from the database."""
    if rows:
        now: Any = dict(MirrorPartition.objects.filter(pk__in=[row.pk for row in rows]).values_list("pk", "worker_id"))
        for row in rows:
            row.worker_id = now.get(row.pk, "")


def _problem(live: Pool, key: str, wanted: Mapping[str, MirrorPartition]) -> str:
    """Return why some partitions of the link are not copied although they are to be, or "" if all are."""
    reported = next((beat.links[key].error for beat in live.beats.values() if key in beat.links and beat.links[key].error), "")
    if reported:
        return reported
    names = {worker.worker_id for worker in live.workers}
    is_unplaced = any(row.worker_id not in names for row in wanted.values())
    return live.problem if is_unplaced else ""


def _note_problem(link: ClusterLink, problem: str) -> None:
    error = f"{PREFIX}{problem}" if problem else ""
    if link.engine_error != error:
        link.engine_error = error
        ClusterLink.objects.filter(pk=link.pk).update(engine_error=error, sequence=F("sequence") + 1)


def _rows_of(mirrors: Sequence[MirrorTopic]) -> dict[str, MirrorPartition]:
    prefetch_related_objects(list(mirrors), "partitions")
    progress.refresh(mirrors, now=timezone.now(), insist=True)
    return {f"{plans.mirror_key(mirror)}/{row.partition}": row for mirror in mirrors for row in mirror.partitions.all()}
