"""What every request gets: an id (on its log lines, in its answer, in the audit) and two values for templates."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse

HEADER = "X-Request-ID"
_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{8,64}")  # others are replaced: the id goes into logs and into the audit


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
        return self._end(self.get_response(request), request_id)

    async def _answer_later(self, request: HttpRequest) -> HttpResponse:
        request_id = self._begin(request)
        return self._end(await self.get_response(request), request_id)

    def _begin(self, request: HttpRequest) -> str:
        given = request.headers.get(HEADER, "")
        request_id = given if _ACCEPTABLE.fullmatch(given) else uuid.uuid4().hex
        request.request_id = request_id  # type: ignore[attr-defined]
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        return request_id

    def _end(self, response: HttpResponse, request_id: str) -> HttpResponse:
        response[HEADER] = request_id
        return response


def template_context(request: HttpRequest) -> dict[str, Any]:
    """Give templates the product's name and the nonce under the name that django-htmx's tags look for."""
    return {"product_name": settings.PRODUCT_NAME, "csp_nonce": getattr(request, "csp_nonce", None)}
