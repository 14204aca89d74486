"""Keeps the configured number of copy workers running and places partitions on those that are alive.

A copy worker is a Spark job with one task. A thread of a Celery worker submits the job and waits for it, but the job does not
depend on that thread:

    Celery worker exits ──► its copy worker keeps running, for as long as Spark keeps a job without a client
                            (``spark.connect.execute.manager.detachedTimeout``)
    next Celery worker  ──► after ``REPLACE_AFTER`` submits another copy worker with the same number
    old copy worker     ──► is drained: its partitions move to the others, then it is ordered to end

A copy worker that shares its Spark executor with others while another executor has fewer is replaced in the same way, at once
(``crowded_worker``). Spark chooses the executor of the replacement at random, so this is tried up to ``SPREAD_TRIES`` times.

A copy worker counts as alive while its heartbeat is at most ``DEAD_MS`` old.

Placements are stored in the database, so a loss of Redis's data moves nothing. Two processes may decide at the same time: each
move is a compare-and-swap, and assignments are written from the rows again and again (``workflows.leases``).
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Lock, Thread
from typing import Any

import redis
import structlog
from django.conf import settings
from django.db import connection
from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from console.config import signing_keys
from console.models import ClusterLink, CopyWorker, MirrorPartition
from console.queue import dispatch
from console.queue.scheduler import records_health
from console.reconciling import plans
from console.redis import heartbeats as redis_health
from console.redis import locks, redis_client
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.times import pause_s
from linkengine.domain.workers import (
    DEAD_MS,
    EACH_BYTES_PER_S,
    CoordinationUnavailableError,
    Heartbeat,
    PartitionLoad,
    PoolWorker,
    assign,
    crowded_worker,
    moves_nothing,
    number_of,
    worker_id_for,
)
from linkengine.sparkclient import SparkUnavailableError, SparkUnresponsiveError, count_slots, session

_log = structlog.get_logger(__name__)

HEARTBEAT_CACHE_S = 0.2  # how long this process reuses the heartbeats that it has read from Redis
CLAIM_MS = 2_000  # how often a job is sent to the queue, at most
BALANCE_MS = 2_000  # between two checks of the balance; each moves a tenth of the partitions at most
FINE_BALANCE_MS = 30_000  # between two checks that correct a small imbalance, too: measured rates vary
START_WITHIN = timedelta(seconds=30)  # a job that has not started by then lacks a task slot; a cold Spark server takes 20 s
REPLACE_AFTER = timedelta(seconds=60)  # a job without a waiting thread is replaced then; Spark keeps it for 5 minutes
HANGS_AFTER = timedelta(seconds=60)  # without a heartbeat, while Spark reports the job as running: the worker hangs
# without any heartbeat: the job is submitted again, since Spark may have dropped it
NO_HEARTBEAT_AFTER = timedelta(minutes=10)
BACKOFF_S = 1.0  # after the first failure; doubles
LONGEST_BACKOFF_S = 10.0
SHORT_RUN = timedelta(seconds=10)  # a job that ends sooner did not copy; without a pause the next would be submitted at once
WATCH_S = 1.0
SPREAD_TRIES, SPREAD_S = 6, 3600  # replacements of a number by which workers are to be spread over executors; in this time
_TRIES, _TRY_S = 40, 0.02  # to get the lock for placing partitions
_SINCE = "console:copy-workers-since"
_MEMORY_MS = DEAD_MS + 1_000  # after a loss of its data, Redis has the heartbeats of all live workers again
_shutting_down = Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The copy workers at a point of time."""

    rows: dict[int, CopyWorker]
    beats: dict[str, Heartbeat]  # of live workers, by worker id
    workers: tuple[PoolWorker, ...]
    size: int  # target number of workers

    @property
    def problem(self) -> str:
        """Return why a worker of the pool does not run; "" if all of them run."""
        missing = [row for number, row in sorted(self.rows.items()) if number < self.size and row.worker_id not in self.beats]
        return next((why for row in missing if (why := _why_not(row))), "")


