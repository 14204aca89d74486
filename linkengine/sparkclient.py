"""The Spark Connect door: one session per process and server, made again after the server or the session died.

Opening a session costs about 40 ms and its first query half a second of warm-up, so that all threads of a process share one.
Knows nothing of the jobs. PySpark is imported on first use: it takes a second, and not every process needs it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

CONNECT_TIMEOUT_S = 2.0  # a server that takes longer to accept a connection does not run
DEFAULT_PORT = 15002
RETRIES = 4  # of one call, 50 ms to 1 s apart: a hiccup of the network; a restart is met by a new session
# in the text of an exception: the server does not answer, does not know the session, or the client has given it up for that
_GONE = ("UNAVAILABLE", "INVALID_HANDLE", "NO_ACTIVE_SESSION", "stopped SparkContext")

_log = structlog.get_logger(__name__)
_lock = Lock()
_sessions: dict[tuple[int, str], SparkSession] = {}


class SparkUnavailableError(Exception):
    """No Spark Connect server answers at the address, or it went away during a call."""


def session(url: str) -> SparkSession:
    """Answer this process's session with the server at ``url`` (``sc://host:port``), known to be alive a moment ago."""
    with _lock:
        known = _sessions.get((os.getpid(), url))
        _check_port(url)
        if known is not None and _alive(known):
            return known
        if known is not None:
            _close(known)
        _sessions[os.getpid(), url] = fresh = _open(url)
        _log.info("spark.session_opened", again=known is not None)
        return fresh


def close_session(url: str) -> None:
    """Give this process's session back to the server; without one, or without a server, nothing happens."""
    with _lock:
        known = _sessions.pop((os.getpid(), url), None)
    if known is not None:
        _close(known)


@contextmanager
def tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """Mark what this thread runs inside with ``tag``, so that another thread of the process can interrupt it."""
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)


@contextmanager
def interrupted_after(spark: SparkSession, tag: str, *, timeout_s: float) -> Iterator[None]:
    """Interrupt what runs with ``tag`` when it takes longer; Spark itself waits forever."""
    timer = Timer(timeout_s, _interrupt, args=(spark, tag))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def spark_answers(what: str) -> Iterator[None]:
    """Turn a lost server into SparkUnavailableError; what Spark itself refuses or fails at stays as it is."""
    import grpc  # noqa: PLC0415 - as heavy as PySpark
    from pyspark.errors.exceptions.connect import SparkConnectException  # noqa: PLC0415

    try:
        yield
    except grpc.RpcError as error:
        raise SparkUnavailableError(f"Spark went away and did not {what}: {_short(error)}") from error
    except SparkConnectException as error:
        if not any(word in str(error) for word in _GONE):
            raise
        raise SparkUnavailableError(f"Spark went away and did not {what}: {_short(error)}") from error


def _check_port(url: str) -> None:
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname or "", address.port or DEFAULT_PORT), timeout=CONNECT_TIMEOUT_S):
            return
    except OSError as error:
        message = f"No Spark Connect server answers at {address.netloc}: {error}. Start it or correct its address."
        raise SparkUnavailableError(message) from error


def _open(url: str) -> SparkSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415

    with spark_answers("open a session"):
        fresh = SparkSession.builder.remote(url).create()
        fresh.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES, max_backoff=1000)])
        fresh.conf.get("spark.app.name", "")
    return fresh


def _alive(known: SparkSession) -> bool:
    try:
        with spark_answers("look after its session"):
            known.conf.get("spark.app.name", "")
    except SparkUnavailableError:
        return False
    return not known.is_stopped


def _close(known: SparkSession) -> None:
    known.release_session_on_close = False  # the server it belongs to may be gone; it forgets idle sessions by itself
    with suppress(OSError, RuntimeError):
        known.stop()


def _interrupt(spark: SparkSession, tag: str) -> None:
    _log.warning("spark.took_too_long", tag=tag)
    with suppress(SparkUnavailableError), spark_answers("interrupt a job"):  # without Spark the job has ended, too
        spark.interruptTag(tag)


def _short(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
