"""Path segments of REST that hold any character, also a slash.

Servers decode ``%2F`` before Django sees the path: the ASGI ``path`` of ``/consumer-groups/data%2Fx`` and of
``/consumer-groups/data/x`` is the same. Therefore ``keep_path_encoded`` replaces the path of a REST request by the one that
was sent (``raw_path`` of ASGI, ``RAW_URI`` or ``REQUEST_URI`` of WSGI servers), in one canonical encoding, and the converter
``segment`` decodes each segment after routing. Below the REST prefixes ``request.path`` is thus always percent-encoded.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.urls import register_converter

from console.middlewaretools import Steps, request_middleware

_REST = re.compile(r"/(?:kafka/v3|v3|api/v1)(?:/|$)")
_DOTS = {".": "%2E", "..": "%2E%2E"}  # as they are, clients and proxies take them out of an address (RFC 3986, 5.2.4)


def encode_segment(text: str) -> str:
    """Return ``text`` as one segment of a path; the colon of a verb stays."""
    return _DOTS.get(text) or quote(text, safe=":", errors="replace")


def encode_path(path: str) -> str:
    """Return a percent-encoded path in the one spelling that the routes know."""
    return "/".join(encode_segment(unquote(segment)) for segment in path.split("/"))


@request_middleware
def keep_path_encoded(request: HttpRequest) -> Steps:
    """Give REST requests their encoded path."""
    if _REST.match(request.path_info):
        prefix = request.path.removesuffix(request.path_info)
        sent = encode_path(_sent_path(request) or quote(request.path, errors="replace"))
        request.path = sent
        request.path_info = sent.removeprefix(encode_path(quote(prefix))) if prefix else sent
    yield


def _sent_path(request: HttpRequest) -> str:
    """Return the path as the client sent it, "" where the server does not keep it."""
    if isinstance(request, ASGIRequest):
        raw = request.scope.get("raw_path") or b""
        return bytes(raw).decode("utf-8", "replace").partition("?")[0]
    sent = str(request.META.get("RAW_URI") or request.META.get("REQUEST_URI") or "")
    return sent.partition("?")[0] if sent.startswith("/") else ""


class Segment:
    """One segment of a path, decoded."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        """Return what the segment stands for."""
        return unquote(value)

    def to_url(self, value: str) -> str:
        """Return the segment that stands for ``value``."""
        return encode_segment(value)


class AnySegment(Segment):
    """One segment of a path, decoded; may be empty, as the name of a consumer group may be."""

    regex = "[^/]*"


register_converter(Segment, "segment")
register_converter(AnySegment, "any_segment")