# --- what Spark runs --------------------------------------------------------------------------------------------------


def stop_waiting() -> None:
    """Stop waiting for copy workers on a clean shutdown. They keep running, and the next Celery worker replaces them."""
    _shutting_down.set()


def lock_name(number: int) -> str:
    """Return the name of the lock that a Celery worker holds while a thread waits for a copy worker."""
    return f"copy-worker:{number}"


def run_worker(number: int) -> None:
    """Submit a copy worker to Spark and wait until it has ended. Call it with the lock of the number."""
    if _shutting_down.is_set():
        return
    worker_id, now = worker_id_for(number, uuid.uuid4().hex[:12]), timezone.now()
    _end_previous(number)
    CopyWorker.objects.filter(number=number).update(worker_id=worker_id, submitted_at=now, left_at=None, ended_at=None)
    connection.close()  # the thread waits for hours and needs no database connection
    job = _Job(worker_id)
    while not job.ended.wait(WATCH_S):
        if _shutting_down.is_set():
            return
        if _hangs(worker_id, since=now):
            job.interrupt()
            break
        if _is_crowded(number, worker_id):
            _replace(number, worker_id)
            return
    _note_ended(number, worker_id, error=job.error, submitted_at=now)


def _end_previous(number: int) -> None:
    """End the previous job of this number unless its worker is alive: it may still wait for a task slot of Spark.

    If it started later, it would occupy a slot without getting partitions. A live worker is drained before it ends.
    """
    last = CopyWorker.objects.filter(number=number).exclude(worker_id="").first()
    if last is not None and last.worker_id not in {beat.worker_id for beat in recent_heartbeats() if beat.alive}:
        jobs.end_workers(settings.REDIS_URL, [last.worker_id], secrets=signing_keys.worker_secrets())


class _Job:
    """A Spark job that runs in a thread of its own, so that waiting for it can be stopped."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id, self.error, self.ended = worker_id, "", Event()
        Thread(target=self._run, name=worker_id, daemon=True).start()

    def interrupt(self) -> None:
        """Interrupt the job if Spark can still do that. The caller stops waiting for it."""
        self.error = "The copy worker has sent no heartbeat for a minute, but Spark has not reported its end."
        Thread(target=self._interrupt_job, name=f"interrupt-{self.worker_id}", daemon=True).start()

    def _run(self) -> None:
        try:
            self.error = _outcome(self.worker_id)
        finally:
            self.ended.set()

    def _interrupt_job(self) -> None:
        try:
            jobs.interrupt_worker(self.worker_id, spark_url=settings.SPARK_URL)
        except SparkUnavailableError as error:  # then the job has ended, too
            _log.info("copy_worker.not_interrupted", worker=self.worker_id, error=str(error))


def _outcome(worker_id: str) -> str:
    """Run a worker until it ends. Return the error, or "" if it was ordered to end."""
    try:
        setup = jobs.setup_worker(
            worker_id,
            redis_url=settings.REDIS_URL,
            secrets=signing_keys.worker_secrets(),
            lease_ttl_ms=plans.TUNING.lease_ttl_ms,
        )
        jobs.run_copy_worker(setup, spark_url=settings.SPARK_URL)
    except (SparkUnavailableError, LinkEngineError) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - unexpected: logged with traceback, shown on the page, retried
        _log.exception("copy_worker.failed", worker=worker_id)
        return f"The copy worker's Spark job failed ({type(error).__name__}); the Celery worker's log has the details."
    return ""


def _hangs(worker_id: str, *, since: datetime) -> bool:
    """Return whether a worker has stopped sending heartbeats, or has sent none although its job was submitted long ago."""
    try:
        beat = {beat.worker_id: beat for beat in recent_heartbeats()}.get(worker_id)
    except CoordinationUnavailableError:  # without Redis no heartbeat can be read, which says nothing about the worker
        return False
    age = timezone.now() - since
    return (
        age > NO_HEARTBEAT_AFTER if beat is None else age > HANGS_AFTER and beat.silent_ms > HANGS_AFTER.total_seconds() * 1000
    )


def _is_crowded(number: int, worker_id: str) -> bool:
    """Return whether to replace a worker so that the workers are spread over Spark's executors; counts as a try if so."""
    try:
        if not _names_crowded(worker_id):
            return False
        key, client = f"console:copy-spread:{redis_health.read_spark().slots}:{number}", redis_client()
        tries: Any = client.get(key)
        if int(tries or 0) >= SPREAD_TRIES:
            return False
        probe_spark()  # an executor may have been lost since the last probe
        if not _names_crowded(worker_id):
            return False
        client.set(key, 0, ex=SPREAD_S, nx=True)
        client.incr(key)
    except (CoordinationUnavailableError, redis.RedisError):
        return False
    return True


