"""Liveness and readiness, and the health of reconcile passes, scheduled tasks, copies and copy workers behind them.

The ``*_samples`` functions are for ``console.http.metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Lock, Thread

import redis
from django.db import DatabaseError, InterfaceError, connection
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.http import errors as http_errors
from console.mirrors import progress
from console.mirrors.progress import EXPECTED, CurrentMirror
from console.models import Cluster, ClusterLink, CopyWorker, MirrorTopic
from console.queue import scheduler
from console.queue.dispatch import WORKER_SILENT_MS
from console.queue.scheduler import EVERY_S, PERIODS, late_after_ms, step_of
from console.redis import heartbeats as redis_health
from console.redis import redis_client
from console.redis.heartbeats import LATE_MS, LINK_LATE_MS, StepHealth
from console.web.numbers import plural
from linkengine.domain.errors import ErrorCode
from linkengine.domain.states import LinkState

Sample = tuple[dict[str, str], float]
Described = tuple[str, str, str, list[Sample]]  # name, type, help and samples of a metric
DATABASE_WAIT_S = 4.0  # /readyz reports an outage within 5 s for any cause: DNS, firewalls, several hosts
SPARK_COPY_LATE_S = 30.0  # as the alert on clusterlink_copy_silence_seconds
_LISTED = 3  # failing links or mirrors in a response
_WHAT_TO_DO = "The worker's log has the details; the next pass succeeds once the cause is removed"


@require_GET
def healthz(_request: HttpRequest) -> HttpResponse:
    """Return 200 as long as the process can respond."""
    return JsonResponse({"status": "up"})


@require_GET
def readyz(_request: HttpRequest) -> HttpResponse:
    """Return 200 if database, Redis and a worker are available and its reconcile passes succeed, otherwise 503 with the reason.

    Problems of single links and mirrors, Spark, clocks and beat are reported with 200: without the console no failover would
    be possible, and a failover needs none of them.
    """
    redis_problem = _redis()
    problems = {"database": _database(), "redis": redis_problem}
    if redis_problem:
        problems |= dict.fromkeys(("worker", "rounds"), "unknown, since Redis does not respond")
    else:
        problems |= {"worker": _worker(), "rounds": _rounds()}
    ready = not any(problems.values())
    links, none_left = _late_links() if ready else ("unknown", False)
    spark = None if redis_problem else _spark_state()
    parts = {name: problem or "ok" for name, problem in problems.items()}
    parts |= {"links": links, "clocks": "unknown, since Redis does not respond" if redis_problem else _clocks()}
    others: dict[str, Callable[[], str]] = {"copy workers": _copy_workers, "mirrors": _mirrors, "schedule": _schedule}
    parts |= {name: check() if ready else "unknown" for name, check in others.items()}
    parts |= {"spark": _spark(spark), "copy": "unknown" if problems["database"] else _copy()}
    slots = spark.slots if spark is not None and spark.is_known else None
    ready = ready and not none_left
    response = {"status": "ready" if ready else "not ready", "parts": parts, "spark_slots": slots}
    return JsonResponse(response, status=200 if ready else 503)


class _DatabaseCheck:
    """One query at a time, in a thread of its own, because no timeout covers every step of a connection attempt."""

    _lock = Lock()
    _running: _DatabaseCheck | None = None

    def __init__(self) -> None:
        self._done = Event()
        self._problem = ""
        Thread(target=self._run, name="database-check", daemon=True).start()

    @classmethod
    def problem(cls) -> str:
        """Return the problem of the database, "" if there is none. Joins a check that is still running."""
        with cls._lock:
            check = cls._running = cls._running or cls()
        if not check._done.wait(DATABASE_WAIT_S):  # noqa: SLF001 - its own
            return http_errors.AWAY
        return check._problem  # noqa: SLF001 - its own

    def _run(self) -> None:
        try:
            self._problem = _query_database()
        except (DatabaseError, InterfaceError) as error:
            self._problem = http_errors.outage_of(error) or http_errors.AWAY
        finally:
            connection.close()
            with self._lock:
                type(self)._running = None  # noqa: SLF001 - its own
            self._done.set()


def _query_database() -> str:
    with connection.cursor() as cursor:
        if connection.vendor != "postgresql":
            cursor.execute("SELECT 1")
            return ""
        cursor.execute("SHOW transaction_read_only")
        return http_errors.READ_ONLY if cursor.fetchone() == ("on",) else ""


def _database() -> str:
    return _DatabaseCheck.problem()


def _redis() -> str:
    try:
        redis_client().ping()
    except redis.RedisError:
        return "does not respond"
    return ""


def _worker() -> str:
    try:
        age_ms = redis_health.heartbeat_age_ms()
    except redis.RedisError:
        return "unknown, since Redis does not respond"
    if age_ms is None:
        return "no worker heartbeat in the last hour"
    return "" if age_ms <= WORKER_SILENT_MS else f"silent for {age_ms // 1000} s"


def _rounds() -> str:
    try:
        steps = redis_health.read_steps(redis_health.STEPS)
    except redis.RedisError:
        return "unknown, since Redis does not respond"
    late = [_words(name, step) for name, step in steps.items() if step.is_late()]
    return f"reconcile passes do not succeed: {'; '.join(late)}. {_WHAT_TO_DO}" if late else ""


def _late_links() -> tuple[str, bool]:
    """Return the problems of links, and whether no link is reconciled."""
    try:
        known = health_of_links(now=timezone.now())
    except (redis.RedisError, DatabaseError, InterfaceError):
        return "unknown, since Redis or the database does not respond", True
    late = {link: state for link, state in known.items() if state.is_late(after_ms=redis_health.LINK_LATE_MS)}
    if not late:
        return "ok", False
    words = "; ".join(_words(name, state) for (_, name), state in list(late.items())[:_LISTED])
    return f"{len(late)} of {len(known)} links are not reconciled: {words}. {_WHAT_TO_DO}", len(late) == len(known)


def _mirrors() -> str:
    try:
        failing = failing_mirrors()
    except (redis.RedisError, DatabaseError, InterfaceError):
        return "unknown, since Redis or the database does not respond"
    if not failing:
        return "ok"
    words = "; ".join(f"{link}/{mirror} (fails with {kind})" for (link, mirror), kind in list(failing.items())[:_LISTED])
    return f"{plural(len(failing), 'mirror topic')} not reconciled, while others are: {words}. {_WHAT_TO_DO}"


def _copy_workers() -> str:
    """Return which copy workers do not run, and why. The others copy their partitions."""
    try:
        missing = lacking_workers()
    except DatabaseError:
        return "unknown, since the database does not respond"
    words = "; ".join(f"copy worker {number}: {why}" for number, why in list(missing.items())[:_LISTED])
    return f"{plural(len(missing), 'copy worker')} of the pool not running: {words}" if missing else "ok"


def _schedule() -> str:
    try:
        late = late_parts(now=timezone.now())
    except (redis.RedisError, DatabaseError, InterfaceError):
        return "unknown, since Redis or the database does not respond"
    words = "; ".join(_words(part.name, state) for part, state in list(late.items())[:_LISTED])
    return f"{plural(len(late), 'beat task')} without success for {PERIODS} periods: {words}. {_WHAT_TO_DO}" if late else "ok"


def _spark_state() -> redis_health.SparkState | None:
    try:
        return redis_health.read_spark()
    except redis.RedisError:
        return None


def _spark(state: redis_health.SparkState | None) -> str:
    if state is None:
        return "unknown, since Redis does not respond"
    if not state.is_known:
        return "unknown: no worker has reported on Spark in the last 90 s"
    if state.problem:
        return (
            f"{state.problem}: nothing is copied or verified. Restart the Spark Connect server; the worker's log has the error"
        )
    return "ok"


def _copy() -> str:
    try:
        silent = {link: s for link, s in silences(now=timezone.now()).items() if s > SPARK_COPY_LATE_S}
    except (DatabaseError, InterfaceError):
        return "unknown, since the database does not respond"
    if not silent:
        return "ok"
    words = "; ".join(f"{name} ({seconds:.0f} s)" for (_, name), seconds in list(silent.items())[:_LISTED])
    return f"no report from a copy worker on {plural(len(silent), 'link')}: {words}. Check Spark, Redis and the worker"


def _clocks() -> str:
    try:
        wrong = redis_health.wrong_clocks()
    except redis.RedisError:
        return "unknown, since Redis does not respond"
    words = "; ".join(f"{machine}: {abs(ms) / 1000:.1f} s {'ahead' if ms > 0 else 'behind'}" for machine, ms in wrong.items())
    what_to_do = "Synchronize all machines by NTP; until then recent values may count as unknown"
    return f"different from the clock of Redis's machine: {words}. {what_to_do}" if wrong else "ok"


def _words(name: str, state: redis_health.StepHealth) -> str:
    since = "not seen to succeed" if state.success_age_ms is None else f"last succeeded {state.success_age_ms // 1000} s ago"
    return f"{name} ({since}{f', fails with {state.error}' if state.error else ''})"


# --- reconcile passes -------------------------------------------------------------------------------------------------


_NEW = timedelta(milliseconds=LINK_LATE_MS)  # a new link is not reported until its first pass is overdue
_NAMES = ("destination__cluster_id", "name")
_UNKNOWN = StepHealth(success_age_ms=None, error="", failures=None)


def health_of_links(*, now: datetime) -> dict[tuple[str, str], StepHealth]:
    """Return the reconcile health of each link by (cluster, link), without new links; raise redis.RedisError. One query."""
    names = _links(now=now)
    known = redis_health.read_steps(list(names))
    return {place: known[name] for name, place in names.items()}


def round_samples() -> list[Described]:
    """Return (name, type, help, samples) of each metric. If Redis is unavailable, all are late. Two queries."""
    names = _links(now=timezone.now())
    known = _read([*redis_health.STEPS, *names])
    steps = {step: ({"step": step}, known[step]) for step in redis_health.STEPS}
    links = {name: ({"cluster": cluster, "link": link}, known[name]) for name, (cluster, link) in names.items()}
    late, late_link = f"has not succeeded for {LATE_MS // 1000} s", f"has not been reconciled for {LINK_LATE_MS // 1000} s"
    return [
        ("clusterlink_round_late", "gauge", f"1 if a step of the reconcile pass {late}.", _late(steps, LATE_MS)),
        ("clusterlink_round_failures", "counter", "Failures of a step of the reconcile pass.", _failures(steps)),
        ("clusterlink_link_late", "gauge", f"1 if a link {late_link}.", _late(links, LINK_LATE_MS)),
        ("clusterlink_link_round_failures", "counter", "Failures to reconcile a link.", _failures(links)),
        *_mirror_samples(),
    ]


def failing_mirrors() -> dict[tuple[str, str], str]:
    """Return the error, by (link, mirror), of mirrors that failed in the last pass; raise redis.RedisError. One query."""
    names = dict(ClusterLink.objects.values_list("pk", "name"))
    failures = redis_health.read_mirrors(list(names))
    return {(names[pk], mirror): kind for pk, state in failures.items() for mirror, kind in state.now.items()}


def _mirror_samples() -> list[Described]:
    links = {pk: {"cluster": at, "link": name} for pk, at, name in ClusterLink.objects.values_list("pk", *_NAMES)}
    try:
        known = redis_health.read_mirrors(list(links))
    except redis.RedisError:  # the links are reported as late
        known = {}
    failing: list[Sample] = [(links[pk], len(state.now)) for pk, state in known.items()]
    failures: list[Sample] = [(links[pk], state.failures) for pk, state in known.items()]
    text = "Mirror topics that the last pass of the link failed to reconcile."
    return [
        ("clusterlink_mirrors_not_looked_after", "gauge", text, failing),
        ("clusterlink_mirror_round_failures", "counter", "Failures to reconcile single mirror topics of a link.", failures),
    ]


def _links(*, now: datetime) -> dict[str, tuple[str, str]]:
    rows = ClusterLink.objects.filter(created_at__lt=now - _NEW).values_list("pk", *_NAMES)
    return {redis_health.step_of_link(pk): (cluster, name) for pk, cluster, name in rows}


def _read(names: list[str]) -> Mapping[str, StepHealth]:
    try:
        return redis_health.read_steps(names)
    except redis.RedisError:
        return dict.fromkeys(names, _UNKNOWN)


def _late(of: Mapping[str, tuple[dict[str, str], StepHealth]], after_ms: int) -> list[Sample]:
    return [(labels, int(state.is_late(after_ms=after_ms))) for labels, state in of.values()]


def _failures(of: Mapping[str, tuple[dict[str, str], StepHealth]]) -> list[Sample]:
    return [(labels, state.failures) for labels, state in of.values() if state.failures is not None]


# --- scheduled tasks --------------------------------------------------------------------------------------------------
#
# Tasks that Celery beat sends, or parts of them. They are late if they have not succeeded for several periods.


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A scheduled task, or its part for one cluster or link."""

    task: str
    step: str
    name: str  # displayed


