"""Refuses malformed requests before a view reads them: unknown charsets and NUL characters."""

from __future__ import annotations

import codecs
import re
from collections.abc import Awaitable, Callable, Mapping
from email.message import Message
from typing import Any

from django.http import HttpRequest, HttpResponseBadRequest
from django.utils.deprecation import MiddlewareMixin

# Python has more codecs: some do not encode text, some decode to text that databases refuse
_CHARSETS = frozenset({"utf-8", "ascii", "iso8859-1", "cp1252"})
_REST = re.compile(r"/(?:kafka/v3|v3|api)(?:/|$)")  # has refusals of its own
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


def only_known_charsets(application: Application) -> Application:
    """Return 400 for charsets other than UTF-8, ASCII, ISO 8859-1 and Windows-1252. Wraps Django, which would decode forms."""

    async def respond(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _codec(scope["headers"]) in _CHARSETS:
            await application(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 400, "headers": headers})
        await send({"type": "http.response.body", "body": b"The charset of the request is not supported. Send UTF-8.\n"})

    return respond


class NoNulMiddleware(MiddlewareMixin):
    """Returns 400 for NUL characters in requests to pages: PostgreSQL cannot store them or search for them."""

    def process_request(self, request: HttpRequest) -> HttpResponseBadRequest | None:
        """Return the refusal, or None if the request is well-formed."""
        if _REST.match(request.path_info) or not _holds_nul(request):
            return None
        reason = "The request contains a NUL character, which is not allowed in names and texts. Remove it.\n"
        return HttpResponseBadRequest(reason, content_type="text/plain; charset=utf-8")


def _codec(headers: list[tuple[bytes, bytes]]) -> str:
    message = Message()
    message["content-type"] = next((value for name, value in headers if name.lower() == b"content-type"), b"").decode("latin-1")
    try:
        return codecs.lookup(str(message.get_param("charset", "utf-8"))).name
    except (LookupError, ValueError):  # Django uses UTF-8 for an unknown charset
        return "utf-8"


def _holds_nul(request: HttpRequest) -> bool:
    values = (value for given in (request.GET, request.POST) for _, several in given.lists() for value in several)
    return "\0" in request.path_info or any("\0" in value for value in values)
