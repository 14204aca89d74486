"""Runs blocking work in threads and returns the results to the loop as events; an eventfd wakes the loop.

Everything that may block (DNS, connecting, TLS, tokens, metadata, reading a log end) runs here, so that a silent broker
never stalls the others. Each link has a few threads of its own: if the clusters of a link do not respond, all its threads
are blocked, and those of other links are not.

``Poller`` is a step of the epoll loop: it waits until sockets are ready and calls their handlers.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Protocol, TypeVar

from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.connection import Connection

T = TypeVar("T")
Event = Callable[[], None]

Guard = Callable[[Event], None]  # runs an event and confines what it raises to its link

# per link, mostly blocked in sockets: a frozen broker may hold two or three of them for some seconds, and connections to
# distant brokers are opened sixteen at a time
THREADS = 24


class Background:
    """The queue of events for the loop's thread."""

    def __init__(self) -> None:
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        self._lock = Lock()  # after closing, the descriptor's number may be reused by another file

    def fileno(self) -> int:
        """Return the descriptor that is readable while events wait."""
        return self._wake

    def post(self, event: Event) -> None:
        """Queue an event for the loop; can be called from any thread."""
        self._events.put(event)
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._wake, 1)

    def run_events(self) -> None:
        """Run the queued events; called by the loop."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            event()

    def close(self) -> None:
        """Stop waking the loop; events that are posted from now on are ignored."""
        with self._lock:
            self._closed = True
            os.close(self._wake)


class LinkThreads:
    """The threads of a link. Its events run under ``guard``, and are dropped once it is closed."""

    def __init__(self, background: Background, *, guard: Guard) -> None:
        self._background, self._guard = background, guard
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="copy-background")
        self._lock, self._closed = Lock(), False
        self._opened: set[Connection] = set()  # opened in a thread, not yet handed to the loop

    def submit(self, job: Callable[[], T], *, done: Callable[[T], None], failed: Callable[[LinkEngineError], None]) -> None:
        """Run ``job`` in a thread, then ``done`` or ``failed`` in the loop.

        ``failed`` gets a LinkEngineError. Any other error is raised in the loop, under ``guard``.
        """

        def run() -> None:
            try:
                result = job()
            except LinkEngineError as error:
                anticipated = error  # the name of an except clause does not outlive it
                self._post(lambda: failed(anticipated))
            except BaseException as error:  # noqa: BLE001 - raised in the loop's thread instead
                bug = error
                self._post(lambda: _raise(bug))
            else:
                if isinstance(result, Connection):
                    self._keep(result)
                self._post(lambda: done(result), result=result)

        with suppress(RuntimeError):  # closed: its result is not needed
            self._threads.submit(copy_context().run, run)  # the context, so that its log lines name the link, too

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


class Watched(Protocol):
    """An object with a file descriptor."""

    def fileno(self) -> int: ...


Handler = Callable[[bool, bool], None]  # (readable, writable)


class Poller:
    """Level-triggered epoll: a socket with data left, or with buffer space left, is reported again."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._masks: dict[int, int] = {}

    def watch(self, watched: Watched, handler: Handler, *, read: bool = True, write: bool = False) -> None:
        """Call ``handler`` when ``watched`` is ready; call again to change handler or events."""
        descriptor, mask = watched.fileno(), _mask(read=read, write=write)
        known = self._masks.get(descriptor)
        if known is None:
            self._epoll.register(descriptor, mask)
        elif known != mask:
            self._epoll.modify(descriptor, mask)
        self._masks[descriptor] = mask
        self._handlers[descriptor] = handler

    def forget(self, watched: Watched) -> None:
        """Stop watching. To be called before the socket is closed."""
        descriptor = watched.fileno()
        if self._masks.pop(descriptor, None) is not None:
            self._handlers.pop(descriptor, None)
            self._epoll.unregister(descriptor)

    def wait(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` seconds, then call the handlers of ready sockets."""
        for descriptor, events in self._epoll.poll(max(0.0, timeout_s)):
            handler = self._handlers.get(descriptor)  # None: an earlier handler has closed it
            if handler is not None:
                handler(bool(events & ~select.EPOLLOUT), bool(events & (select.EPOLLOUT | select.EPOLLERR)))

    def close(self) -> None:
        """Close the epoll descriptor, not the sockets."""
        self._epoll.close()


class GuardedPoller:
    """The poller of a link: ``guard`` runs its handlers, so that their exceptions concern that link only."""

    def __init__(self, poller: Poller, *, guard: Callable[[Callable[[], None]], None]) -> None:
        self._poller, self._guard = poller, guard

    def watch(self, watched: Watched, handler: Handler, *, read: bool = True, write: bool = False) -> None:
        """Watch as ``Poller.watch`` does, with a guarded handler."""

        def guarded(readable: bool, writable: bool) -> None:  # noqa: FBT001 - the poller's order
            self._guard(lambda: handler(readable, writable))

        self._poller.watch(watched, guarded, read=read, write=write)

    def forget(self, watched: Watched) -> None:
        """Stop watching as ``Poller.forget`` does."""
        self._poller.forget(watched)


def _mask(*, read: bool, write: bool) -> int:
    return (select.EPOLLIN if read else 0) | (select.EPOLLOUT if write else 0)
