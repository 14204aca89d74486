"""Fixtures: a real browser on the ASGI application, with the rows of the scene.

Playwright drives a headless Chromium. All its requests are recorded, so that tests can check that none goes to another host.
The application runs under uvicorn in a thread on a free port, with the test database.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
import uvicorn
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from console.models import mirrors
from console.web.preferences import TIME_ZONE
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


@pytest.fixture
def base_url(transactional_db: None) -> Iterator[str]:
    """Run the application under uvicorn on a free port; yield its URL."""
    from console.asgi import application  # noqa: PLC0415 - needs the settings of the test suite

    server = uvicorn.Server(
        uvicorn.Config(application, host="127.0.0.1", port=0, log_level="error", lifespan="off", proxy_headers=False)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + START_TIMEOUT_S
    while not server.started:
        assert time.monotonic() < deadline, "uvicorn did not start"
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(START_TIMEOUT_S)


@pytest.fixture
def page_data(base_url: str, monkeypatch: pytest.MonkeyPatch) -> PageData:
    """The scene, whose measurements stay current however long a test takes."""
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
