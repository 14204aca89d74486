"""Sending tasks to the work queue, with a real Redis and without."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
import structlog
from celery import Celery
from django.db import transaction

from console.errors import UnavailableError
from console.queue import dispatch
from console.queue.dispatch import replying
from console.redis import heartbeats as redis_health
from console.redis import redis_client
from devcluster.ports import free_port
from linkengine.domain.errors import ErrorCode, LinkEngineError


@pytest.fixture
def own_redis(settings: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """A queue of this test only, without a worker."""
    app = _use(settings, redis_url.rsplit("/", 1)[0] + "/5", monkeypatch)
    redis_client().flushdb()
    yield app
    redis_client().flushdb()


@pytest.fixture
def no_redis(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _use(settings, f"redis://127.0.0.1:{free_port()}/0", monkeypatch)


def _use(settings: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> Celery:
    settings.REDIS_URL = url
    app = Celery("own")
    app.config_from_object("django.conf:settings", namespace="CELERY")
    app.conf.update(broker_url=url)
    monkeypatch.setattr(dispatch, "app", app)
    monkeypatch.setattr(dispatch._Queue, "unsent_until_s", 0.0)
    return app


def queued() -> list[dict[str, Any]]:
    found: Any = redis_client().lrange("control", 0, -1)
    return [json.loads(text) for text in found]


@pytest.mark.django_db(transaction=True)
def test_task_is_sent_only_after_the_commit(own_redis: Celery) -> None:
    with transaction.atomic():
        dispatch.send("reconcile_link", link_id=1)
        assert queued() == []

    (message,) = queued()
    assert message["headers"]["task"] == "reconcile_link"
    assert message["headers"]["expires"] is not None


@pytest.mark.django_db(transaction=True)
def test_outage_of_redis_does_not_roll_back_the_transaction(no_redis: None) -> None:
    with transaction.atomic():
        dispatch.send("reconcile_link", link_id=1)


@pytest.mark.django_db(transaction=True)
def test_hanging_redis_delays_a_request_only_once(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # like a frozen Redis: it only accepts connections
        _use(settings, f"redis://127.0.0.1:{silent.getsockname()[1]}/0", monkeypatch)
        began = time.monotonic()
        with transaction.atomic():
            for number in range(40):
                dispatch.send("reconcile_link", link_id=number)

    assert time.monotonic() - began < 60  # otherwise two hundred seconds


@pytest.mark.django_db(transaction=True)
def test_sending_resumes_a_moment_after_an_outage(own_redis: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch._Queue, "unsent_until_s", time.monotonic() + 60)
    dispatch.send("reconcile_link", link_id=1)
    assert queued() == []

    monkeypatch.setattr(dispatch._Queue, "unsent_until_s", time.monotonic())
    dispatch.send("reconcile_link", link_id=1)
    assert len(queued()) == 1


@pytest.mark.django_db(transaction=True)
def test_error_while_sending_does_not_fail_a_committed_request(own_redis: Celery) -> None:
    with structlog.testing.capture_logs() as logs, transaction.atomic():
        dispatch.send("reconcile_link", link_id=object())  # any error after the commit

    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["dispatch.failed"]


def test_lost_reply_is_reported_as_an_unknown_outcome(
    own_redis: Celery, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, url = own_redis.send_task, settings.REDIS_URL

    def send_and_lose_redis(*args: Any, **kwargs: Any) -> None:
        send(*args, **kwargs)
        settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"

    monkeypatch.setattr(own_redis, "send_task", send_and_lose_redis)
    with pytest.raises(UnavailableError, match="the outcome of the request is unknown") as caught:
        dispatch.call("check_link", timeout_s=1)
    settings.REDIS_URL = url
    assert caught.value.code == "QUEUE_UNAVAILABLE"
    assert len(queued()) == 1  # a worker may run it until it expires


def test_call_reports_an_outage_of_redis(no_redis: None) -> None:
    with pytest.raises(UnavailableError, match="Redis does not respond") as caught:
        dispatch.call("check_link", timeout_s=1)
    assert caught.value.code == "QUEUE_UNAVAILABLE"


def test_missing_worker_and_slow_worker_have_different_errors(own_redis: Celery) -> None:
    with pytest.raises(UnavailableError, match="Start the Celery worker"):
        dispatch.call("check_link", timeout_s=0.1)

    redis_health.note_worker()
    with pytest.raises(UnavailableError, match=r"did not finish check_link within 0\.1 seconds"):
        dispatch.call("check_link", timeout_s=0.1)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [(LinkEngineError(ErrorCode.TIMEOUT_ERROR, "Why."), ErrorCode.TIMEOUT_ERROR), (ValueError("x"), ErrorCode.INTERNAL_ERROR)],
)
def test_error_of_the_engine_is_returned_to_the_caller(outcome: Exception, code: ErrorCode, own_redis: Celery) -> None:
    def work(**_: Any) -> None:
        raise outcome

    thread = Thread(target=_serve, args=(work,))
    thread.start()
    with pytest.raises(LinkEngineError) as caught:
        dispatch.call("some_task", timeout_s=60)
    thread.join(60)
    assert caught.value.code == code
    assert "x" not in caught.value.message.split()


def test_result_is_returned_to_the_caller(own_redis: Celery) -> None:
    thread = Thread(target=_serve, args=(lambda *, number: number + 1,))
    thread.start()
    assert dispatch.call("some_task", timeout_s=60, number=1) == 2
    thread.join(60)


def _serve(work: Any) -> None:
    """Act as a worker for a single message."""
    _, text = redis_client().blpop(["control"], timeout=0.9) or (None, "")
    _, kwargs, _ = json.loads(base64.b64decode(json.loads(text)["body"]))
    replying(work)(**kwargs)
