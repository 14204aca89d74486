"""One request id from the HTTP request to the last log line; with JSON logging every line of a process is JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from celery import Celery
from django.contrib.sessions.models import Session
from django.utils import timezone

from console.celery import _bind_ids, _forget_ids
from console.config.logging import current_request_id
from console.errors import UnavailableError
from console.queue import dispatch
from console.redis import redis_client
from console.tasks.links import forget_old_rows, reconcile
from devcluster.ports import LOOPBACK, free_port
from devcluster.processes import Process

ROOT = Path(__file__).resolve().parents[3]
REQUEST_ID = "request-of-a-page"


@pytest.fixture(autouse=True)
def no_ids() -> Iterator[None]:
    structlog.contextvars.clear_contextvars()
    yield
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def queue(settings: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/10"
    redis_client().flushdb()
    with Celery("own", set_as_current=False) as app:
        app.config_from_object("django.conf:settings", namespace="CELERY")
        app.conf.update(broker_url=settings.REDIS_URL)
        monkeypatch.setattr(dispatch, "app", app)
        yield
    redis_client().flushdb()


@pytest.mark.timeout(120)
def test_web_process_logs_json_with_the_request_id_in_the_access_log(tmp_path: Path) -> None:
    port = free_port()
    env = {"CLUSTERLINK_LOG_JSON": "true", "CLUSTERLINK_DATABASE_URL": f"sqlite:///{tmp_path}/web.sqlite3"}
    command = [sys.executable, "-m", "uvicorn", "console.asgi:application", "--host", LOOPBACK, "--port", str(port)]
    web = Process(command, name="web", log=tmp_path / "web.log", env=env, cwd=ROOT)
    try:
        with httpx.Client(base_url=f"http://{LOOPBACK}:{port}") as client:
            web.wait_until(lambda: is_up(client), timeout_s=90)
            response = client.get("/healthz", headers={"X-Request-ID": REQUEST_ID})
            replaced = client.get("/healthz", headers={"X-Request-ID": "not a\tvalid id"})
    finally:
        web.stop()

    assert response.headers["X-Request-ID"] == REQUEST_ID
    assert len(replaced.headers["X-Request-ID"]) == 32
    lines = [json.loads(line) for line in web.log.read_text().splitlines()]
    access = [line for line in lines if line["logger"] == "uvicorn.access"]
    assert [line["request_id"] for line in access[-2:]] == [REQUEST_ID, replaced.headers["X-Request-ID"]]
    assert "GET /healthz" in access[-1]["event"]
    assert any(line["logger"] == "uvicorn.error" and "Uvicorn running" in line["event"] for line in lines)


def is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.django_db(transaction=True)
def test_sent_tasks_carry_the_id_of_their_request(queue: None) -> None:
    structlog.contextvars.bind_contextvars(request_id=REQUEST_ID)
    dispatch.send("reconcile_link", link_id=1)
    with pytest.raises(UnavailableError):
        dispatch.call("query_cluster", timeout_s=0.01)
    structlog.contextvars.clear_contextvars()
    dispatch.send("reconcile_link", link_id=1)

    found: Any = redis_client().lrange("control", 0, -1)
    assert [json.loads(text)["headers"].get("request_id") for text in found] == [None, REQUEST_ID, REQUEST_ID]


def test_task_without_a_request_uses_its_own_id() -> None:
    _bind_ids(task=reconcile, task_id="the-task")  # without a header of a request
    assert current_request_id() == "the-task"

    _forget_ids()
    assert current_request_id() == ""


@pytest.mark.django_db
def test_expired_sessions_are_cleared(queue: None) -> None:
    now = timezone.now()
    for name, lives_s in (("old", -1), ("young", 60)):
        Session.objects.create(session_key=name, session_data="", expire_date=now + timedelta(seconds=lives_s))

    forget_old_rows()

    assert [session.session_key for session in Session.objects.all()] == ["young"]
