"""What every request gets: the client's address, an id (on its log lines, in its answer, in the audit), template values."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any

import structlog
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.middleware.common import CommonMiddleware

from console.middlewaretools import Steps, request_middleware
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


@request_middleware
def client_address(request: HttpRequest) -> Steps:
    """Set REMOTE_ADDR to the client's address where a trusted proxy (``TRUSTED_PROXIES``) forwards the request.

    Forwarding headers of any other peer are removed, so that nothing behind this reads them. The web server must not evaluate
    them itself (uvicorn: ``--no-proxy-headers``), or the peer's address is lost.
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


@request_middleware
def request_id(request: HttpRequest) -> Steps:
    """Set ``request.request_id`` to the caller's ``X-Request-ID`` or a new one; log lines and the response carry it."""
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
    """Forbid browsers and proxies to store responses: pages and REST responses depend on the person who is signed in.

    Stands inside WhiteNoise, whose responses for static files keep their own ``Cache-Control``.
    """
    response = yield
    if "no-store" not in response.get("Cache-Control", ""):
        response["Cache-Control"] = "no-store"


def stream_without_blocking(response: HttpResponse) -> None:
    """Let a file be read bit by bit in a thread; Django would read all of it into memory before the first byte is sent."""
    if isinstance(response, StreamingHttpResponse) and not response.is_async:
        response.streaming_content = _read_later(iter(response.streaming_content))


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
