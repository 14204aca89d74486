"""Verification runs that no worker takes, or whose worker has crashed."""

from __future__ import annotations

import time
from datetime import timedelta
from threading import BoundedSemaphore
from typing import Any

import pytest
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.testing import capture_logs

from console import celery
from console.actors import ENGINE, Actor
from console.celery import for_long
from console.models import MirrorTopic, VerifyRun
from console.reconciling import plans
from console.redis import locks, redis_client
from console.tasks.mirrors import SLOTS, continue_runs, verify_mirror
from console.verification.actions import start_verify
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW

Sent = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def mirror(link: Any, own_redis: None) -> MirrorTopic:
    redis_client().flushdb()
    when = {"state_since": NOW, "created_at": NOW}
    return MirrorTopic.objects.create(link=link, name="a", source_topic="a", state=MirrorState.ACTIVE, **when)


def queue(mirror: MirrorTopic) -> VerifyRun:
    return VerifyRun.objects.create(mirror=mirror, requested_by="test", requested_at=NOW)


def test_two_runs_are_compared_at_a_time_and_the_oldest_is_next(mirror: MirrorTopic, sent: Sent) -> None:
    first, second, third = (queue(mirror) for _ in range(3))

    with locks.lock(SLOTS[0]), locks.lock(SLOTS[1]):
        verify_mirror(run_id=first.pk)
        continue_runs(now=NOW + timedelta(minutes=1))
    assert (VerifyRun.objects.filter(status="QUEUED").count(), sent) == (3, [])
    with locks.lock(SLOTS[0]):
        verify_mirror(run_id=second.pk)
        verify_mirror(run_id=second.pk)
        continue_runs(now=NOW + timedelta(minutes=1))

    assert [run.status for run in VerifyRun.objects.order_by("pk")] == ["QUEUED", "ERROR", "QUEUED"]  # the topic does not exist
    waiting = [("verify_mirror", {"run_id": run.pk}) for run in (first, third)]
    assert sent == [*waiting, waiting[0]]  # at the end of a run as many as there are turns, later as many as are free


@pytest.mark.parametrize(("actor", "expected"), [("owner", "request-1"), ("engine", "reconcile-pass")])
def test_log_lines_of_a_run_have_the_id_of_its_request_whichever_message_starts_it(
    mirror: MirrorTopic, sent: Sent, owner: Actor, actor: str, expected: str
) -> None:
    """The reconciler sends queued runs again. A run without a request has the id of the task that starts it."""
    run = start_verify(mirror=mirror, by=owner if actor == "owner" else ENGINE, now=NOW)

    with bound_contextvars(request_id="reconcile-pass"), capture_logs(processors=[merge_contextvars]) as lines:
        verify_mirror(run_id=run.pk)

    run.refresh_from_db()
    assert run.status == "ERROR"  # the topic does not exist
    ids = [(line["event"], line["request_id"]) for line in lines if line["event"].startswith("verify.")]
    assert ids == [("verify.source_end_unknown", expected)]


def test_a_plan_has_the_id_of_the_request_that_it_is_made_for(mirror: MirrorTopic) -> None:
    with bound_contextvars(request_id="request-of-a-page"):
        assert plans.verify_of(mirror).request_id == "request-of-a-page"


def test_verification_waits_for_a_thread_for_long_work(
    mirror: MirrorTopic, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = queue(mirror)
    monkeypatch.setattr(celery, "_free", BoundedSemaphore(1))

    with for_long():
        verify_mirror(run_id=run.pk)
        run.refresh_from_db()
        assert run.status == "QUEUED"
    verify_mirror(run_id=run.pk)
    run.refresh_from_db()
    assert run.status == "ERROR"


def test_queued_run_is_sent_again_and_an_abandoned_run_is_ended(
    mirror: MirrorTopic, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LOCK_TTL_S", 0.05)
    dated = NOW - timedelta(hours=1)
    common = {"mirror": mirror, "requested_by": "test", "requested_at": dated}
    queued = VerifyRun.objects.create(**common)
    left = VerifyRun.objects.create(**common, started_at=dated, status=VerifyRun.Status.RUNNING)

    continue_runs(now=NOW)
    left.refresh_from_db()
    assert left.status == VerifyRun.Status.RUNNING  # Redis may just have lost the lock
    time.sleep(0.1)
    continue_runs(now=NOW)

    left.refresh_from_db()
    assert sent == [("verify_mirror", {"run_id": queued.pk})]
    assert left.status == VerifyRun.Status.ERROR
