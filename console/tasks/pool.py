"""The pool of copy workers: keeps so many Spark jobs running, places partitions on those that live, and ends the others.

One thread of a Celery worker waits for each job. It is not needed by the job: when the Celery worker is gone the copy worker
goes on (for as long as Spark lets it, ``spark.connect.execute.manager.detachedTimeout``), the next Celery worker submits
another one for the same number, and the old one is drained: its partitions move to the others, then it is told to end.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import random
from threading import Event, Lock, Thread
from typing import Any

import structlog
from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.conf import settings
from django.db import connection
from django.utils import timezone

from console import dispatch, keys, store
from console.models import ClusterLink, CopyWorker, MirrorPartition
from console.reconciling import placing, plans
from console.tasks import threads
from linkengine import jobs
from linkengine.domain.assignment import Place
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.moments import is_due
from linkengine.domain.workers import DEAD_MS, Heartbeat, number_of, worker_id_for
from linkengine.sparkclient import SparkUnavailableError, session

_log = structlog.get_logger(__name__)

HEARD_S = 0.2  # for so long what was heard is not asked for again
CLAIM_MS = 2_000  # how often a job is sent to the queue, at most
BALANCE_MS = 2_000  # between two looks at the balance; each moves a tenth of the partitions at most
BEGIN = timedelta(seconds=30)  # a job that has not begun by then lacks a slot; a cold Spark server takes 20 s
REPLACE = timedelta(seconds=60)  # a job that nobody waits for; Spark lets it go on for five minutes at least
SILENT = timedelta(seconds=60)  # of a worker whose job still runs, as Spark says: it hangs
NEVER_HEARD = timedelta(minutes=10)  # a job that waits for a slot is submitted anew: nobody knows whether Spark still has it
BACKOFF_S = 1.0  # after the first failure; doubles
LONGEST_BACKOFF_S = 10.0
LONGEST_BACKOFF = timedelta(seconds=1.25 * LONGEST_BACKOFF_S)  # with what is added by chance
SHORT = timedelta(seconds=10)  # a job that is over sooner did not copy; without a pause the next would follow at once
WATCH_S = 1.0
_TRIES, _TRY_S = 40, 0.02  # to place partitions, while others do
_SLOTS, _SINCE = "console:spark-slots", "console:copy-workers-since"
_MEMORY_MS = DEAD_MS + 1_000  # after which Redis knows all workers that live
_shutting_down = Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The copy workers at one moment."""

    rows: dict[int, CopyWorker]
    beats: dict[str, Heartbeat]  # of those that live, by name
    places: tuple[Place, ...]
    size: int  # how many there shall be

    @property
    def trouble(self) -> str:
        """Why a worker of the pool does not run; "" where all of them do."""
        lacking = [row for number, row in sorted(self.rows.items()) if number < self.size and row.worker_id not in self.beats]
        return next((why for row in lacking if (why := _why_not(row))), "")


# --- what Spark runs --------------------------------------------------------------------------------------------------


@worker_ready.connect
def _warm_up(**_: Any) -> None:
    """Load PySpark and open the session while nobody waits: it takes seconds, which the first mirror would have to wait."""
    Thread(target=_open_session, name="warm-up", daemon=True).start()


@worker_shutting_down.connect
def _free_threads(**_: Any) -> None:
    """Let an orderly shutdown not wait for copy workers. They copy on, and the next Celery worker replaces them."""
    _shutting_down.set()


@shared_task(name="run_copy_worker", acks_late=False)
def run_copy_worker(*, number: int, **_: Any) -> None:
    """Submit a copy worker to Spark and wait until it has ended; nobody else does for the same number."""
    with threads.for_long() as room, store.hold(hold_of(number)) as ours:
        if room and ours and not _shutting_down.is_set():
            _run(number)


def hold_of(number: int) -> str:
    """Name what a Celery worker holds for as long as one of its threads waits for a copy worker."""
    return f"copy-worker:{number}"


def _run(number: int) -> None:
    worker_id, now = worker_id_for(number, uuid.uuid4().hex[:12]), timezone.now()
    _end_unheard(number)
    CopyWorker.objects.filter(number=number).update(worker_id=worker_id, submitted_at=now, left_at=None, ended_at=None)
    connection.close()  # hours are too long to keep one for nothing
    job = _Job(worker_id)
    while not job.ended.wait(WATCH_S):
        if _shutting_down.is_set():
            return
        if _hangs(worker_id, since=now):
            job.give_up()
            break
    _note_ended(number, worker_id, error=job.error, submitted_at=now)


def _end_unheard(number: int) -> None:
    """End the last job of this number, unless its worker lives: it may still wait for a task slot of Spark.

    When it began later, nobody would use it and it would keep its slot. A worker that lives is drained before it ends.
    """
    last = CopyWorker.objects.filter(number=number).exclude(worker_id="").first()
    if last is not None and last.worker_id not in {one.worker_id for one in heard() if one.alive}:
        jobs.end_workers(settings.REDIS_URL, [last.worker_id], secrets=keys.worker_secrets())


