"""The product's beat on a real Redis: it goes on when its clock is set back, and does not fill a queue that nobody empties."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.schedules import schedule

from console import scheduled, store
from console.beat import MOST_WAITING, SteadyScheduler

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class Clock:
    """A system clock that a test sets. Of the class, since the beat keeps copies of its schedule in a file."""

    now = START

    def __call__(self) -> datetime:
        return Clock.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(Clock, "now", START)
    return Clock


@pytest.fixture
def beat(settings: Any, redis_url: str, clock: type[Clock], tmp_path: Path) -> Iterator[SteadyScheduler]:
    """A beat with a task due every second and one due every hour."""
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/10"
    store.client().flushdb()
    app = Celery(broker=settings.REDIS_URL)
    app.conf.task_default_queue = "control"
    due = {"often": 1, "hourly": 3600}
    app.conf.beat_schedule = {
        name: {"task": name, "schedule": schedule(every, nowfun=Clock(), app=app)} for name, every in due.items()
    }
    one = SteadyScheduler(app, schedule_filename=str(tmp_path / "schedule"))
    for entry in one.schedule.values():
        entry.last_run_at = clock.now
    yield one
    one.close()
    app.close()


def run(beat: SteadyScheduler, clock: type[Clock], *, seconds: int) -> int:
    """Let time pass; answer how many tasks were sent."""
    before = store.client().llen("control")
    for _ in range(seconds):
        clock.now += timedelta(seconds=1)
        while beat.tick() == 0:
            pass
    return int(store.client().llen("control")) - int(before)  # type: ignore[arg-type]


def test_it_goes_on_when_the_clock_is_set_back(beat: SteadyScheduler, clock: type[Clock]) -> None:
    assert run(beat, clock, seconds=10) >= 8

    clock.now -= timedelta(hours=2)

    assert run(beat, clock, seconds=10) >= 8
    assert run(beat, clock, seconds=3600) > 0
    assert store.client().llen("control") <= MOST_WAITING + 1


def test_so_it_does_after_a_restart(beat: SteadyScheduler, clock: type[Clock]) -> None:
    """The file remembers when each task was sent last."""
    run(beat, clock, seconds=3)
    clock.now -= timedelta(hours=2)
    beat.close()

    beat.setup_schedule()

    assert run(beat, clock, seconds=10) >= 8


def test_a_queue_that_nobody_empties_stays_short(beat: SteadyScheduler, clock: type[Clock]) -> None:
    store.client().rpush("control", *(["message"] * MOST_WAITING))

    assert run(beat, clock, seconds=10) == 1
    store.client().delete("control")
    assert run(beat, clock, seconds=10) >= 8


def test_it_tells_since_when_it_sends_and_goes_on_telling(beat: SteadyScheduler, clock: type[Clock]) -> None:
    run(beat, clock, seconds=1)
    first = scheduled.sent_for_ms()
    time.sleep(0.05)
    beat._reported_s -= 60
    run(beat, clock, seconds=1)

    assert all(after > before for before, after in zip(first.values(), scheduled.sent_for_ms().values(), strict=True))
