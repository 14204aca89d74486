"""Sessions with Spark Connect servers: one per process and server, opened again after the server or the session ended.

Opening a session takes about 40 ms and its first query half a second of warm-up, so all threads of a process share one.
Independent of the jobs. PySpark is imported on first use: the import takes a second, and not every process needs it.

A server that hangs accepts connections and never responds, and gRPC would wait for it forever. So every short call has a
deadline (``sparkdeadlines``), and a job has the one set by ``interrupted_after``: a little after its interruption was
requested.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

CONNECT_TIMEOUT_S = 2.0  # a server that takes longer to accept a connection is considered down
DEFAULT_PORT = 15002
CALL_TIMEOUT_S = 30.0  # of short calls, which normally take well below a second
TURN_TIMEOUT_S = CALL_TIMEOUT_S + 5  # for the session lock: until another thread has its session, or an error
INTERRUPT_TIMEOUT_S = 30.0  # until an interrupted job has ended; then the caller stops waiting
RECONNECT_MS = 2_000  # between two attempts; gRPC's own backoff grows to two minutes, too long to notice that a server is back
RETRIES = 4  # of a call, 50 ms to 1 s apart, for short network failures; after a restart a new session is opened
_LEAST_PARALLELISM = 2  # CoarseGrainedSchedulerBackend.defaultParallelism: max(cores of all executors, 2)
# words in an exception's text: the server does not respond, does not know the session, or the client has closed it for that
_SILENT = "DEADLINE_EXCEEDED"
_REFUSED = "UNAUTHENTICATED"
_GONE = ("UNAVAILABLE", "INVALID_HANDLE", "NO_ACTIVE_SESSION", "stopped SparkContext", "Channel closed", _SILENT)

_log = structlog.get_logger(__name__)
_lock = Lock()
_importing = Lock()
_sessions: dict[tuple[int, str], SparkSession] = {}
_streams_end_at: ContextVar[float | None] = ContextVar("streams_end_at", default=None)  # of the monotonic clock


class SparkUnavailableError(Exception):
    """No Spark Connect server responds at the address, or it ended during a call."""


class SparkUnresponsiveError(SparkUnavailableError):
    """A Spark Connect server accepts calls but does not respond to them."""


def load_pyspark() -> None:
    """Import PySpark, which takes a second. To be called before any other import of PySpark in a process with several threads.

    PySpark's modules import each other. Threads that import them at the same time wait for each other's half-imported modules;
    CPython resolves that with an error in some of them.
    """
    with _importing:
        import grpc  # noqa: F401, PLC0415
        import pyspark.sql.connect.session  # noqa: F401, PLC0415


def session(url: str) -> SparkSession:
    """Return this process's session with the server at ``url`` (``sc://host:port``), after a check that it is alive.

    The address may contain the server's token (``/;authorization=Bearer%20…``, or ``/;use_ssl=true;token=…``) and is not shown.
    """
    with _turn(url):
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
    """Close this process's session with the server, if there is one; without a server nothing happens."""
    with _lock:
        known = _sessions.pop((os.getpid(), url), None)
    if known is not None:
        _close(known)


def count_slots(url: str) -> int | None:
    """Return how many tasks the server's executors run at a time, None if that is unknown; raise SparkUnavailableError.

    Spark Connect has no call for it. The physical plan of a range without a number of partitions shows the default parallelism,
    which is the number of cores of all executors; planning it starts no job. With a cluster manager Spark reports at least 2,
    also without any executor, and ``spark.default.parallelism`` replaces the number: both mean unknown.
    """
    spark: Any = session(url)
    with translate_spark_errors("plan a query"):
        master = spark.conf.get("spark.master", "") or ""
        overridden = spark.conf.get("spark.default.parallelism", "")
        plan = spark.range(0, 1)._explain_string()  # noqa: SLF001 - what `explain` prints
    found = re.search(r"Range \(.*splits=(\d+)\)", plan)
    if overridden or found is None:
        return None
    slots = int(found[1])
    return slots if master.startswith("local") or slots > _LEAST_PARALLELISM else None


@contextmanager
def tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """Tag what this thread runs inside, so that another thread of the process can interrupt it."""
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)


