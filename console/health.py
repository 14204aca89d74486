"""Three doors for machines: is the process up, can it do its work, and numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

import redis
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_GET

from console import store
from console.dispatch import WORKER_SILENT_MS
from console.queries.metrics import prometheus_text


@require_GET
def healthz(_request: HttpRequest) -> HttpResponse:
    """Answer as long as the process can answer anything."""
    return JsonResponse({"status": "up"})


@require_GET
def readyz(_request: HttpRequest) -> HttpResponse:
    """Answer 200 when the database, Redis and a worker answer, else 503 and what is wrong."""
    checks: dict[str, Callable[[], str]] = {"database": _database, "redis": _redis, "worker": _worker}
    problems = {name: problem for name, check in checks.items() if (problem := check())}
    parts = {name: problems.get(name, "ok") for name in checks}
    return JsonResponse({"status": "not ready" if problems else "ready", "parts": parts}, status=503 if problems else 200)


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