def _names_crowded(worker_id: str) -> bool:
    return crowded_worker(recent_heartbeats(), slots=redis_health.read_spark().slots) == worker_id


def _replace(number: int, worker_id: str) -> None:
    """Request another worker with this number from the next reconcile pass. Once that is alive, this worker is drained."""
    _log.info("copy_worker.crowded", worker=worker_id)
    CopyWorker.objects.filter(number=number, worker_id=worker_id).update(left_at=timezone.now() - REPLACE_AFTER)
    connection.close()


def _note_ended(number: int, worker_id: str, *, error: str, submitted_at: datetime) -> None:
    now = timezone.now()
    row = CopyWorker.objects.filter(number=number, worker_id=worker_id).first()
    if row is None:
        return
    short = now - submitted_at < SHORT_RUN
    row.failures = row.failures + 1 if error and short else int(bool(error))
    earlier = max(0, row.failures - 1)
    wait_s = pause_s(earlier, first_s=BACKOFF_S, longest_s=LONGEST_BACKOFF_S) if error or short else 0.0
    row.error, row.ended_at = error, now
    row.retry_at = now + timedelta(seconds=wait_s)
    row.save()


@records_health("probe_spark")
def probe_spark() -> None:
    """Store whether the Spark Connect server is available, and its slots. A hanging server blocks at most a single thread."""
    with locks.lock("probe_spark") as acquired:
        if not acquired:
            return
        try:
            redis_health.note_spark(slots=count_slots(settings.SPARK_URL))
        except SparkUnavailableError as error:
            _log.warning("spark.unavailable", error=str(error))
            silent = isinstance(error, SparkUnresponsiveError)
            redis_health.note_spark(problem="accepts connections but responds to no call" if silent else "does not respond")


def open_session() -> None:
    """Load PySpark, open the session and count the slots. It takes seconds, which would delay the first mirror."""
    try:
        session(settings.SPARK_URL)
    except SparkUnavailableError as error:  # the first job reports the error where people see it
        _log.warning("spark.not_started", error=str(error))
    try:
        probe_spark()
    except redis.RedisError as error:  # beat sends the probe every few seconds
        _log.warning("spark.not_probed", error=str(error))


# --- live workers -----------------------------------------------------------------------------------------------------


class _HeartbeatCache:
    """The heartbeats that this process read last; many links need them within a second."""

    lock, at_s, beats = Lock(), 0.0, list[Heartbeat]()


def recent_heartbeats() -> list[Heartbeat]:
    """Return the heartbeats of the last ten minutes. Raises CoordinationUnavailableError."""
    with _HeartbeatCache.lock:
        if time.monotonic() - _HeartbeatCache.at_s > HEARTBEAT_CACHE_S:
            _HeartbeatCache.beats = jobs.read_workers(settings.REDIS_URL, secrets=signing_keys.worker_secrets())
            _HeartbeatCache.at_s = time.monotonic()
        return _HeartbeatCache.beats