class _Job:
    """A Spark job that a thread waits for, which may be left behind."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id, self.error, self.ended = worker_id, "", Event()
        Thread(target=self._run, name=worker_id, daemon=True).start()

    def give_up(self) -> None:
        """End the job if Spark still can, and wait for it no more."""
        self.error = "The copy worker was not heard for a minute, though Spark did not say that it had ended."
        Thread(target=self._interrupt, name=f"interrupt-{self.worker_id}", daemon=True).start()

    def _run(self) -> None:
        try:
            self.error = _outcome(self.worker_id)
        finally:
            self.ended.set()

    def _interrupt(self) -> None:
        try:
            jobs.interrupt_worker(self.worker_id, spark_url=settings.SPARK_URL)
        except SparkUnavailableError as error:  # then it has ended, too
            _log.info("copy_worker.not_interrupted", worker=self.worker_id, error=str(error))


def _outcome(worker_id: str) -> str:
    """Run a worker; answer why it ended, "" where it was told to."""
    try:
        _look_at_slots()
        setup = jobs.setup_worker(
            worker_id, redis_url=settings.REDIS_URL, secrets=keys.worker_secrets(), lease_ttl_ms=plans.TUNING.lease_ttl_ms
        )
        jobs.run_copy_worker(setup, spark_url=settings.SPARK_URL)
    except (SparkUnavailableError, LinkEngineError) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - nobody foresaw it: logged in full, shown, tried again
        _log.exception("copy_worker.failed", worker=worker_id)
        return f"The copy worker's Spark job failed ({type(error).__name__}); the Celery worker's log has the details."
    return ""


def _look_at_slots() -> None:
    store.client().set(_SLOTS, jobs.count_slots(spark_url=settings.SPARK_URL))


def _hangs(worker_id: str, *, since: datetime) -> bool:
    """Tell whether a worker was heard once and is not any more, or was never heard though its job was submitted long ago."""
    try:
        beat = {one.worker_id: one for one in heard()}.get(worker_id)
    except CoordinationUnavailableError:  # nobody is heard, and nothing follows from that
        return False
    age = timezone.now() - since
    return age > NEVER_HEARD if beat is None else age > SILENT and beat.silent_ms > SILENT.total_seconds() * 1000


def _note_ended(number: int, worker_id: str, *, error: str, submitted_at: datetime) -> None:
    now = timezone.now()
    row = CopyWorker.objects.filter(number=number, worker_id=worker_id).first()
    if row is None:
        return
    short = now - submitted_at < SHORT
    row.failures = row.failures + 1 if error and short else int(bool(error))
    pause_s = min(LONGEST_BACKOFF_S, BACKOFF_S * 2 ** max(0, row.failures - 1)) if error or short else 0.0
    row.error, row.ended_at = error, now
    row.retry_at = now + timedelta(seconds=pause_s * (0.75 + random() / 2))  # noqa: S311 - spreads retries
    row.save()


def _open_session() -> None:
    try:
        session(settings.SPARK_URL)
    except SparkUnavailableError as error:  # the first job says so where people see it
        _log.warning("spark.not_there_yet", error=str(error))


# --- who lives --------------------------------------------------------------------------------------------------------


class _Heard:
    """What this process heard last; many links ask within a second."""

    lock, at_s, beats = Lock(), 0.0, list[Heartbeat]()


def heard() -> list[Heartbeat]:
    """Answer the heartbeats of the last ten minutes; raise CoordinationUnavailableError."""
    with _Heard.lock:
        if time.monotonic() - _Heard.at_s > HEARD_S:
            _Heard.beats = jobs.read_workers(settings.REDIS_URL, secrets=keys.worker_secrets())
            _Heard.at_s = time.monotonic()
        return _Heard.beats


def standing() -> Pool:
    """Answer the pool as it stands; raise CoordinationUnavailableError."""
    rows = {row.number: row for row in CopyWorker.objects.all()}
    beats = {one.worker_id: one for one in heard() if one.alive}
    size = pool_size()
    names = set(beats) | (set() if _redis_remembers() else {row.worker_id for row in rows.values() if row.ended_at is None})
    places = [
        Place(
            worker_id=name,
            host=beats[name].host if name in beats else "",
            draining=_drains(name, rows=rows, living=names, size=size),
        )
        for name in sorted(names - {""})
    ]
    return Pool(rows=rows, beats=beats, places=tuple(places), size=size)


def pool_size() -> int:
    """Answer how many copy workers there shall be: as many as the settings say, else half of Spark's slots."""
    if settings.COPY_WORKERS:
        return int(settings.COPY_WORKERS)
    slots: Any = store.client().get(_SLOTS)
    return max(1, int(slots or 0) // 2)


def _drains(name: str, *, rows: dict[int, CopyWorker], living: Collection[str], size: int) -> bool:
    """Tell whether a worker is one too many: of a smaller pool, or replaced by another one that lives."""
    number = number_of(name)
    row = rows.get(number)
    return number >= size or row is None or (row.worker_id != name and row.worker_id in living)


def _redis_remembers() -> bool:
    """Tell whether Redis has known for long enough who lives; it may have lost its memory a moment ago."""
    now_ms = int(time.time() * 1000)
    client: Any = store.client()
    client.set(_SINCE, now_ms, nx=True)
    return not 0 <= now_ms - int(client.get(_SINCE) or now_ms) < _MEMORY_MS


def _why_not(row: CopyWorker) -> str:
    if row.error:
        return row.error
    if row.submitted_at is not None and row.ended_at is None and timezone.now() - row.submitted_at > BEGIN:
        return (
            f"Copy worker {row.number} was submitted to Spark and does not begin. Spark has no free task slot for it, or "
            "hangs: look at its server; lower CLUSTERLINK_COPY_WORKERS or give Spark more cores."
        )
    return ""


# --- looking after them -------------------------------------------------------------------------------------------------


def look_after_workers() -> None:
    """Have as many workers as there shall be, end those that are not needed, and keep partitions on those that live."""
    with store.hold("copy-workers") as ours:
        if not ours:
            return
        pool = standing()
        links = {one.hex for one in ClusterLink.objects.values_list("link_uuid", flat=True)}
        if links:
            _submit(pool)
        _note_troubles(pool)
        _end(pool, all_of_them=not links)
        _let_go_of_links(pool, links)
        if _is_out_of_place(pool) or store.claim("copy-balance", ttl_ms=BALANCE_MS):
            for link_id in place(pool):
                dispatch.send("reconcile_link", link_id=link_id)


def place(pool: Pool, newcomers: Collection[int] = ()) -> set[int]:
    """Place partitions; one at a time, others wait for their turn or come again. Answers the links that are concerned."""
    for _try in range(_TRIES):
        with store.hold("copy-placing") as ours:
            if ours:
                return placing.place(pool.places, newcomers)
        time.sleep(_TRY_S)
    return set()


def _submit(pool: Pool) -> None:
    now = timezone.now()
    for number in range(pool.size):
        row = pool.rows.get(number) or CopyWorker.objects.get_or_create(number=number)[0]
        if store.is_held(hold_of(number)):
            _note_left(row, None)
        elif row.worker_id in pool.beats and not is_due(row.left_at and row.left_at + REPLACE, now=now, longest=REPLACE):
            continue
        elif row.worker_id in pool.beats and row.left_at is None:
            _note_left(row, now)
        elif is_due(row.retry_at, now=now, longest=LONGEST_BACKOFF) and store.claim(hold_of(number), ttl_ms=CLAIM_MS):
            dispatch.send("run_copy_worker", number=number)


def _note_left(row: CopyWorker, at: datetime | None) -> None:
    """Note since when a worker lives that nobody waits for: Spark ends its job some minutes later."""
    if row.left_at != at:
        CopyWorker.objects.filter(pk=row.pk).update(left_at=at)


def _note_troubles(pool: Pool) -> None:
    """Keep what people are to know of workers that do not run."""
    for row in pool.rows.values():
        trouble = "" if row.worker_id in pool.beats else _why_not(row)
        if row.trouble != trouble:
            CopyWorker.objects.filter(pk=row.pk).update(trouble=trouble)


def _end(pool: Pool, *, all_of_them: bool) -> None:
    """End workers that have nothing left and shall get nothing."""
    over = [one.worker_id for one in pool.places if (all_of_them or one.draining) and one.worker_id in pool.beats]
    busy = placing.placed_on(over) if over else set()
    jobs.end_workers(settings.REDIS_URL, [name for name in over if name not in busy], secrets=keys.worker_secrets())
    CopyWorker.objects.filter(number__gte=pool.size).exclude(worker_id__in=pool.beats).delete()


def _let_go_of_links(pool: Pool, links: Collection[str]) -> None:
    """Have workers let go of links that are not there any more."""
    for name, beat in pool.beats.items():
        for link_id in beat.links.keys() - links:
            told = {name: plans.empty_plan(link_id)}
            jobs.write_assignments(settings.REDIS_URL, link_id, told, secrets=keys.worker_secrets())


def _is_out_of_place(pool: Pool) -> bool:
    """Tell whether a partition is with a worker that is gone, while there are others."""
    names = [one.worker_id for one in pool.places]
    placed = MirrorPartition.objects.exclude(worker_id="")
    return bool(names) and placed.exclude(worker_id__in=names).exists()