def late_parts(*, now: datetime) -> dict[Part, StepHealth]:
    """Return the late parts with their health; raise redis.RedisError. Two queries."""
    parts, sent_for_ms = list(_parts(now)), scheduler.sent_for_ms()
    known = redis_health.read_steps([part.step for part in parts])
    return {part: known[part.step] for part in parts if _is_late(part, known[part.step], sent_for_ms[part.task])}


def schedule_samples() -> list[Described]:
    """Return (name, type, help, samples) of each metric. If Redis is unavailable, all are late. Two queries."""
    try:
        late = {part.task for part in late_parts(now=timezone.now())}
        failures = redis_health.step_failures([scheduler.counter_of(task) for task in EVERY_S])
    except redis.RedisError:
        late, failures = set(EVERY_S), []
    gauge = f"1 if a scheduled task, or its part for a cluster or link, has not succeeded for {scheduler.PERIODS} periods."
    counted: list[Sample] = [({"task": task}, count) for task, count in zip(EVERY_S, failures, strict=False)]
    return [
        ("clusterlink_schedule_late", "gauge", gauge, [({"task": task}, int(task in late)) for task in EVERY_S]),
        (
            "clusterlink_schedule_failures",
            "counter",
            "Unexpected failures of a scheduled task and its parts.",
            counted,
        ),
    ]