@contextmanager
def interrupted_after(spark: SparkSession, tag: str, *, timeout_s: float) -> Iterator[None]:
    """Interrupt what runs with ``tag`` if it takes longer, since Spark waits forever. If that has no effect, stop waiting.

    The caller is released in any case. Tasks of a plan that Spark (4.2) had not finished when it was interrupted are started
    all the same and run to their end, so every job needs an end of its own.
    """
    timer = Timer(timeout_s, _interrupt, args=(spark, tag))
    timer.daemon = True
    timer.start()
    token = _streams_end_at.set(time.monotonic() + timeout_s + INTERRUPT_TIMEOUT_S)
    try:
        yield
    finally:
        _streams_end_at.reset(token)
        timer.cancel()


@contextmanager
def translate_spark_errors(what: str) -> Iterator[None]:
    """Convert a lost server to SparkUnavailableError; errors of Spark's own are raised unchanged."""
    load_pyspark()
    import grpc  # noqa: PLC0415 - as heavy as PySpark
    from pyspark.errors.exceptions.connect import SparkConnectException  # noqa: PLC0415

    try:
        yield
    except (grpc.RpcError, SparkConnectException) as error:
        if _REFUSED in str(error):
            message = f"Spark did not {what}: it refused the token. Set CLUSTERLINK_SPARK_TOKEN to the token of the server."
            raise SparkUnavailableError(message) from error
        if isinstance(error, SparkConnectException) and not any(word in str(error) for word in _GONE):
            raise
        if _SILENT in str(error):
            message = (
                f"Spark did not {what}: it accepts calls but does not respond. Check its server, which may need a restart."
            )
            raise SparkUnresponsiveError(message) from error
        raise SparkUnavailableError(f"Spark became unavailable and did not {what}: {_short(error)}") from error


@contextmanager
def _turn(url: str) -> Iterator[None]:
    """Allow one thread at a time to check or open the session; the first detects a hanging server, the others time out."""
    if not _lock.acquire(timeout=TURN_TIMEOUT_S):
        raise SparkUnresponsiveError(
            f"Spark at {urlsplit(url).netloc} has not responded to another call for {TURN_TIMEOUT_S:.0f} s."
        )
    try:
        yield
    finally:
        _lock.release()


def _check_port(url: str) -> None:
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname or "", address.port or DEFAULT_PORT), timeout=CONNECT_TIMEOUT_S):
            return
    except OSError as error:
        message = f"No Spark Connect server responds at {address.netloc}: {error}. Start it or correct its address."
        raise SparkUnavailableError(message) from error


def _open(url: str) -> SparkSession:
    load_pyspark()
    from pyspark.sql.connect.client.core import DefaultChannelBuilder  # noqa: PLC0415
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415

    from linkengine.sparkdeadlines import Deadlines  # noqa: PLC0415 - needs gRPC

    channel = DefaultChannelBuilder(url)
    channel.setChannelOption("grpc.max_reconnect_backoff_ms", RECONNECT_MS)
    channel.add_interceptor(Deadlines(call_s=CALL_TIMEOUT_S, stream_s=_stream_left_s))
    with translate_spark_errors("open a session"):
        fresh = SparkSession.builder.channelBuilder(channel).create()
        fresh.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES, max_backoff=1000)])
        fresh.conf.get("spark.app.name", "")
    return fresh


def _stream_left_s() -> float | None:
    end = _streams_end_at.get()
    return None if end is None else max(0.0, end - time.monotonic())


def _alive(known: SparkSession) -> bool:
    try:
        with translate_spark_errors("check its session"):
            known.conf.get("spark.app.name", "")
    except SparkUnresponsiveError:
        raise  # another session would not get a response either
    except SparkUnavailableError:
        return False
    return not known.is_stopped


def _close(known: SparkSession) -> None:
    known.release_session_on_close = False  # its server may be gone; servers close idle sessions automatically
    with suppress(OSError, RuntimeError):
        known.stop()


def _interrupt(spark: SparkSession, tag: str) -> None:
    _log.warning("spark.took_too_long", tag=tag)
    with suppress(SparkUnavailableError), translate_spark_errors("interrupt a job"):  # without Spark the job has ended, too
        spark.interruptTag(tag)


def _short(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
