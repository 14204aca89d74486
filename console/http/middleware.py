"""Middleware for every request: address, request id, template values, host check, paths, language, request times."""

from __future__ import annotations

import platform
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import wraps
from itertools import islice
from typing import Any, cast
from urllib.parse import quote, unquote

import prometheus_client
import structlog
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.middleware.common import CommonMiddleware
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from linkengine.domain.addresses import is_within, parse_address

# --- address, request id and template values --------------------------------------------------------------------------


Steps = Generator[None, HttpResponse, None]
Middleware = Callable[[Callable[[HttpRequest], Any]], Callable[[HttpRequest], Any]]
HEADER = "X-Request-ID"
PROBE_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
CHUNKS_AT_ONCE = 64  # of 4 KiB: a single hop to a thread for most static files
_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{8,64}")  # other ids are replaced, since the id is logged and audited


_FORWARDED = (
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT",
    "HTTP_FORWARDED",
)
_HOP = re.compile(r"\[(?P<v6>[^]]+)](?::\d+)?|(?P<v4>[\d.]+):\d+")  # an address with a port; some proxies add it


def request_middleware(steps: Callable[[HttpRequest], Steps]) -> Middleware:
    """Return a middleware, both sync and async, made of a generator function that yields once: ``response = yield``.

    Code before the yield runs before the view; code after it may change the response. Neither may block.
    """

    @sync_and_async_middleware
    @wraps(steps)
    def middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
        if iscoroutinefunction(get_response):

            async def respond_later(request: HttpRequest) -> HttpResponse:
                running = steps(request)
                next(running)
                return _finished(running, await get_response(request))

            return respond_later

        def respond(request: HttpRequest) -> HttpResponse:
            running = steps(request)
            next(running)
            return _finished(running, get_response(request))

        return respond

    return middleware


@request_middleware
def client_address(request: HttpRequest) -> Steps:
    """Set REMOTE_ADDR to the client's address if a trusted proxy (``TRUSTED_PROXIES``) forwards the request.

    Forwarding headers of any other peer are removed, so that no later code reads them. The web server must not evaluate them
    itself (uvicorn: ``--no-proxy-headers``), otherwise the peer's address is lost.
    """
    meta = request.META
    peer = str(meta.get("REMOTE_ADDR") or "")
    if _is_trusted(peer):
        meta["REMOTE_ADDR"] = _client_behind(peer, str(meta.get("HTTP_X_FORWARDED_FOR", "")))
    else:
        for name in _FORWARDED:
            meta.pop(name, None)
    yield


def _client_behind(peer: str, forwarded_for: str) -> str:
    """Return the rightmost hop that is not a trusted proxy; each proxy appends the address of its peer.

    A hop that is not an address ends the search: its origin is unknown, so the last trusted hop counts.
    """
    client = peer
    for hop in reversed(forwarded_for.split(",")):
        try:
            client = _address_of(hop.strip())
        except ValueError:
            break
        if not _is_trusted(client):
            break
    return client


def _address_of(hop: str) -> str:
    found = _HOP.fullmatch(hop)
    return str(parse_address((found["v6"] or found["v4"]) if found else hop))


def _is_trusted(address: str) -> bool:
    try:
        return bool(settings.TRUSTED_PROXIES) and is_within(parse_address(address), settings.TRUSTED_PROXIES)
    except ValueError:  # not an address, as with a Unix socket
        return False


@request_middleware
def request_id(request: HttpRequest) -> Steps:
    """Set ``request.request_id`` to the caller's ``X-Request-ID`` or a new id; log lines and the response carry it."""
    given = request.headers.get(HEADER, "")
    name = given if _ACCEPTABLE.fullmatch(given) else uuid.uuid4().hex
    request.request_id = name  # type: ignore[attr-defined]
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=name)
    response = yield
    response[HEADER] = name
    if isinstance(request, ASGIRequest):
        stream_without_blocking(response)


@request_middleware
def no_store(_request: HttpRequest) -> Steps:
    """Forbid browsers and proxies to store responses, since pages and REST responses depend on the signed-in user.

    Runs inside WhiteNoise, whose responses for static files keep their own ``Cache-Control``.
    """
    response = yield
    if "no-store" not in response.get("Cache-Control", ""):
        response["Cache-Control"] = "no-store"


def stream_without_blocking(response: HttpResponseBase) -> None:
    """Read a file in chunks in a thread. Otherwise Django reads all of it into memory before sending the first byte.

    It is the thread of the request, with its database connection: exports of lists read their rows while they are sent.
    """
    if isinstance(response, StreamingHttpResponse) and not response.is_async:
        response.streaming_content = _read_later(iter(cast("Iterator[bytes]", response.streaming_content)))


