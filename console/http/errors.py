"""HTTP statuses of errors, database outages, and refusal of malformed requests."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from email.message import Message
from types import MappingProxyType
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import render
from django.utils import translation
from django.utils.deprecation import MiddlewareMixin

from console.errors import BROKER_TIMEOUT
from console.languages import translated
from linkengine.domain.messages import gettext_lazy, gettext_noop

# --- statuses of the console's errors ---------------------------------------------------------------------------------
#
# For pages, and for REST with ``error_code``, which is that of Confluent's REST proxy.


TOPIC_NOT_FOUND, PARTITION_NOT_FOUND = "TOPIC_NOT_FOUND", "PARTITION_NOT_FOUND"
# kind of a ConsoleError -> status
PAGE_STATUS: Mapping[str, int] = MappingProxyType(
    {
        "bad_request": 400,
        "invalid": 422,
        "conflict": 409,
        "denied": 403,
        "not_found": 404,
        "unavailable": 503,
        "broker_failed": 500,
    }
)
# kind of a ConsoleError -> (status, error_code)
REST_STATUS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "bad_request": (400, 40002),
        "invalid": (400, 40002),
        "conflict": (400, 40002),  # Confluent's interface has no 409
        "denied": (403, 40301),
        "not_found": (404, 404),
        "unavailable": (503, 50302),
        "broker_failed": (500, 50002),
    }
)
_REST_CODES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        TOPIC_NOT_FOUND: (404, 40401),
        PARTITION_NOT_FOUND: (404, 40402),
        "UNKNOWN_TOPIC_OR_PARTITION_ERROR": (404, 40403),
        "UNSUPPORTED_VERSION_ERROR": (400, 40035),
        BROKER_TIMEOUT: (500, 50003),  # retriable
    }
)


def rest_status(*, code: str, kind: str) -> tuple[int, int]:
    """Return status and ``error_code`` of the REST response for an error."""
    return _REST_CODES.get(code, REST_STATUS[kind])


# --- database outages -------------------------------------------------------------------------------------------------
#
# REST uses its own handler (``console.api.errors``). Pages use a template that needs neither the database nor a session.
# Exceptions reach it in two ways: from a view by ``process_exception``; from a middleware, such as the session middleware,
# by ``handler500``, since Django turns those into a response before an outer middleware sees them.


RETRY_AFTER_S = 5
AWAY, FULL, READ_ONLY = "does not respond", "has no connection left", "accepts no writes"
# SQLSTATE classes and codes (PostgreSQL, appendix A): 25006 read_only_sql_transaction, 53 insufficient resources
# (53300 too_many_connections), 08 connection exception, 57P0x shutdown and start-up, 58 system error
_READ_ONLY_STATE, _FULL_STATE = "25006", "53300"
_OUTAGE_STATES = ("08", "53", "57P0", "58")
_FULL = re.compile("too many (clients|connections)|remaining connection slots")  # a refused connection has no SQLSTATE
_READ_ONLY = re.compile("readonly database|read-only")  # SQLite; and target_session_attrs=read-write without a primary
_BUG = re.compile("no such (table|column)")  # SQLite reports these as OperationalError
_SENTENCES = {
    AWAY: gettext_noop(
        "The database does not respond, so nothing was changed. Start it, or correct CLUSTERLINK_DATABASE_URL, then retry."
    ),
    FULL: gettext_noop(
        "The database has no connection left, so nothing was changed. Raise max_connections or reduce "
        "CLUSTERLINK_WORKER_THREADS, then retry."
    ),
    READ_ONLY: gettext_noop(
        "The database accepts no writes, so nothing was changed. Promote a standby or end its read-only mode, then retry."
    ),
}
_log = structlog.get_logger(__name__)


def outage_of(error: BaseException | None) -> str | None:
    """Return AWAY, FULL or READ_ONLY, or None if the error is no outage of the database."""
    if not isinstance(error, DatabaseError | InterfaceError):
        return None
    text, state = str(error), getattr(error.__cause__, "sqlstate", None) or ""
    if state == _READ_ONLY_STATE or (isinstance(error, OperationalError) and _READ_ONLY.search(text)):
        return READ_ONLY
    if state == _FULL_STATE or (isinstance(error, OperationalError) and _FULL.search(text)):
        return FULL
    if _BUG.search(text):
        return None
    return AWAY if isinstance(error, OperationalError | InterfaceError) or state.startswith(_OUTAGE_STATES) else None


def sentence(outage: str) -> str:
    """Return what happened and what to do, for people."""
    return gettext_lazy(_SENTENCES[outage])


class DatabaseOutageMiddleware(MiddlewareMixin):
    """Returns 503 if a view fails because of a database outage.

    Being the innermost, and sync only, it makes Django call all middlewares in the request's thread. Otherwise each of them
    would take the request from the event loop to that thread and back, twice.
    """

    async_capable = False

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Return the page for an outage, None for every other exception."""
        outage = outage_of(error)
        return None if outage is None else _unavailable(request, outage)


def handle_500(request: HttpRequest) -> HttpResponse:
    """Django's ``handler500``: an outage that no view raised is still a 503."""
    outage = outage_of(sys.exc_info()[1])
    return _page(request, "500.html", status=500) if outage is None else _unavailable(request, outage)


def _unavailable(request: HttpRequest, outage: str) -> HttpResponse:
    _log.warning("database.unavailable", outage=outage, path=request.path)
    response = _page(request, "503.html", status=503, message=translated(sentence(outage)))
    response["Retry-After"] = str(RETRY_AFTER_S)
    return response


def _page(request: HttpRequest, template: str, *, status: int, **values: str) -> HttpResponse:
    """Render a page with the request id but without the request: the context processors read the session."""
    common = {"request_id": getattr(request, "request_id", ""), "LANGUAGE_CODE": translation.get_language()}
    return render(None, template, values | common, status=status)


# --- malformed requests -----------------------------------------------------------------------------------------------
#
# Unknown charsets and NUL characters are refused before a view reads the request.


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
