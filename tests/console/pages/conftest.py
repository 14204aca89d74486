"""The scene of the browser tests, clients for its people, and a work queue that only notes what it was asked."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from console import dispatch
from tests.browser.scene import WEST, Scene, make_scene


@dataclass
class Queue:
    """Stands where Redis and the worker are; ``answer`` is what a call gets, or the error it raises."""

    sent: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    answer: Any = None

    def send(self, task_name: str, **_kwargs: Any) -> None:
        self.sent.append(task_name)

    def call(self, task_name: str, **_kwargs: Any) -> Any:
        self.called.append(task_name)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    stand_in = Queue(answer={"cluster_id": WEST, "brokers": 3, "kafka_version": "4.3.1", "authorizer": True})
    monkeypatch.setattr(dispatch, "send", stand_in.send)
    monkeypatch.setattr(dispatch, "call", stand_in.call)
    return stand_in


@pytest.fixture
def scene(db: None) -> Scene:
    return make_scene()


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def admin(scene: Scene) -> Client:
    """Amelia, who administers the organization."""
    return client_of(scene.admin)


@pytest.fixture
def reader(scene: Scene) -> Client:
    """Bessie, who may look."""
    return client_of(scene.reader)


@pytest.fixture
def stranger(scene: Scene) -> Client:
    """Charles, who has no role."""
    return client_of(scene.stranger)


def htmx(target: str, **more: str) -> dict[str, Any]:
    """The headers with which htmx asks for the content of an element."""
    return {"headers": {"HX-Request": "true", "HX-Target": target, **more}}


def hidden_in(answer: Any) -> dict[str, str]:
    """Answer the hidden fields of a page's form, which a browser sends along."""
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', answer.content.decode())
    return {name: html.unescape(value) for name, value in fields}


def post_form(client: Client, address: str, values: dict[str, Any], **more: Any) -> Any:
    """Open the form at an address and send it with these values, as a browser does."""
    return client.post(address, hidden_in(client.get(address)) | values, **more)


Get = Callable[..., Any]
