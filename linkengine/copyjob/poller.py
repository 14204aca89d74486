"""Waits until sockets are ready and calls their owners. Must not know what goes over them."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Protocol


class Watched(Protocol):
    """Anything with a file descriptor."""

    def fileno(self) -> int: ...


Handler = Callable[[bool, bool], None]  # (readable, writable)


class Poller:
    """epoll, level triggered: what was not read or written now is reported again."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._masks: dict[int, int] = {}

    def watch(self, watched: Watched, handler: Handler, *, read: bool = True, write: bool = False) -> None:
        """Call ``handler`` when ``one`` is ready; repeat to change what is watched."""
        descriptor, mask = watched.fileno(), _mask(read=read, write=write)
        known = self._masks.get(descriptor)
        if known is None:
            self._epoll.register(descriptor, mask)
        elif known != mask:
            self._epoll.modify(descriptor, mask)
        self._masks[descriptor] = mask
        self._handlers[descriptor] = handler

    def forget(self, watched: Watched) -> None:
        """Stop watching; to be called before the socket is closed."""
        descriptor = watched.fileno()
        if self._masks.pop(descriptor, None) is not None:
            self._handlers.pop(descriptor, None)
            self._epoll.unregister(descriptor)

    def wait(self, timeout_s: float) -> None:
        """Wait for at most ``timeout_s`` and call the handlers of what is ready."""
        for descriptor, events in self._epoll.poll(max(0.0, timeout_s)):
            handler = self._handlers.get(descriptor)  # an earlier handler may have closed it
            if handler is not None:
                handler(bool(events & ~select.EPOLLOUT), bool(events & (select.EPOLLOUT | select.EPOLLERR)))

    def close(self) -> None:
        """Close the selector, not the sockets."""
        self._epoll.close()


class GuardedPoller:
    """A poller as one link sees it: what its handlers raise concerns that link alone."""

    def __init__(self, poller: Poller, *, guard: Callable[[Callable[[], None]], None]) -> None:
        self._poller, self._guard = poller, guard

    def watch(self, watched: Watched, handler: Handler, *, read: bool = True, write: bool = False) -> None:
        """Do as ``Poller.watch`` does."""

        def guarded(readable: bool, writable: bool) -> None:  # noqa: FBT001 - the poller's order
            self._guard(lambda: handler(readable, writable))

        self._poller.watch(watched, guarded, read=read, write=write)

    def forget(self, watched: Watched) -> None:
        """Do as ``Poller.forget`` does."""
        self._poller.forget(watched)


def _mask(*, read: bool, write: bool) -> int:
    return (select.EPOLLIN if read else 0) | (select.EPOLLOUT if write else 0)
