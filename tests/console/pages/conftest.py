"""Fixtures: the page data of the browser tests, clients for its users, and a fake task queue."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from pytest_django import DjangoDbBlocker
from time_machine import TimeMachineFixture

from console.queue import dispatch
from console.web import badges
from console.web.badges import LINK_BADGES, MIRROR_BADGES, mirror_badge
from tests.browser.page_data import WEST, PageData, make_page_data


@dataclass
class Queue:
    """A fake task queue. ``response`` is the result of a call, or the error that it raises."""

    sent: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    response: Any = None

    def send(self, task_name: str, **_kwargs: Any) -> None:
        self.sent.append(task_name)

    def call(self, task_name: str, **_kwargs: Any) -> Any:
        self.called.append(task_name)
        if isinstance(self.response, Exception):
            raise self.response
        return self.response


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    fake = Queue(response={"cluster_id": WEST, "brokers": 3, "kafka_version": "4.3.1", "authorizer": True})
    monkeypatch.setattr(dispatch, "send", fake.send)
    monkeypatch.setattr(dispatch, "call", fake.call)
    return fake


@pytest.fixture(scope="module")
def made_page_data(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[PageData]:
    """Create the page data once for all tests of a file, in a transaction around those of the tests."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield make_page_data()
        transaction.set_rollback(True)


@pytest.fixture
def page_data(made_page_data: PageData, db: None, time_machine: TimeMachineFixture) -> PageData:
    """The page data, as current as if they had just been created: the clock is set to their time, and runs."""
    time_machine.move_to(made_page_data.now)
    return deepcopy(made_page_data)


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def admin(page_data: PageData) -> Client:
    """Amelia, who administers the organization."""
    return client_of(page_data.admin)


@pytest.fixture
def reader(page_data: PageData) -> Client:
    """Bessie, with the role DeveloperRead."""
    return client_of(page_data.reader)


@pytest.fixture
def stranger(page_data: PageData) -> Client:
    """Charles, without a role."""
    return client_of(page_data.stranger)


def htmx(target: str, **more: str) -> dict[str, Any]:
    """Return the headers of an htmx request for an element."""
    return {"headers": {"HX-Request": "true", "HX-Target": target, **more}}


def hidden_in(response: Any) -> dict[str, str]:
    """Return the hidden fields of a page, which a browser submits with the form."""
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"[^>]*>', response.content.decode())
    return {name: html.unescape(value) for name, value in fields}


def post_form(client: Client, address: str, values: dict[str, Any], **more: Any) -> Any:
    """Open the form at a URL and submit it with these values and its hidden fields."""
    return client.post(address, hidden_in(client.get(address)) | values, **more)


STATE_BADGES = (*MIRROR_BADGES.values(), mirror_badge("PENDING_STOPPED", "failover"), *LINK_BADGES.values())


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw each badge of each page anew, so that ``states_in_headlines`` finds it."""
    monkeypatch.setattr(badges, "_drawn", badges._drawn.__wrapped__)


def states_in_headlines(response: Any) -> set[str]:
    """Return the states of links and mirror topics that a page draws as badges, which are for health, and not as tags.

    Needs the fixture ``undrawn``.
    """
    rendered = zip(response.templates, response.context, strict=True)
    drawn = [context["badge"] for template, context in rendered if template.name == "parts/badge.html"]
    return {badge.code for badge in drawn if badge in STATE_BADGES}


def check(code: str, *, status: str = "PASSED", finding: str = "Fine.", fix: str = "", error_code: str = "") -> dict[str, str]:
    """Return a row of a connection test, as a worker replies with it."""
    return {"code": code, "status": status, "finding": finding, "fix": fix, "error_code": error_code}


Get = Callable[..., Any]
