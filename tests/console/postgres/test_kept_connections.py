"""Connections to a real PostgreSQL that outlive the thread that opened them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import TypeVar

import psycopg
import pytest
from django.db import DatabaseError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

from console.config.env import EnvironmentVariables
from console.postgres import base
from devcluster.postgres import PostgresServer
from tests.linkengine.copyjob.copying import wait_for

pytestmark = pytest.mark.network
T = TypeVar("T")
Work = Callable[[BaseDatabaseWrapper], T]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        wait_for(lambda: accepts_connections(server))
        yield server


def accepts_connections(server: PostgresServer) -> bool:
    try:
        psycopg.connect(server.url).close()
    except psycopg.OperationalError:  # the system is starting up
        return False
    return True


@pytest.fixture
def databases(server: PostgresServer, django_db_blocker: DjangoDbBlocker) -> Iterator[ConnectionHandler]:
    databases = ConnectionHandler({"default": EnvironmentVariables({"X": server.url}).database("X")})
    with django_db_blocker.unblock():
        yield databases
        databases["default"].close_pool()  # type: ignore[attr-defined] # of PostgreSQL only


def in_a_thread(databases: ConnectionHandler, work: Work[T]) -> T:
    """Return the result of work in a new thread that closes its connection at the end, as a request does."""

    def run() -> T:
        try:
            return work(databases["default"])
        finally:
            databases["default"].close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result(30)


def server_process(connection: BaseDatabaseWrapper) -> int:
    return int(str(value_of(connection, "SELECT pg_backend_pid()")))


def value_of(connection: BaseDatabaseWrapper, sql: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        (value,) = cursor.fetchone()
        return value


def test_the_server_does_not_compile_queries(databases: ConnectionHandler) -> None:
    def setting(connection: BaseDatabaseWrapper) -> object:
        return value_of(connection, "SHOW jit"), connection.get_autocommit()

    assert [in_a_thread(databases, setting) for _ in range(2)] == [("off", True)] * 2  # of a new and of a kept connection


def test_the_next_thread_uses_the_connection(databases: ConnectionHandler) -> None:
    first = in_a_thread(databases, server_process)

    assert in_a_thread(databases, server_process) == first


def test_threads_at_the_same_time_have_connections_of_their_own(databases: ConnectionHandler) -> None:
    together = Barrier(3)

    def work(connection: BaseDatabaseWrapper) -> int:
        process = server_process(connection)
        together.wait(30)
        return process

    with ThreadPoolExecutor(3) as threads:
        found = [threads.submit(in_a_thread, databases, work) for _ in range(3)]
        assert len({future.result(30) for future in found}) == 3


def test_more_connections_than_the_most_are_closed(databases: ConnectionHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_KEPT", 1)
    inner: list[int] = []

    def work(connection: BaseDatabaseWrapper) -> int:
        process = server_process(connection)
        inner.append(in_a_thread(databases, server_process))
        return process

    outer = in_a_thread(databases, work)

    assert in_a_thread(databases, server_process) == outer  # closed last
    in_a_thread(databases, lambda own: wait_until_ended(own, inner[0]))


def wait_until_ended(connection: BaseDatabaseWrapper, process: int) -> None:
    """Wait until a server process has noticed that its client has closed the connection."""
    wait_for(lambda: value_of(connection, f"SELECT count(*) FROM pg_stat_activity WHERE pid = {process}") == 0)


def test_a_connection_that_was_kept_for_too_long_is_closed(
    databases: ConnectionHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "KEPT_S", 0.0)
    first = in_a_thread(databases, server_process)

    in_a_thread(databases, lambda own: wait_until_ended(own, first))


def test_a_connection_with_an_open_transaction_is_not_kept(databases: ConnectionHandler) -> None:
    def work(connection: BaseDatabaseWrapper) -> int:
        connection.set_autocommit(False)
        return server_process(connection)

    assert in_a_thread(databases, work) != in_a_thread(databases, server_process)


def test_a_connection_that_had_an_error_is_not_kept(databases: ConnectionHandler) -> None:
    processes: list[int] = []

    def work(connection: BaseDatabaseWrapper) -> None:
        processes.append(server_process(connection))
        connection.cursor().execute("SELECT nonsense")

    with pytest.raises(DatabaseError):
        in_a_thread(databases, work)

    assert in_a_thread(databases, server_process) not in processes


def test_a_connection_that_the_server_has_ended_is_replaced(databases: ConnectionHandler) -> None:
    first = in_a_thread(databases, server_process)
    admin = ConnectionHandler({"default": databases.settings["default"] | {"ENGINE": "django.db.backends.postgresql"}})
    value_of(admin["default"], f"SELECT pg_terminate_backend({first}, 10000)")
    admin["default"].close()

    assert in_a_thread(databases, server_process) != first


def test_a_server_that_hangs_is_an_error_within_5_seconds(server: PostgresServer, databases: ConnectionHandler) -> None:
    in_a_thread(databases, server_process)
    server.pause()
    try:
        with pytest.raises(OperationalError):
            in_a_thread(databases, server_process)
    finally:
        server.resume()

    assert in_a_thread(databases, server_process)


def test_a_cursor_that_was_left_open_is_closed(databases: ConnectionHandler) -> None:
    def work(connection: BaseDatabaseWrapper) -> int:
        with connection.cursor() as cursor:
            cursor.execute("DECLARE abandoned CURSOR WITH HOLD FOR SELECT generate_series(1, 10)")
        return server_process(connection)

    first = in_a_thread(databases, work)
    again = in_a_thread(databases, lambda own: (server_process(own), value_of(own, "SELECT count(*) FROM pg_cursors")))

    assert again == (first, 0)


def test_times_are_in_utc(databases: ConnectionHandler) -> None:
    moment = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)

    def work(connection: BaseDatabaseWrapper) -> list[object]:
        return [value_of(connection, f"SELECT timestamptz '{text}'") for text in (moment.isoformat(), "1899-01-01 00:00:00+00")]

    found, early = in_a_thread(databases, work)

    assert found == moment
    assert isinstance(found, datetime)
    assert (found.utcoffset(), found.isoformat()) == (moment.utcoffset(), moment.isoformat())
    assert early == datetime(1899, 1, 1, tzinfo=UTC)
