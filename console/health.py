"""Three doors for machines: is the process up, can it do its work, and numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

import redis
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console import clocks, rounds, store
from console.dispatch import WORKER_SILENT_MS
from console.presenters.numbers import plural
from console.queries.metrics import prometheus_text
from console.queries.rounds import failing_mirrors, rounds_of_links
from console.queries.scheduled import late_parts
from console.queries.workers import lacking_workers
from console.scheduled import PERIODS

_LISTED = 3  # links or mirrors that fail, in an answer
_WHAT_TO_DO = "The worker's log tells why in full; once that is mended, the next round gets through by itself"


@require_GET
def healthz(_request: HttpRequest) -> HttpResponse:
    """Answer as long as the process can answer anything."""
    return JsonResponse({"status": "up"})


@require_GET
def readyz(_request: HttpRequest) -> HttpResponse:
    """Answer 200 when database, Redis and a worker answer and its rounds get through, else 503 and what is wrong.

    A link, or a mirror, that is not looked after while others are is told of, too, with 200, as are clocks that differ and
    tasks of beat that do not end well: whoever takes the console away for that keeps people from failing the others over.
    """
    checks: dict[str, Callable[[], str]] = {"database": _database, "redis": _redis, "worker": _worker, "rounds": _rounds}
    problems = {name: problem for name, check in checks.items() if (problem := check())}
    links, none_left = ("unknown", False) if problems else _links()
    others: dict[str, Callable[[], str]] = {"copy workers": _copy_workers, "mirrors": _mirrors, "schedule": _schedule}
    parts = {**{name: problems.get(name, "ok") for name in checks}, "links": links, "clocks": _clocks()}
    parts |= {name: "unknown" if problems else tell() for name, tell in others.items()}
    ready = not problems and not none_left
    return JsonResponse({"status": "ready" if ready else "not ready", "parts": parts}, status=200 if ready else 503)


@require_GET
def metrics(_request: HttpRequest) -> HttpResponse:
    """Answer counters and gauges as Prometheus text; names and numbers only, so it asks for no sign-in."""
    return HttpResponse(prometheus_text(), content_type="text/plain; version=0.0.4; charset=utf-8")


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "does not answer"
    return ""


def _redis() -> str:
    try:
        store.client().ping()
    except redis.RedisError:
        return "does not answer"
    return ""


def _worker() -> str:
    try:
        silence_ms = store.worker_silence_ms()
    except redis.RedisError:
        return "unknown, since Redis does not answer"
    if silence_ms is None:
        return "no worker is known to have shown life in the last hour"
    return "" if silence_ms <= WORKER_SILENT_MS else f"silent for {silence_ms // 1000} s"


def _rounds() -> str:
    try:
        steps = rounds.read(rounds.STEPS)
    except redis.RedisError:
        return "unknown, since Redis does not answer"
    late = [_words(name, one) for name, one in steps.items() if one.is_late()]
    return f"the worker's rounds do not get through: {'; '.join(late)}. {_WHAT_TO_DO}" if late else ""


def _links() -> tuple[str, bool]:
    """Answer what is wrong with links, and whether none is looked after."""
    try:
        known = rounds_of_links(now=timezone.now())
    except (redis.RedisError, DatabaseError):
        return "unknown, since Redis or the database does not answer", True
    late = {link: one for link, one in known.items() if one.is_late(after_ms=rounds.LINK_LATE_MS)}
    if not late:
        return "ok", False
    words = "; ".join(_words(name, one) for (_, name), one in list(late.items())[:_LISTED])
    return f"{len(late)} of {len(known)} links are not looked after: {words}. {_WHAT_TO_DO}", len(late) == len(known)


def _mirrors() -> str:
    try:
        failing = failing_mirrors()
    except (redis.RedisError, DatabaseError):
        return "unknown, since Redis or the database does not answer"
    if not failing:
        return "ok"
    words = "; ".join(f"{link}/{mirror} (fails with {kind})" for (link, mirror), kind in list(failing.items())[:_LISTED])
    return f"{plural(len(failing), 'mirror topic')} not looked after, while others are: {words}. {_WHAT_TO_DO}"


def _copy_workers() -> str:
    """Tell which copy workers do not run, and why; those that run copy what the others would."""
    try:
        lacking = lacking_workers()
    except DatabaseError:
        return "unknown, since the database does not answer"
    words = "; ".join(f"copy worker {number}: {why}" for number, why in list(lacking.items())[:_LISTED])
    return f"{plural(len(lacking), 'copy worker')} of the pool not running: {words}" if lacking else "ok"


def _schedule() -> str:
    try:
        late = late_parts(now=timezone.now())
    except (redis.RedisError, DatabaseError):
        return "unknown, since Redis or the database does not answer"
    words = "; ".join(_words(part.name, one) for part, one in list(late.items())[:_LISTED])
    return (
        f"{plural(len(late), 'task')} of beat did not end well for {PERIODS} periods: {words}. {_WHAT_TO_DO}" if late else "ok"
    )


def _clocks() -> str:
    try:
        wrong = clocks.wrong()
    except redis.RedisError:
        return "unknown, since Redis does not answer"
    words = "; ".join(f"{who}: {abs(ms) / 1000:.1f} s {'ahead' if ms > 0 else 'behind'}" for who, ms in wrong.items())
    what_to_do = "Have all machines follow the same time servers; until then what was seen lately may count as unknown"
    return f"not that of Redis' machine: {words}. {what_to_do}" if wrong else "ok"


def _words(name: str, one: rounds.Round) -> str:
    since = "not seen to succeed" if one.silence_ms is None else f"last succeeded {one.silence_ms // 1000} s ago"
    return f"{name} ({since}{f', fails with {one.error}' if one.error else ''})"
