"""Pages while the server does not respond: they show the age of the data, and that the result of a request is unknown."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from console.models import MirrorTopic
from devcluster.ports import LOOPBACK, free_port
from linkengine.domain.states import MirrorState
from tests.browser.conftest import START_TIMEOUT_S, Visits
from tests.browser.page_data import PageData, make_page_data

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

SOON_MS = 9_000  # before a request times out
LATER_MS = 25_000
AGE = re.compile(r"Data as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: the server does not respond\. Retrying\.")


class Server:
    """The console in a separate process that can be stopped and continued."""

    def __init__(self, log: Path) -> None:
        self.port = free_port()
        self.base_url = f"http://{LOOPBACK}:{self.port}"
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def ensure_running(self) -> None:
        """Start the process unless it runs, and wait until it listens."""
        if self._process is not None:
            return
        database = f"sqlite:///{connection.settings_dict['NAME']}"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "uvicorn",
                    "console.asgi:application",
                    "--port",
                    str(self.port),
                    "--no-proxy-headers",
                    "--lifespan",
                    "off",
                ],
                env=os.environ | {"DJANGO_SETTINGS_MODULE": "console.settings", "CLUSTERLINK_DATABASE_URL": database},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._listens():
            assert time.monotonic() < deadline, "uvicorn did not start"
            time.sleep(0.1)

    def _listens(self) -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex((LOOPBACK, self.port)) == 0

    def suspend(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Hold the server, which needs a database, so only a test can start it."""
    held = Server(tmp_path_factory.mktemp("silence") / "uvicorn.log")
    yield held
    held.end()


@pytest.fixture
def server(transactional_db: None, shared_server: Server) -> Iterator[Server]:
    if connection.vendor != "sqlite":
        pytest.skip("the process uses the SQLite file of the tests")
    shared_server.ensure_running()
    yield shared_server
    shared_server.resume()


@pytest.fixture
def page_data(server: Server) -> PageData:
    return make_page_data()


@pytest.fixture
def visits(browser: Browser, server: Server) -> Iterator[Visits]:
    all_visits = Visits(browser=browser, base_url=server.base_url)
    yield all_visits
    for context in all_visits.contexts:
        context.close()


def test_pages_show_the_age_of_their_data_and_repeat_a_filter_once_the_server_responds(
    page_data: PageData, visits: Visits, server: Server
) -> None:
    page = visits.start(page_data.admin).open(page_data.mirror_url("flights"))
    filtered = visits.start(page_data.admin).open(page_data.link_url)
    for window in (page, filtered):
        _until_polled(window)
        expect(window.locator("#old-page")).to_be_hidden()

    server.suspend()
    filtered.locator("#filter-q").fill("fli")
    expect(page.locator("#old-page")).to_have_text(AGE, timeout=SOON_MS)
    expect(filtered.locator("#old-page")).to_be_visible(timeout=2 * SOON_MS)
    page.wait_for_timeout(10_000)  # the requests time out and the next wait: the note is still shown, with the same time
    expect(page.locator("#old-page")).to_have_text(AGE)

    MirrorTopic.objects.filter(name="flights").update(state=MirrorState.PAUSED)
    page_data.link.sequence += 1
    page_data.link.save()
    server.resume()
    expect(page.locator("#old-page")).to_be_hidden(timeout=LATER_MS)
    expect(page.locator(".page-head .api-state")).to_have_text("State Paused")
    expect(filtered.locator("#bulk tbody th a")).to_have_text(["flights"], timeout=LATER_MS)


def test_exited_server_is_shown_on_a_page_and_in_a_dialog(page_data: PageData, visits: Visits, server: Server) -> None:
    page = visits.start(page_data.admin).open("/links/")
    dialog = _pause_dialog(page_data, visits)
    _until_polled(page)

    server.end()
    dialog.get_by_role("button", name="Pause").click()

    expect(page.locator("#old-page")).to_have_text(AGE, timeout=SOON_MS)
    _expect_unknown_result(dialog)


def test_dialog_reports_an_unknown_result_without_a_response(page_data: PageData, visits: Visits, server: Server) -> None:
    dialog = _pause_dialog(page_data, visits)

    server.suspend()
    dialog.get_by_role("button", name="Pause").click()

    _expect_unknown_result(dialog)
    server.end()  # if it continued, it would execute the request during the next test


def _pause_dialog(page_data: PageData, visits: Visits) -> Locator:
    page = visits.start(page_data.admin).open(page_data.mirror_url("flights"))
    page.locator("#do-pause").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    return page.get_by_role("dialog")


def _expect_unknown_result(dialog: Locator) -> None:
    alert = dialog.get_by_role("alert")
    expect(alert).to_contain_text("The server does not respond. The operation may have succeeded.", timeout=LATER_MS)
    expect(alert).to_have_count(1)


def test_page_shows_the_age_of_its_data_on_proxy_errors(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)
    _until_polled(page)

    page.route(f"**{page_data.link_url}**", lambda route: route.fulfill(status=502, body="Bad gateway"))
    expect(page.locator("#old-page")).to_contain_text("the server returned an error (502)", timeout=SOON_MS)

    page.unroute(f"**{page_data.link_url}**")
    expect(page.locator("#old-page")).to_be_hidden()


def test_dialog_reports_a_rejected_csrf_token(page_data: PageData, visits: Visits) -> None:
    dialog = _pause_dialog(page_data, visits)
    dialog.locator("[name=csrfmiddlewaretoken]").evaluate("input => input.value = 'wrong'")

    dialog.get_by_role("button", name="Pause").click()

    expect(dialog.get_by_role("alert")).to_contain_text("rejected the request (403). Nothing was changed.")


def test_late_poll_response_does_not_replace_the_filtered_list(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open("/links/")
    held: list[Route] = []

    def hold_first(route: Route, request: Request) -> None:
        if held or request.headers.get("hx-target") != "live":
            route.continue_()
            return
        held.append(route)

    page.route("**/links/**", hold_first)
    while not held:  # until a poll of the whole list is pending
        page.wait_for_timeout(50)
    page.locator("#filter-q").fill("south")
    expect(page.locator("#live tbody th a")).to_have_text(["south-archive"], timeout=LATER_MS)

    held[0].continue_()

    for _ in range(20):
        page.wait_for_timeout(100)
        assert page.locator("#live tbody th a").all_inner_texts() == ["south-archive"]


def _until_polled(page: Page) -> None:
    with page.expect_response(lambda response: response.request.headers.get("hx-target") == "live", timeout=LATER_MS):
        pass
