"""Django's PostgreSQL backend, with connections that outlive a request or a task, and with times loaded in C.

Under ASGI each request has a thread of its own, and Django closes the thread's connection at its end; ``CONN_MAX_AGE`` keeps
connections for a thread only. A new PostgreSQL process has read no catalog yet, so it needs longer for the queries of a page
than the page for everything else. Here a connection that Django closes is kept for other threads of the process.

Django's pool (``psycopg_pool``) is not used: its check of a connection waits for a database that hangs, and a request waits for
the pool instead of failing with the error of the database. Here a kept connection has ``RESPONSE_S`` to respond; otherwise a
new connection is opened, with its timeouts and its error.

PostgreSQL compiles a query to machine code (``jit``) if its estimated cost is high, as it is for lists of thousands of topics.
That takes longer than such a query itself, and is repeated for each query, so it is turned off.
"""

from __future__ import annotations

import os
import select
import time
from datetime import UTC, datetime
from threading import Lock
from typing import Any, NamedTuple

import psycopg
from django.db.backends.postgresql import base
from psycopg.abc import AdaptContext, Buffer
from psycopg.pq import ExecStatus, Format, TransactionStatus

MOST_KEPT = 8  # per process; more requests at a time open more connections and close them
KEPT_S = 30.0  # a connection that was not used for so long is closed: it might lead to a former primary
RESPONSE_S = 1.0
TIMESTAMPTZ = psycopg.adapters.types["timestamptz"].oid
_IN_C: Any = psycopg.adapters.get_loader(TIMESTAMPTZ, Format.TEXT)


class TimeLoader(psycopg.adapt.Loader):
    """Loads times with psycopg's loader in C. Django's is a class in Python that sets the time zone, which is UTC anyway."""

    timezone = UTC  # Django registers its own loader if this is not the time zone of the connection

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._in_c = _IN_C(oid, context)

    def load(self, data: Buffer) -> datetime:
        """Return a time in UTC."""
        found: datetime = self._in_c.load(data)
        return found


class _Kept(NamedTuple):
    connection: psycopg.Connection[Any]
    database: tuple[object, ...]
    until: float  # monotonic seconds


_kept: list[_Kept] = []  # last used last
_lock = Lock()
os.register_at_fork(after_in_child=_kept.clear)  # they are the parent's


class DatabaseWrapper(base.DatabaseWrapper):
    """Takes a kept connection to the same database if there is one, and keeps connections that are closed."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> psycopg.Connection[Any]:
        """Return a kept connection that responds, otherwise a new one."""
        while (kept := _take(self._database)) is not None:
            if _is_usable(kept):
                self.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                return kept
            kept.close()
        connection: psycopg.Connection[Any] = super().get_new_connection(conn_params)
        connection.adapters.register_loader(TIMESTAMPTZ, TimeLoader)
        connection.pgconn.exec_(b"SET jit = off")  # by libpq: psycopg would begin a transaction
        return connection

    def close_pool(self) -> None:
        """Close the kept connections: the test database is about to be copied or deleted."""
        while (kept := _take(self._database)) is not None:
            kept.close()

    @property
    def _database(self) -> tuple[object, ...]:
        return tuple(self.settings_dict[name] for name in ("HOST", "PORT", "USER", "NAME"))

    def _close(self) -> None:
        connection = self.connection
        is_clean = connection is not None and not (self.in_atomic_block or self.errors_occurred)
        if is_clean and connection.info.transaction_status == TransactionStatus.IDLE:
            _keep(connection, self._database)
        else:
            super()._close()  # type: ignore[misc] # private, as in Django's backends


def _keep(connection: psycopg.Connection[Any], database: tuple[object, ...]) -> None:
    with _lock:
        _kept.append(_Kept(connection, database, time.monotonic() + KEPT_S))
    _close_surplus()


def _take(database: tuple[object, ...]) -> psycopg.Connection[Any] | None:
    """Remove and return the connection to a database that was used last."""
    _close_surplus()
    with _lock:
        for position in reversed(range(len(_kept))):
            if _kept[position].database == database:
                return _kept.pop(position).connection
    return None


def _close_surplus() -> None:
    now = time.monotonic()
    with _lock:
        surplus = [kept for age, kept in enumerate(reversed(_kept)) if age >= MOST_KEPT or kept.until <= now]
        for kept in surplus:
            _kept.remove(kept)
    for kept in surplus:
        kept.connection.close()


def _is_usable(connection: psycopg.Connection[Any]) -> bool:
    """Return whether the server responds in time. Also closes cursors that an aborted download has left open."""
    server = connection.pgconn
    ends_at = time.monotonic() + RESPONSE_S
    try:
        server.send_query(b"CLOSE ALL")
        poll = select.poll()
        poll.register(server.socket, select.POLLIN)
        while server.is_busy():
            if not poll.poll(max(0.0, ends_at - time.monotonic()) * 1000):
                return False
            server.consume_input()
        result = server.get_result()
        return result is not None and result.status == ExecStatus.COMMAND_OK and server.get_result() is None
    except psycopg.OperationalError:
        return False
