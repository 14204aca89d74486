"""Cache headers of responses, and streaming of files under ASGI: never read into memory completely."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, RequestFactory

from console.http.middleware import CHUNKS_AT_ONCE, Steps, request_middleware, stream_without_blocking

_T = TypeVar("_T")


def run(made: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in a thread of its own, since a browser test may have left an event loop here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, made).result(60)


async def _content(response: StreamingHttpResponse) -> bytes:
    return b"".join([part async for part in response])


def test_static_file_is_streamed_completely() -> None:
    found = finders.find("css/theme.css")
    assert isinstance(found, str)

    async def fetch() -> tuple[bool, bytes]:
        response = await AsyncClient().get("/static/css/theme.css")
        assert isinstance(response, StreamingHttpResponse)
        return response.is_async, await _content(response)

    is_async, content = run(fetch())

    assert (is_async, content) == (True, Path(found).read_bytes())


def test_large_file_is_read_while_it_is_sent() -> None:
    read = []

    def chunks() -> Iterator[bytes]:
        for number in range(10 * CHUNKS_AT_ONCE):
            read.append(number)
            yield b"x"

    async def first_part() -> bytes:
        response = StreamingHttpResponse(chunks())
        stream_without_blocking(response)
        async for part in response:
            return part
        return b""

    assert run(first_part()) == b"x" * CHUNKS_AT_ONCE
    assert len(read) == CHUNKS_AT_ONCE


def test_other_responses_are_not_changed() -> None:
    response = HttpResponse("as it is")
    stream_without_blocking(response)
    assert response.content == b"as it is"


def test_request_middleware_works_sync_and_async() -> None:
    seen: list[str] = []

    @request_middleware
    def noted(request: HttpRequest) -> Steps:
        seen.append(request.path)
        response = yield
        response["X-Noted"] = "yes"

    async def view_later(_request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    request = RequestFactory().get("/page")
    assert noted(lambda _request: HttpResponse())(request)["X-Noted"] == "yes"
    assert run(noted(view_later)(request))["X-Noted"] == "yes"
    assert seen == ["/page", "/page"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/sign-in/", 200),
        ("/environments/", 302),
        ("/nothing-here/", 404),
        ("/admin/login/", 200),
        ("/kafka/v3/clusters", 401),
        ("/v3/clusters", 401),
        ("/api/v1/nothing", 401),
        ("/healthz", 200),
        ("/search/?q=%00", 400),
    ],
)
def test_no_response_may_be_stored(db: None, path: str, status: int) -> None:
    response = Client().get(path)

    assert response.status_code == status
    assert "no-store" in response["Cache-Control"]


def test_under_asgi_no_response_may_be_stored_except_static_files() -> None:
    async def fetch(path: str) -> str:
        response = await AsyncClient().get(path)
        response.close()  # the file of a static response
        return str(response.get("Cache-Control", ""))

    assert run(fetch("/healthz")) == "no-store"
    assert "no-store" not in run(fetch("/static/css/theme.css"))
