"""Path segments that may contain any character, including a slash.

Web servers decode ``%2F`` before Django gets the path: the ASGI ``path`` of ``/consumer-groups/data%2Fx`` and of
``/consumer-groups/data/x`` is the same. Therefore ``keep_path_encoded`` replaces the path of a REST request with the path that
the client sent (``raw_path`` of ASGI, ``RAW_URI`` or ``REQUEST_URI`` of WSGI servers) in a canonical encoding, and the URL
converter ``segment`` decodes each segment after routing. Below the REST prefixes ``request.path`` is always percent-encoded.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.urls import register_converter

from console.http.middleware import Steps, request_middleware

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


class Segment:
    """URL converter of a non-empty path segment, which it decodes."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        """Return the decoded segment."""
        return unquote(value)

    def to_url(self, value: str) -> str:
        """Return ``value`` as an encoded segment."""
        return encode_segment(value)


class AnySegment(Segment):
    """URL converter of a path segment that may be empty, like the name of a consumer group."""

    regex = "[^/]*"


register_converter(Segment, "segment")
register_converter(AnySegment, "any_segment")