def _parts(now: datetime) -> Iterator[Part]:
    """Yield the tasks and their parts, without those for new clusters and links."""
    for task in EVERY_S:
        yield Part(task=task, step=step_of(task), name=task)
    for task in ("refresh_topics", "probe_clusters"):
        for pk, name in Cluster.objects.filter(created_at__lt=_new(task, now)).values_list("pk", "name"):
            yield Part(task=task, step=step_of(task, cluster=pk), name=f"{task} of cluster {name}")
    links = ClusterLink.objects.filter(created_at__lt=_new("refresh_topics", now)).values_list("pk", "name")
    for pk, name in links:
        yield Part(task="refresh_topics", step=step_of("refresh_topics", link=pk), name=f"refresh_topics of link {name}")


def _new(task: str, now: datetime) -> datetime:
    return now - timedelta(milliseconds=late_after_ms(task))


def _is_late(part: Part, known: StepHealth, sent_for_ms: int | None) -> bool:
    age_ms = sent_for_ms if known.success_age_ms is None else known.success_age_ms
    return age_ms is None or age_ms > late_after_ms(part.task)


# --- copy workers -----------------------------------------------------------------------------------------------------
#
# As of the last reconcile pass.


def lacking_workers() -> dict[int, str]:
    """Return the reasons, by number, of the copy workers that should run but do not. One query."""
    return dict(CopyWorker.objects.exclude(problem="").values_list("number", "problem"))