def current_pool() -> Pool:
    """Return the current pool. Raises CoordinationUnavailableError."""
    rows = {row.number: row for row in CopyWorker.objects.all()}
    beats = {beat.worker_id: beat for beat in recent_heartbeats() if beat.alive}
    size = pool_size(len(rows))
    names = set(beats) | (set() if _heartbeats_complete() else {row.worker_id for row in rows.values() if row.ended_at is None})
    workers = [
        PoolWorker(
            worker_id=name,
            host=beats[name].host if name in beats else "",
            draining=_drains(name, rows=rows, living=names, size=size),
        )
        for name in sorted(names - {""})
    ]
    return Pool(rows=rows, beats=beats, workers=tuple(workers), size=size)


def pool_size(current: int = 0) -> int:
    """Return the target number of copy workers: CLUSTERLINK_COPY_WORKERS, else half of the slots that probes of Spark found.

    While that is unknown, as during an outage of Spark, it is the ``current`` number. At least 1.
    """
    if settings.COPY_WORKERS:
        return int(settings.COPY_WORKERS)
    slots = redis_health.read_spark().pool_slots
    return max(1, current if slots is None else slots // 2)


def _drains(name: str, *, rows: dict[int, CopyWorker], living: Collection[str], size: int) -> bool:
    """Return whether a worker is surplus: the pool has become smaller, or another live worker has replaced it."""
    number = number_of(name)
    row = rows.get(number)
    return number >= size or row is None or (row.worker_id != name and row.worker_id in living)


def _heartbeats_complete() -> bool:
    """Return whether Redis has the heartbeats of all live workers. Right after a loss of its data it has not."""
    now_ms = int(time.time() * 1000)
    client: Any = redis_client()
    client.set(_SINCE, now_ms, nx=True)
    return not 0 <= now_ms - int(client.get(_SINCE) or now_ms) < _MEMORY_MS


def _why_not(row: CopyWorker) -> str:
    if row.error:
        return row.error
    if row.submitted_at is not None and row.ended_at is None and timezone.now() - row.submitted_at > START_WITHIN:
        return (
            f"Copy worker {row.number} was submitted to Spark but has not started. Spark has no free task slot for it, or "
            "hangs. Check the Spark server; lower CLUSTERLINK_COPY_WORKERS or give Spark more cores."
        )
    return ""


# --- maintenance ------------------------------------------------------------------------------------------------------


def maintain_workers() -> None:
    """Start missing workers, end surplus workers, and place partitions on the live workers."""
    with locks.lock("copy-workers") as acquired:
        if not acquired:
            return
        pool = current_pool()
        links = {link_uuid.hex for link_uuid in ClusterLink.objects.values_list("link_uuid", flat=True)}
        if links:
            _submit(pool)
        _store_problems(pool)
        _end(pool, all_of_them=not links)
        _release_deleted_links(pool, links)
        if _has_stranded_partitions(pool) or locks.claim("copy-balance", ttl_ms=BALANCE_MS):
            for link_id in place(pool, fine=locks.claim("copy-fine-balance", ttl_ms=FINE_BALANCE_MS)):
                dispatch.send("reconcile_link", link_id=link_id)


def place(pool: Pool, unplaced: Collection[int] = (), *, fine: bool = False) -> set[int]:
    """Place partitions on live workers and return the ids of the links whose assignments changed.

    A lock lets a single process place at a time. The others wait up to 0.8 s, then return nothing; the next reconcile pass
    tries again.
    """
    for _try in range(_TRIES):
        with locks.lock("copy-placing") as acquired:
            if acquired:
                return assign_partitions(pool.workers, unplaced, fine=fine)
        time.sleep(_TRY_S)
    return set()


def assign_partitions(workers: Collection[PoolWorker], unplaced: Collection[int] = (), *, fine: bool = False) -> set[int]:
    """Assign a worker to each partition, move those that have to move, and return their links (primary keys).

    ``unplaced``: partitions (primary keys) that are to be copied and have no worker. ``fine``: as for ``assign``. One
    query if nothing moves; otherwise two, plus one per (old, new) worker.
    """
    if not unplaced and moves_nothing(_loads(), workers, fine=fine):
        return set()
    rows = MirrorPartition.objects.filter(~Q(worker_id="") | Q(pk__in=unplaced))
    found: list[Any] = list(rows.order_by().values_list("pk", "mirror__link_id", "worker_id", "bytes_per_s"))
    partitions = [
        PartitionLoad(key=str(pk), link_id=str(link), worker_id=worker, bytes_per_s=rate) for pk, link, worker, rate in found
    ]
    links = {str(pk): link for pk, link, _, _ in found}
    before = {partition.key: partition.worker_id for partition in partitions}
    moves: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, worker in assign(partitions, workers, fine=fine).items():
        moves[before[key], worker].append(key)
    for (old, new), keys in moves.items():
        MirrorPartition.objects.filter(pk__in=[int(key) for key in keys], worker_id=old).update(worker_id=new)
    return {links[key] for keys in moves.values() for key in keys}


def _loads() -> dict[str, float]:
    """Return the load of each worker that has partitions, as ``PartitionLoad.load`` of all of them."""
    placed = MirrorPartition.objects.exclude(worker_id="").order_by().values("worker_id")
    sums = placed.annotate(partitions=Count("pk"), rate=Coalesce(Sum("bytes_per_s"), 0.0))
    return {row["worker_id"]: row["rate"] + row["partitions"] * EACH_BYTES_PER_S for row in sums}


def _placed_on(worker_ids: Collection[str]) -> set[str]:
    """Return those of the workers that have partitions."""
    return set(MirrorPartition.objects.filter(worker_id__in=worker_ids).values_list("worker_id", flat=True).distinct())


def _submit(pool: Pool) -> None:
    now = timezone.now()
    for number in range(pool.size):
        row = pool.rows.get(number) or CopyWorker.objects.get_or_create(number=number)[0]
        if locks.is_locked(lock_name(number)):
            _store_left_at(row, None)
        elif row.worker_id in pool.beats and row.left_at is not None and now < row.left_at + REPLACE_AFTER:
            continue
        elif row.worker_id in pool.beats and row.left_at is None:
            _store_left_at(row, now)
        elif (row.retry_at is None or row.retry_at <= now) and locks.claim(lock_name(number), ttl_ms=CLAIM_MS):
            dispatch.send("run_copy_worker", number=number)


def _store_left_at(row: CopyWorker, at: datetime | None) -> None:
    """Store since when a live worker has no waiting thread: Spark ends its job some minutes later."""
    if row.left_at != at:
        CopyWorker.objects.filter(pk=row.pk).update(left_at=at)


def _store_problems(pool: Pool) -> None:
    """Store why workers do not run; pages and metrics show it."""
    for row in pool.rows.values():
        problem = "" if row.worker_id in pool.beats else _why_not(row)
        if row.problem != problem:
            CopyWorker.objects.filter(pk=row.pk).update(problem=problem)


def _end(pool: Pool, *, all_of_them: bool) -> None:
    """End surplus workers that have no partitions left."""
    surplus = [
        worker.worker_id for worker in pool.workers if (all_of_them or worker.draining) and worker.worker_id in pool.beats
    ]
    busy = _placed_on(surplus) if surplus else set()
    jobs.end_workers(settings.REDIS_URL, [name for name in surplus if name not in busy], secrets=signing_keys.worker_secrets())
    if any(number >= pool.size for number in pool.rows):
        CopyWorker.objects.filter(number__gte=pool.size).exclude(worker_id__in=pool.beats).delete()


def _release_deleted_links(pool: Pool, links: Collection[str]) -> None:
    """Make workers release links that have been deleted, by writing empty assignments."""
    for name, beat in pool.beats.items():
        for link_id in beat.links.keys() - links:
            assignments = {name: plans.empty_plan(link_id)}
            jobs.write_assignments(settings.REDIS_URL, link_id, assignments, secrets=signing_keys.worker_secrets())


def _has_stranded_partitions(pool: Pool) -> bool:
    """Return whether a partition is placed on a worker that is gone while others are alive."""
    names = [worker.worker_id for worker in pool.workers]
    placed = MirrorPartition.objects.exclude(worker_id="")
    return bool(names) and placed.exclude(worker_id__in=names).exists()
