"""How many threads of a worker copy workers and comparisons may take: each keeps one for hours.

A failover must find one, so some are kept for everything else. A message that finds none left for its kind is done with at once
and nothing is taken: it is sent again, perhaps to another worker, as if it had been lost on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Any

from celery.signals import celeryd_after_setup

MOST_KEPT = 16  # for everything else
_room: BoundedSemaphore | None = None  # None: no worker, so nobody else needs a thread


def threads_for_long(threads: int) -> int:
    """Answer how many of a worker's threads what takes long may have, out of those it has."""
    return threads - min(MOST_KEPT, threads // 4)


@contextmanager
def for_long() -> Iterator[bool]:
    """Take long inside; tells whether there is a thread for that. If not, leave everything as it is."""
    room = _room
    free = room is None or room.acquire(blocking=False)
    try:
        yield free
    finally:
        if room is not None and free:
            room.release()


@celeryd_after_setup.connect
def _measure(instance: Any, **_: Any) -> None:
    """Look how many threads the worker has; one that takes nothing else needs none for it."""
    global _room  # noqa: PLW0603 - a process is one worker
    others = set(instance.app.amqp.queues.consume_from) - {"spark"}
    _room = BoundedSemaphore(threads_for_long(instance.concurrency) if others else instance.concurrency)
