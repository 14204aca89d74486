"""Endpoints for machines: liveness, readiness, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread

import redis
from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.http import errors as http_errors
from console.http.metrics import prometheus_text, silences
from console.http.process_health import failing_mirrors, health_of_links, lacking_workers, late_parts
from console.queue.dispatch import WORKER_SILENT_MS
from console.queue.scheduler import PERIODS
from console.redis import heartbeats as redis_health
from console.redis.client import redis_client
from console.web.numbers import plural

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
    links, none_left = _links() if ready else ("unknown", False)
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


@require_GET
def metrics(_request: HttpRequest) -> HttpResponse:
    """Return counters and gauges as Prometheus text. They contain names and numbers only, so no sign-in is required."""
    return HttpResponse(prometheus_text(), content_type="text/plain; version=0.0.4; charset=utf-8")


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


def _links() -> tuple[str, bool]:
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
