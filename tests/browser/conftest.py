"""Fixtures: a real browser on the ASGI application, with the rows of the page data.

Playwright drives a headless Chromium. All its requests are recorded, so that tests can check that none goes to another host.
The application runs under uvicorn in a thread on a free port, with the test database.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import qrcode
import uvicorn
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright
from qrcode.image.svg import SvgPathImage

from console.access import second_factor
from console.models import mirrors
from console.web.request_handling import TIME_ZONE
from devcluster.browser import FLAGS, browser_path
from tests.browser.page_data import PageData, make_page_data

START_TIMEOUT_S = 90
SHOWN_MS = 20_000  # until a page shows something; less than the 30 s after which charts are loaded again


@dataclass
class Visitor:
    """A browser window with its requests and its errors."""

    page: Page
    base_url: str
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, address: str) -> Page:
        self.page.goto(f"{self.base_url}{address}", wait_until="load")
        return self.page

    def go(self, address: str, *clicks: str) -> Page:
        """Open a page and click these controls, which lead to another page, for example a confirmation."""
        page = self.open(address)
        for selector in clicks:
            page.click(selector)
        page.wait_for_load_state("load")
        return page


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Chromium once for all tests."""
    # Playwright runs an event loop in this thread, in which Django would reject database access.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    expect.set_options(timeout=SHOWN_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser_path(), args=FLAGS)
        yield chromium
        chromium.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="module")
def web_server() -> Iterator[uvicorn.Server]:
    """Run the application under uvicorn on a free port, for all tests of a file."""
    from console.asgi import application  # noqa: PLC0415 - needs the settings of the test suite

    server = uvicorn.Server(
        uvicorn.Config(application, host="127.0.0.1", port=0, log_level="error", lifespan="off", proxy_headers=False)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    _wait_until(lambda: server.started, "uvicorn did not start")
    yield server
    server.should_exit = True
    thread.join(START_TIMEOUT_S)


@pytest.fixture
def base_url(transactional_db: None, web_server: uvicorn.Server) -> Iterator[str]:
    """The URL of the application. After the test, its browser windows are closed, and the last requests end."""
    yield f"http://127.0.0.1:{web_server.servers[0].sockets[0].getsockname()[1]}"
    state = web_server.server_state
    _wait_until(lambda: not (state.connections or state.tasks), "requests did not end")


def _wait_until(condition: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, failure
        time.sleep(0.01)


@pytest.fixture
def page_data(base_url: str, monkeypatch: pytest.MonkeyPatch) -> PageData:
    """The page data, whose measurements stay current however long a test takes."""
    monkeypatch.setattr(mirrors, "UNSEEN", timedelta(hours=1))
    return make_page_data()


@dataclass
class Visits:
    """Opens browser windows, which are closed at the end of the test."""

    browser: Browser
    base_url: str
    contexts: list[BrowserContext] = field(default_factory=list)

    def start(
        self,
        user: User | None = None,
        *,
        width: int = 1280,
        theme: str = "light",
        scripts: bool = True,
        language: str = "en",
        zone: str = "",
    ) -> Visitor:
        """Open a window, signed in as ``user`` if given, with the language of the browser and the time zone of the profile."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if theme == "dark" else "light",
            java_script_enabled=scripts,
            locale={"en": "en-US", "ja": "ja-JP"}[language],
            reduced_motion="reduce",  # colours during a transition are undefined
        )
        self.contexts.append(context)
        if user is not None:
            context.add_cookies(
                [{"name": settings.SESSION_COOKIE_NAME, "value": session_of(user, zone=zone), "url": self.base_url}]
            )
        visitor = Visitor(page=context.new_page(), base_url=self.base_url)
        _listen(visitor)
        return visitor


@pytest.fixture
def visits(browser: Browser, base_url: str) -> Iterator[Visits]:
    all_visits = Visits(browser=browser, base_url=base_url)
    yield all_visits
    for context in all_visits.contexts:
        context.close()


class Authenticator:
    """Replaces django-allauth, which can only be installed for a whole process; test_signin has the codes."""

    is_on = False


@pytest.fixture
def authenticator(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Authenticator:
    settings.SECOND_FACTOR = True
    fake = Authenticator()
    replaced: dict[str, Callable[..., Any]] = {
        "has_second_factor": lambda _user: fake.is_on,
        "new_secret": lambda: "JBSWY3DPEHPK3PXP",
        "encrypted": lambda secret: secret,
        "decrypted": lambda stored: stored,
        "uri_of": lambda user, secret: f"otpauth://totp/Clusterlink:{user.get_username()}?secret={secret}&issuer=Clusterlink",
        "qr_of": lambda uri: qrcode.make(uri, image_factory=SvgPathImage).to_string(encoding="unicode"),
        "activate": lambda _user, _secret, _code: [f"recovery-{number}" for number in range(1, 11)],
        "recovery_codes_left": lambda _user: 10,
    }
    for name, function in replaced.items():
        monkeypatch.setattr(second_factor, name, function)
    return fake


def session_of(user: User, *, zone: str = "") -> str:
    """Create a session for a user; return its key."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session[TIME_ZONE] = zone
    session.create()
    return str(session.session_key)


def _listen(visitor: Visitor) -> None:
    def note(request: Request) -> None:
        visitor.requests.append(request.url)

    visitor.page.on("request", note)
    visitor.page.on("pageerror", lambda error: visitor.errors.append(str(error)))
    visitor.page.on("console", lambda message: visitor.errors.append(_text(message)) if message.type == "error" else None)


def _text(message: ConsoleMessage) -> str:
    return f"{message.text} at {message.location['url']}"