def worker_samples() -> list[Described]:
    """Return (name, type, help, samples) of each metric. One query."""
    problems = list(CopyWorker.objects.values_list("problem", flat=True))
    samples: list[Sample] = [
        ({"running": "yes"}, float(problems.count(""))),
        ({"running": "no"}, float(sum(bool(problem) for problem in problems))),
    ]
    return [("clusterlink_copy_workers", "gauge", "Copy workers of the pool, by whether they run.", samples)]


# --- copies -----------------------------------------------------------------------------------------------------------
#
# Links whose copy workers no longer report.


def silence_samples(mirrors: Sequence[CurrentMirror], *, now: datetime) -> list[Described]:
    """Return the longest time without a report of any partition of each link; no sample if no partition is to be copied.

    A partition without any report counts from when it was to be copied, so that a copy that never begins is noticed. One query.
    """
    copied = set(_copied().values_list("pk", flat=True))
    found = _silences([mirror for mirror in mirrors if mirror.pk in copied], now=now)
    samples: list[Sample] = [({"cluster": cluster, "link": link}, silence_s) for (cluster, link), silence_s in found.items()]
    text = "Longest time without a report of any partition; no sample while no partition is to be copied."
    return [("clusterlink_copy_silence_seconds", "gauge", text, samples)]


def silences(*, now: datetime) -> dict[tuple[str, str], float]:
    """Return, by (cluster id, link), the longest time in seconds without a report of any partition to copy."""
    return _silences(progress.current(_copied(), now=now), now=now)


def _silences(mirrors: Iterable[CurrentMirror], *, now: datetime) -> dict[tuple[str, str], float]:
    since: dict[tuple[str, str], datetime] = {}
    for mirror in mirrors:
        place, began = (mirror.cluster_id, mirror.link), max(mirror.state_since, mirror.link_since)
        for row in mirror.partitions:
            # ``progress`` has set a time ahead of now to None.
            reported_at = began if row.observed_at is None else max(began, row.observed_at)
            since[place] = min(since.get(place, reported_at), reported_at)
    return {place: max(0.0, (now - at).total_seconds()) for place, at in since.items()}


def _copied() -> QuerySet[MirrorTopic]:
    """Return the mirrors to copy, as ``workflows.leases.is_to_be_copied``, of ACTIVE links: other link states are visible."""
    absent = Q(link__error_code=ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR)
    return MirrorTopic.objects.filter(EXPECTED & ~absent, link__state=LinkState.ACTIVE)
