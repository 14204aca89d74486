"""What every request gets: the client's address, an id (on its log lines, in its answer, in the audit), template values."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.middleware.common import CommonMiddleware
from django.utils.decorators import sync_and_async_middleware

from console.requestmetrics import PROBE_PATHS
from linkengine.domain.networks import is_within, parse_address

HEADER = "X-Request-ID"
CHUNKS_AT_ONCE = 64  # of 4 KiB: one hop to a thread for most static files
_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{8,64}")  # others are replaced: the id goes into logs and into the audit


_FORWARDED = (
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT",
    "HTTP_FORWARDED",
)
_HOP = re.compile(r"\[(?P<v6>[^]]+)](?::\d+)?|(?P<v4>[\d.]+):\d+")  # an address with a port; some proxies add it


@sync_and_async_middleware
def client_address(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Set REMOTE_ADDR to the client's address where a trusted proxy (``TRUSTED_PROXIES``) forwards the request.

    Forwarding headers of any other peer are removed, so that nothing behind this reads them. The web server must not evaluate
    them itself (uvicorn: ``--no-proxy-headers``), or the peer's address is lost.
    """
    if iscoroutinefunction(get_response):

        async def respond_later(request: HttpRequest) -> Any:
            _set_client_address(request.META)
            return await get_response(request)

        return respond_later

    def respond(request: HttpRequest) -> Any:
        _set_client_address(request.META)
        return get_response(request)

    return respond


def _set_client_address(meta: dict[str, Any]) -> None:
    peer = str(meta.get("REMOTE_ADDR") or "")
    if _is_trusted(peer):
        meta["REMOTE_ADDR"] = _client_behind(peer, str(meta.get("HTTP_X_FORWARDED_FOR", "")))
    else:
        for name in _FORWARDED:
            meta.pop(name, None)


def _client_behind(peer: str, forwarded_for: str) -> str:
    """Return the rightmost hop that no trusted proxy has; each proxy appends the address that it was connected from.

    A hop that is not an address ends the search: who added it is not known, so the last trusted hop counts.
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
    except ValueError:  # no address, as behind a Unix socket
        return False


class RequestIdMiddleware:
    """Takes the caller's ``X-Request-ID`` or makes one; ``request.request_id`` holds it. Works sync and async."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        """Remember the rest of the chain."""
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Answer the request, or a coroutine that does."""
        if iscoroutinefunction(self):
            return self._answer_later(request)
        request_id = self._begin(request)
        return self._end(self.get_response(request), request_id, streams_later=isinstance(request, ASGIRequest))

    async def _answer_later(self, request: HttpRequest) -> HttpResponse:
        request_id = self._begin(request)
        return self._end(await self.get_response(request), request_id, streams_later=True)

    def _begin(self, request: HttpRequest) -> str:
        given = request.headers.get(HEADER, "")
        request_id = given if _ACCEPTABLE.fullmatch(given) else uuid.uuid4().hex
        request.request_id = request_id  # type: ignore[attr-defined]
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        return request_id

    def _end(self, response: HttpResponse, request_id: str, *, streams_later: bool) -> HttpResponse:
        response[HEADER] = request_id
        return stream_without_blocking(response) if streams_later else response


class NoStoreMiddleware:
    """Forbids browsers and proxies to store responses: pages and REST responses depend on the person who is signed in.

    Stands inside WhiteNoise, whose responses for static files keep their own ``Cache-Control``. Works sync and async.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        """Keep the rest of the chain."""
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Return the response, or a coroutine that does."""
        if iscoroutinefunction(self):
            return self._respond_later(request)
        return _not_stored(self.get_response(request))

    async def _respond_later(self, request: HttpRequest) -> HttpResponse:
        return _not_stored(await self.get_response(request))


def _not_stored(response: HttpResponse) -> HttpResponse:
    if "no-store" not in response.get("Cache-Control", ""):
        response["Cache-Control"] = "no-store"
    return response


def stream_without_blocking(response: HttpResponse) -> HttpResponse:
    """Let a file be read bit by bit in a thread; Django would read all of it into memory before the first byte is sent."""
    if isinstance(response, StreamingHttpResponse) and not response.is_async:
        response.streaming_content = _read_later(iter(response.streaming_content))
    return response


async def _read_later(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    def read() -> bytes:
        return b"".join(islice(chunks, CHUNKS_AT_ONCE))

    while part := await sync_to_async(read, thread_sensitive=False)():
        yield part


def template_context(request: HttpRequest) -> dict[str, Any]:
    """Give templates the product's name and the nonce under the name that django-htmx's tags look for."""
    return {"product_name": settings.PRODUCT_NAME, "csp_nonce": getattr(request, "csp_nonce", None)}


class HostCheckMiddleware(CommonMiddleware):
    """Django's CommonMiddleware, which checks the Host header, except on the probe paths.

    Kubernetes and load balancers probe by address, and Prometheus scrapes by service name: such names cannot all be listed in
    ``ALLOWED_HOSTS``. The probe views never use the host name.
    """

    def process_request(self, request: HttpRequest) -> Any:
        """Refuse unknown hosts; accept any host on a probe path."""
        return None if request.path_info in PROBE_PATHS else super().process_request(request)
