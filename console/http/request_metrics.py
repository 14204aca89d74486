"""Process-local metrics: request times and build information, in a registry of prometheus_client.

Each web process counts its own requests. Scrape each process at its own address and sum in Prometheus.
"""

from __future__ import annotations

import platform
import re
import time

import prometheus_client
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from console.http.middleware import PROBE_PATHS, Steps, request_middleware

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_AREAS = ((re.compile(r"/(?:kafka/v3|v3|api)(?:/|$)"), "rest"), (re.compile(r"/static/"), "static"))
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
_SECONDS = Histogram(
    "clusterlink_request_seconds",
    "Time from a request's arrival at the web process to its response, without the transfer of the body.",
    ["area", "method", "status"],
    buckets=_BUCKETS,
    registry=REGISTRY,
)
_BUILD = Gauge(
    "clusterlink_build_info", "Always 1; the labels describe the build.", ["version", "revision", "python"], registry=REGISTRY
)


def exposition() -> bytes:
    """Return the metrics of this process in Prometheus's text format."""
    _BUILD.labels(version=settings.VERSION, revision=settings.REVISION, python=platform.python_version()).set(1)
    return generate_latest(REGISTRY)


@request_middleware
def time_requests(request: HttpRequest) -> Steps:
    """Measure every request. It must be the first in ``MIDDLEWARE``."""
    began = time.perf_counter()
    response = yield
    _observe(request, response, began)


def area_of(path: str) -> str:
    """Return the part of the product a path belongs to: probe, rest, static or page."""
    if path in PROBE_PATHS:
        return "probe"
    return next((area for pattern, area in _AREAS if pattern.match(path)), "page")


def _observe(request: HttpRequest, response: HttpResponse, began: float) -> None:
    method = request.method if request.method in _METHODS else "OTHER"  # a client could invent any number of methods
    labels = {"area": area_of(request.path_info), "method": method, "status": str(response.status_code)}
    _SECONDS.labels(**labels).observe(time.perf_counter() - began)
