"""Refuses requests that no view could read, before one tries: they are mistakes of a program, or probes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Awaitable, Callable, Mapping
from email.message import Message
from typing import Any

from django.http import HttpRequest, HttpResponseBadRequest
from django.utils.deprecation import MiddlewareMixin

# Python knows more of them: some are no encodings of text, some make text that no database takes
_CHARSETS = frozenset({"utf-8", "ascii", "iso8859-1", "cp1252"})
_REST = re.compile(r"/(?:kafka/v3|v3|api)(?:/|$)")  # words its own refusals
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


def only_known_charsets(application: Application) -> Application:
    """Answer 400 for a charset other than UTF-8 and its ancestors. Around Django, which would read parts of forms by it."""

    async def answer(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _codec(scope["headers"]) in _CHARSETS:
            await application(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 400, "headers": headers})
        await send({"type": "http.response.body", "body": b"The charset of the request is not understood here. Send UTF-8.\n"})

    return answer


class NoNulMiddleware(MiddlewareMixin):
    """Answers 400 for NUL characters in what pages are sent: PostgreSQL can neither store them nor look for them."""

    def process_request(self, request: HttpRequest) -> HttpResponseBadRequest | None:
        """Answer why the request is refused, None where it can be read."""
        if _REST.match(request.path_info) or not _holds_nul(request):
            return None
        reason = "The request holds a NUL character, which no name and no text here may have. Leave it out.\n"
        return HttpResponseBadRequest(reason, content_type="text/plain; charset=utf-8")


def _codec(headers: list[tuple[bytes, bytes]]) -> str:
    message = Message()
    message["content-type"] = next((value for name, value in headers if name.lower() == b"content-type"), b"").decode("latin-1")
    try:
        return codecs.lookup(str(message.get_param("charset", "utf-8"))).name
    except (LookupError, ValueError):  # Django takes an unknown one for UTF-8
        return "utf-8"


def _holds_nul(request: HttpRequest) -> bool:
    values = (value for given in (request.GET, request.POST) for _, several in given.lists() for value in several)
    return "\0" in request.path_info or any("\0" in value for value in values)
