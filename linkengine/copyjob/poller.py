"""An epoll loop step: waits until sockets are ready and calls their handlers."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Protocol


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
