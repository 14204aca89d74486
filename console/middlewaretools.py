"""One function for the sync and the async form of a middleware (Django: ``sync_and_async_middleware``)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

Steps = Generator[None, HttpResponse, None]
Middleware = Callable[[Callable[[HttpRequest], Any]], Callable[[HttpRequest], Any]]


def request_middleware(steps: Callable[[HttpRequest], Steps]) -> Middleware:
    """Return a middleware made of a generator function that yields once: ``response = yield``.

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


def _finished(running: Steps, response: HttpResponse) -> HttpResponse:
    try:
        running.send(response)
    except StopIteration:
        return response
    raise RuntimeError("The steps of a middleware yield once.")
