"""Malformed requests (unknown charsets, NUL characters) are rejected with 400 before they reach a view or the database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.test import Client

from tests.browser.page_data import PageData

ENDLESS = "9" * 5000


async def status_of(path: str, content_type: str) -> int:
    """Send a request to the ASGI application and return the response status."""
    from console.asgi import application  # noqa: PLC0415 - needs the settings of the test suite

    query = {"path": path, "query_string": b"q=%2B2AA-&x=%20", "headers": [(b"host", b"localhost")]}
    query["headers"].append((b"Content-Type", content_type.encode()))  # type: ignore[attr-defined]
    sent: list[Mapping[str, Any]] = []
    received = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Mapping[str, Any]:
        while not received:
            await asyncio.sleep(1.0)  # the client stays connected
        return received.pop()

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    await application({"type": "http", "method": "GET", "http_version": "1.1", "scheme": "http", **query}, receive, send)
    return int(sent[0]["status"])


def status_in_thread(path: str, content_type: str) -> int:
    with ThreadPoolExecutor(1) as pool:  # a browser test in the same process leaves an event loop running in this thread
        return pool.submit(asyncio.run, status_of(path, content_type)).result(60)


@pytest.mark.parametrize("charset", ["zlib", "utf-7", "utf-16", "rot13", '"zlib"'])
@pytest.mark.parametrize("path", ["/healthz", "/kafka/v3/clusters"])
def test_non_text_charset_is_rejected(charset: str, path: str) -> None:
    assert status_in_thread(path, f"text/plain; charset={charset}") == 400


@pytest.mark.parametrize("charset", ["UTF-8", "utf8", "ISO-8859-1", "us-ascii", "windows-1252", "no-such-charset"])
def test_text_charsets_are_accepted(charset: str) -> None:
    assert status_in_thread("/healthz", f"application/json; charset={charset}") == 200


@pytest.mark.parametrize("path", ["/links/?q=%00", "/sign-in/?next=%00", "/clusters/%00/", "/audit/?q=a%00b"])
def test_nul_character_in_a_url_is_rejected(admin: Client, path: str) -> None:
    response = admin.get(path)

    assert (response.status_code, "NUL" in response.content.decode()) == (400, True)


def test_nul_character_in_a_form_is_rejected(page_data: PageData, admin: Client, client: Client) -> None:
    forms: list[tuple[Client, str, dict[str, Any]]] = [
        (admin, f"{page_data.link_url}mirrors/new/", {"source_topic": "a\0"}),
        (admin, "/access/api-keys/", {"description": "\0"}),
        (client, "/sign-in/", {"username": "a\0", "password": "x"}),
    ]
    for sender, path, values in forms:
        assert sender.post(path, values).status_code == 400


def test_rest_rejects_a_nul_character_with_json(admin: Client) -> None:
    response = admin.get("/kafka/v3/clusters?x=%00")

    assert (response.status_code, response["Content-Type"]) == (400, "application/json")


def test_very_long_numbers_are_handled(page_data: PageData, admin: Client) -> None:
    assert admin.get(f"/links/?page={ENDLESS}").status_code == 200
    assert (
        admin.get(f"{page_data.link_url}?seen={page_data.link.sequence}:{ENDLESS}", headers={"HX-Request": "true"}).status_code
        == 200
    )
    for number in (ENDLESS, "32768", "0"):
        response = admin.post(f"{page_data.link_url}mirrors/new/", {"source_topic": "a", "replication_factor": number})
        assert (response.status_code, "from 1 to 32,767" in response.content.decode()) == (422, True)
