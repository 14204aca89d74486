"""Blocking work beside the loop: threads whose results come back as events, and the wake-up that tells the loop.

Whatever may wait (names, connecting, TLS, tokens, metadata, reading a log's end) runs here, so that one silent broker never
stalls the others. Each link has a room of its own, with a few threads: those of a link whose clusters answer nothing are all
asleep, and those of other links are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TypeVar

from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.connection import Connection

T = TypeVar("T")
Event = Callable[[], None]

Guard = Callable[[Event], None]  # runs an event; what it raises concerns one link

# of one link, mostly asleep in sockets: a frozen broker may hold two or three of them for some seconds, and connections to
# distant brokers are opened sixteen at a time
THREADS = 24


class Background:
    """Events on their way to the loop's thread."""

    def __init__(self) -> None:
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        self._lock = Lock()  # a closed descriptor's number may soon belong to somebody else

    def fileno(self) -> int:
        """Readable when events wait."""
        return self._wake

    def post(self, event: Event) -> None:
        """Hand an event to the loop, from any thread."""
        self._events.put(event)
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._wake, 1)

    def run_events(self) -> None:
        """Run what has arrived; the loop calls it."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            event()

    def close(self) -> None:
        """Wake nobody any more; what is posted from now on goes nowhere."""
        with self._lock:
            self._closed = True
            os.close(self._wake)


class Room:
    """The threads of one link. Its events run under ``guard``, and not at all once it is closed."""

    def __init__(self, background: Background, *, guard: Guard) -> None:
        self._background, self._guard = background, guard
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="copy-background")
        self._lock, self._closed = Lock(), False
        self._opened: set[Connection] = set()  # opened in a thread, not yet taken over by the loop

    def submit(self, job: Callable[[], T], *, done: Callable[[T], None], failed: Callable[[LinkEngineError], None]) -> None:
        """Run ``job`` in a thread, then ``done`` or ``failed`` in the loop. Any other error is raised in the loop, under
        guard.
        """

        def run() -> None:
            try:
                result = job()
            except LinkEngineError as error:
                anticipated = error  # the name of an except clause does not outlive it
                self._post(lambda: failed(anticipated))
            except BaseException as error:  # noqa: BLE001 - carried over to the loop's thread and raised there
                bug = error
                self._post(lambda: _raise(bug))
            else:
                if isinstance(result, Connection):
                    self._keep(result)
                self._post(lambda: done(result), result=result)

        with suppress(RuntimeError):  # closed: nobody waits for it
            self._threads.submit(copy_context().run, run)  # its log lines name the link, too

    def close(self) -> None:
        """Stop taking work and close connections that the loop has not taken over; other results are dropped."""
        with self._lock:
            self._closed = True
            opened, self._opened = self._opened, set()
        for connection in opened:
            connection.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._opened.add(connection)
                return
        connection.close()

    def _post(self, event: Event, *, result: object = None) -> None:
        def run() -> None:
            if not self._closed:
                if isinstance(result, Connection):
                    self._opened.discard(result)
                self._guard(event)

        self._background.post(run)


def _raise(error: BaseException) -> None:
    raise error
