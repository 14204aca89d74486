"""The scheduler of Celery beat: continues after a clock was set back, and stops sending while no worker takes messages.

Celery's scheduler sends an entry when its last run is an interval ago. After a clock was set back by an hour that is an hour
later, even after a restart, since it stores the times in a file.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis
import structlog
from celery.beat import PersistentScheduler, ScheduleEntry
from celery.utils.time import maybe_make_aware

from console.queue import schedule_health
from console.redis.client import redis_client
from linkengine.domain.moments import AHEAD_MS

MOST_WAITING = 500  # messages; without a worker a night would leave 30,000, each of which the next worker has to read
REPORT_S = 30.0
_AHEAD = timedelta(milliseconds=AHEAD_MS)
_log = structlog.get_logger(__name__)


class SteadyScheduler(PersistentScheduler):
    """Celery's scheduler without two ways to stall. It reports that it is sending."""

    _reported_s = -REPORT_S  # monotonic
    schedule_filename: str  # of Celery's class, which has no type hints

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due. Returns the seconds until the next call."""
        self._report()
        Path(f"{self.schedule_filename}.alive").touch()  # for the health check of the container
        ahead = [entry for entry in self.schedule.values() if _is_ahead(entry)]
        for entry in ahead:
            _log.warning("beat.clock_was_set_back", entry=entry.name)
            entry.last_run_at = entry.default_now()
        if ahead:
            self._heap = None  # its times are of the clock before the change
        wait_s: float = super().tick(*args, **kwargs)
        return wait_s

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send a task, unless the queue is so long that the message would expire in it."""
        if _is_jammed(self.app.conf.task_default_queue):
            _log.warning("beat.queue_is_full", entry=entry.name)
            return
        super().apply_entry(entry, producer=producer)

    def _report(self) -> None:
        if time.monotonic() - self._reported_s < REPORT_S:
            return
        with suppress(redis.RedisError):  # retried with the next tick
            schedule_health.note_sending()
            self._reported_s = time.monotonic()


def _is_ahead(entry: ScheduleEntry) -> bool:
    if entry.last_run_at is None:
        return False
    return bool(maybe_make_aware(entry.last_run_at) > maybe_make_aware(entry.default_now()) + _AHEAD)


def _is_jammed(queue: str) -> bool:
    try:
        return int(redis_client().llen(queue)) > MOST_WAITING
    except redis.RedisError:  # Celery tries to send and logs the error
        return False
