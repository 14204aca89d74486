"""Beat's scheduler on a real Redis: it does not fill a queue without a worker, and reports that it is sending."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from celery import Celery
from celery.schedules import schedule

from console.queue import scheduler
from console.queue.scheduler import MOST_WAITING, SteadyScheduler
from console.redis import heartbeats, redis_client

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class Clock:
    """A system clock that a test sets. A class attribute, since beat stores copies of its schedule in a file."""

    now = START

    def __call__(self) -> datetime:
        return Clock.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(Clock, "now", START)
    return Clock


@pytest.fixture
def beat(settings: Any, redis_url: str, clock: type[Clock], tmp_path: Path) -> Iterator[SteadyScheduler]:
    """A scheduler with a task due every second and another due every hour."""
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/10"
    redis_client().flushdb()
    app = Celery(broker=settings.REDIS_URL)
    app.conf.task_default_queue = "control"
    due = {"often": 1, "hourly": 3600}
    app.conf.beat_schedule = {
        name: {"task": name, "schedule": schedule(every, nowfun=Clock(), app=app)} for name, every in due.items()
    }
    scheduler = SteadyScheduler(app, schedule_filename=str(tmp_path / "schedule"))
    for entry in scheduler.schedule.values():
        entry.last_run_at = clock.now
    yield scheduler
    scheduler.close()
    app.close()


def run(beat: SteadyScheduler, clock: type[Clock], *, seconds: int) -> int:
    """Advance the clock. Returns how many tasks were sent."""
    before = redis_client().llen("control")
    for _ in range(seconds):
        clock.now += timedelta(seconds=1)
        while beat.tick() == 0:
            pass
    return int(redis_client().llen("control")) - int(before)


def test_queue_without_a_worker_stays_short(beat: SteadyScheduler, clock: type[Clock]) -> None:
    redis_client().rpush("control", *(["message"] * MOST_WAITING))

    assert run(beat, clock, seconds=10) == 1
    redis_client().delete("control")
    assert run(beat, clock, seconds=10) >= 8


def test_scheduler_reports_repeatedly_since_when_it_sends(beat: SteadyScheduler, clock: type[Clock]) -> None:
    run(beat, clock, seconds=1)
    first = scheduler.sent_for_ms()
    time.sleep(0.05)
    beat._reported_s -= 60
    run(beat, clock, seconds=1)

    for before, after in zip(first.values(), scheduler.sent_for_ms().values(), strict=True):
        assert before is not None
        assert after is not None
        assert after > before


def test_clock_of_beat_that_differs_from_redis_is_named(beat: SteadyScheduler, clock: type[Clock]) -> None:
    with time_machine.travel(time.time() - 3600):  # beat's machine was set back
        run(beat, clock, seconds=1)

    ((process, ahead_ms),) = heartbeats.wrong_clocks().items()
    assert process == f"the beat on {socket.gethostname()}"
    assert ahead_ms == pytest.approx(-3_600_000, abs=30_000)
