"""Database outages: which exceptions mean an outage, and the 503 response of pages.

REST uses its own handler (``console.api.errors``). Pages use a template that needs neither the database nor a session.
Exceptions reach it in two ways: from a view by ``process_exception``; from a middleware, such as the session middleware,
by ``handler500``, since Django turns those into a response before an outer middleware sees them.
"""

from __future__ import annotations

import re
import sys

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin

RETRY_AFTER_S = 5
AWAY, FULL, READ_ONLY = "does not answer", "has no connection left", "accepts no writes"
# SQLSTATE classes and codes (PostgreSQL, appendix A): 25006 read_only_sql_transaction, 53 insufficient resources
# (53300 too_many_connections), 08 connection exception, 57P0x shutdown and start-up, 58 system error
_READ_ONLY_STATE, _FULL_STATE = "25006", "53300"
_OUTAGE_STATES = ("08", "53", "57P0", "58")
_FULL = re.compile("too many (clients|connections)|remaining connection slots")  # a refused connection has no SQLSTATE
_READ_ONLY = re.compile("readonly database|read-only")  # SQLite; and target_session_attrs=read-write without a primary
_BUG = re.compile("no such (table|column)")  # SQLite reports these as OperationalError
_WHAT_TO_DO = {
    AWAY: "Start it, or correct CLUSTERLINK_DATABASE_URL, then retry.",
    FULL: "Raise max_connections or reduce CLUSTERLINK_WORKER_THREADS, then retry.",
    READ_ONLY: "Promote a standby or end its read-only mode, then retry.",
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
    return f"The database {outage}, so nothing was changed. {_WHAT_TO_DO[outage]}"


class DatabaseOutageMiddleware(MiddlewareMixin):
    """Answers 503 if a view fails because of a database outage."""

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
    response = _page(request, "503.html", status=503, message=sentence(outage))
    response["Retry-After"] = str(RETRY_AFTER_S)
    return response


def _page(request: HttpRequest, template: str, *, status: int, **values: str) -> HttpResponse:
    """Render a page with the request id but without the request: the context processors read the session."""
    return render(None, template, values | {"request_id": getattr(request, "request_id", "")}, status=status)
