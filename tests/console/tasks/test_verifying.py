"""Comparisons that nobody takes, or whose worker has died, whatever the clock has done since."""

from __future__ import annotations

import time
from datetime import timedelta
from threading import BoundedSemaphore
from typing import Any

import pytest

from console import store
from console.models import MirrorTopic, VerifyRun
from console.tasks import threads, verifying
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW

Sent = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def mirror(link: Any, own_redis: None) -> MirrorTopic:
    store.client().flushdb()
    when = {"state_since": NOW, "created_at": NOW}
    return MirrorTopic.objects.create(link=link, name="a", source_topic="a", state=MirrorState.ACTIVE, **when)


def queue(mirror: MirrorTopic) -> VerifyRun:
    return VerifyRun.objects.create(mirror=mirror, requested_by="test", requested_at=NOW)


def test_two_are_compared_at_a_time_and_who_waits_longest_is_next(mirror: MirrorTopic, sent: Sent) -> None:
    first, second, third = (queue(mirror) for _ in range(3))

    with store.hold(verifying.TURNS[0]), store.hold(verifying.TURNS[1]):
        verifying.verify_mirror(run_id=first.pk)
        verifying.look_after_runs(now=NOW + timedelta(minutes=1))
    assert (VerifyRun.objects.filter(status="QUEUED").count(), sent) == (3, [])
    with store.hold(verifying.TURNS[0]):
        verifying.verify_mirror(run_id=second.pk)
        verifying.verify_mirror(run_id=second.pk)
        verifying.look_after_runs(now=NOW + timedelta(minutes=1))

    assert [one.status for one in VerifyRun.objects.order_by("pk")] == ["QUEUED", "ERROR", "QUEUED"]  # there is no such topic
    waiting = [("verify_mirror", {"run_id": one.pk}) for one in (first, third)]
    assert sent == [*waiting, waiting[0]]  # when one has ended as many as there are turns, then as many as are free


def test_a_comparison_waits_for_a_thread_that_others_do_not_need(
    mirror: MirrorTopic, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = queue(mirror)
    monkeypatch.setattr(threads, "_free", BoundedSemaphore(1))

    with threads.for_long():
        verifying.verify_mirror(run_id=run.pk)
        run.refresh_from_db()
        assert run.status == "QUEUED"
    verifying.verify_mirror(run_id=run.pk)
    run.refresh_from_db()
    assert run.status == "ERROR"


@pytest.mark.parametrize(
    "dated", [NOW - timedelta(hours=1), NOW + timedelta(hours=1)], ids=["long ago", "before a clock was set back"]
)
def test_what_nobody_takes_is_sent_again_and_what_was_left_behind_is_closed(
    mirror: MirrorTopic, sent: Sent, dated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.05)
    common = {"mirror": mirror, "requested_by": "test", "requested_at": dated}
    queued = VerifyRun.objects.create(**common)
    left = VerifyRun.objects.create(**common, started_at=dated, status=VerifyRun.Status.RUNNING)

    verifying.look_after_runs(now=NOW)
    left.refresh_from_db()
    assert left.status == VerifyRun.Status.RUNNING  # Redis may have lost the hold just now
    time.sleep(0.1)
    verifying.look_after_runs(now=NOW)

    left.refresh_from_db()
    assert sent == [("verify_mirror", {"run_id": queued.pk})]
    assert left.status == VerifyRun.Status.ERROR