async def _read_later(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    def read() -> bytes:
        return b"".join(islice(chunks, CHUNKS_AT_ONCE))

    while part := await sync_to_async(read)():
        yield part


def template_context(request: HttpRequest) -> dict[str, Any]:
    """Return the product name, and the CSP nonce under the name that the tags of django-htmx use."""
    return {"product_name": settings.PRODUCT_NAME, "csp_nonce": getattr(request, "csp_nonce", None)}


class HostCheckMiddleware(CommonMiddleware):
    """Django's CommonMiddleware, which checks the Host header, except on the probe paths.

    Kubernetes and load balancers probe by address, and Prometheus scrapes by service name: such names cannot all be listed in
    ``ALLOWED_HOSTS``. The probe views never use the host name.
    """

    def process_request(self, request: HttpRequest) -> Any:
        """Refuse unknown hosts; accept any host on a probe path."""
        return None if request.path_info in PROBE_PATHS else super().process_request(request)


# --- paths of REST requests -------------------------------------------------------------------------------------------
#
# A path segment may contain any character, including a slash. Web servers decode ``%2F`` before Django gets the path: the ASGI
# ``path`` of ``/consumer-groups/data%2Fx`` and of ``/consumer-groups/data/x`` is the same. Therefore the path of a REST request
# is replaced with the path that the client sent (``raw_path`` of ASGI, ``RAW_URI`` or ``REQUEST_URI`` of WSGI servers) in a
# canonical encoding, and the URL converter ``segment`` (``console.api.urls``) decodes each segment after routing. Below the
# REST prefixes ``request.path`` is always percent-encoded.


_REST = re.compile(r"/(?:kafka/v3|v3|api/v1)(?:/|$)")
_DOTS = {".": "%2E", "..": "%2E%2E"}  # unencoded, clients and proxies remove dot segments (RFC 3986, section 5.2.4)


def encode_segment(text: str) -> str:
    """Return ``text`` percent-encoded as a path segment; the colon of a verb is not encoded."""
    return _DOTS.get(text) or quote(text, safe=":", errors="replace")


def encode_path(path: str) -> str:
    """Return a percent-encoded path in its canonical encoding, which the URL patterns match."""
    return "/".join(encode_segment(unquote(segment)) for segment in path.split("/"))


@request_middleware
def keep_path_encoded(request: HttpRequest) -> Steps:
    """Set the path of REST requests to the percent-encoded path that the client sent."""
    if _REST.match(request.path_info):
        prefix = request.path.removesuffix(request.path_info)
        sent = encode_path(_sent_path(request) or quote(request.path, errors="replace"))
        request.path = sent
        request.path_info = sent.removeprefix(encode_path(quote(prefix))) if prefix else sent
    yield


def _sent_path(request: HttpRequest) -> str:
    """Return the path as the client sent it, or "" if the server does not provide it."""
    if isinstance(request, ASGIRequest):
        raw = request.scope.get("raw_path") or b""
        return bytes(raw).decode("utf-8", "replace").partition("?")[0]
    sent = str(request.META.get("RAW_URI") or request.META.get("REQUEST_URI") or "")
    return sent.partition("?")[0] if sent.startswith("/") else ""


# --- language ---------------------------------------------------------------------------------------------------------


LANGUAGE = "language"  # key of the session: the language of the user's profile, "" for that of the browser


def language_of(request: HttpRequest) -> str:
    """Return the language of a request: English except for pages, which have that of the profile, the cookie or the browser."""
    if area_of(request.path_info) != "page":
        return settings.LANGUAGE_CODE
    chosen = str(request.session.get(LANGUAGE, ""))
    return chosen if chosen in dict(settings.LANGUAGES) else translation.get_language_from_request(request)


class PageLanguageMiddleware(MiddlewareMixin):
    """Activates the language of each request. Django's LocaleMiddleware would translate REST responses as well."""

    def process_request(self, request: HttpRequest) -> None:
        """Activate the language; English first, in which an outage of the database is reported if the session is unreadable."""
        translation.activate(settings.LANGUAGE_CODE)
        translation.activate(language_of(request))

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Name the language of a page and what it depends on. Files that pages offer are in English."""
        if area_of(request.path_info) == "page":
            patch_vary_headers(response, ["Accept-Language", "Cookie"])
            if response.get("Content-Type", "").startswith("text/html"):
                response.headers.setdefault("Content-Language", translation.get_language() or settings.LANGUAGE_CODE)
        translation.deactivate()  # the thread serves no other request in this language
        return response


def _finished(running: Steps, response: HttpResponse) -> HttpResponse:
    try:
        running.send(response)
    except StopIteration:
        return response
    raise RuntimeError("The steps of a middleware yield once.")


# --- request times and build information ------------------------------------------------------------------------------
#
# Each web process counts its own requests, in a registry of prometheus_client. Scrape each process at its own address and sum
# in Prometheus.


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
