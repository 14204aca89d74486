"""The Spark Connect door: one session per process and server, made again after the server or the session died.

Opening a session costs about 40 ms and its first query half a second of warm-up, so that all threads of a process share one.
Knows nothing of the jobs. PySpark is imported on first use: it takes a second, and not every process needs it.

A server that hangs accepts connections and answers nothing; gRPC waits for it without end. So every short call has a deadline
(``sparkdeadlines``), and a job one that ``interrupted_after`` sets: a little after the server was asked to interrupt it.
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

CONNECT_TIMEOUT_S = 2.0  # a server that takes longer to accept a connection does not run
DEFAULT_PORT = 15002
CALL_TIMEOUT_S = 30.0  # of what is asked and answered at once; well below a second where nothing is wrong
TURN_TIMEOUT_S = CALL_TIMEOUT_S + 5  # until another thread of the process has its session, or knows that there is none
INTERRUPT_TIMEOUT_S = 30.0  # until a job that was interrupted has ended; then nobody waits for it any more
RECONNECT_MS = 2_000  # between two attempts; gRPC's own grow to two minutes, for which a server that is back would not be found
RETRIES = 4  # of one call, 50 ms to 1 s apart: a hiccup of the network; a restart is met by a new session
_LEAST_PARALLELISM = 2  # CoarseGrainedSchedulerBackend.defaultParallelism: max(cores of all executors, 2)
# in the text of an exception: the server does not answer, does not know the session, or the client has given it up for that
_SILENT = "DEADLINE_EXCEEDED"
_REFUSED = "UNAUTHENTICATED"
_GONE = ("UNAVAILABLE", "INVALID_HANDLE", "NO_ACTIVE_SESSION", "stopped SparkContext", "Channel closed", _SILENT)

_log = structlog.get_logger(__name__)
_lock = Lock()
_sessions: dict[tuple[int, str], SparkSession] = {}
_streams_end_at: ContextVar[float | None] = ContextVar("streams_end_at", default=None)  # of the monotonic clock


class SparkUnavailableError(Exception):
    """No Spark Connect server answers at the address, or it went away during a call."""


class SparkSilentError(SparkUnavailableError):
    """A Spark Connect server is there, but hangs: it takes calls and answers none."""


def session(url: str) -> SparkSession:
    """Answer this process's session with the server at ``url`` (``sc://host:port``), known to be alive a moment ago.

    The address may hold the server's token (``/;authorization=Bearer%20…``, or ``/;use_ssl=true;token=…``), so it is not shown.
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
    """Give this process's session back to the server; without one, or without a server, nothing happens."""
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
    with spark_answers("plan a query"):
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
    """Mark what this thread runs inside with ``tag``, so that another thread of the process can interrupt it."""
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)


@contextmanager
def interrupted_after(spark: SparkSession, tag: str, *, timeout_s: float) -> Iterator[None]:
    """Interrupt what runs with ``tag`` when it takes longer; Spark itself waits forever. If that helps nothing, give it up.

    The caller is freed in any case. Tasks of a plan that Spark (4.2) was not done with are begun all the same and run to their
    end, so that no job may be without one.
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
def spark_answers(what: str) -> Iterator[None]:
    """Turn a lost server into SparkUnavailableError; what Spark itself refuses or fails at stays as it is."""
    import grpc  # noqa: PLC0415 - as heavy as PySpark
    from pyspark.errors.exceptions.connect import SparkConnectException  # noqa: PLC0415

    try:
        yield
    except (grpc.RpcError, SparkConnectException) as error:
        if _REFUSED in str(error):
            message = f"Spark did not {what}: it refused the token. Set CLUSTERLINK_SPARK_TOKEN to the token of its server."
            raise SparkUnavailableError(message) from error
        if isinstance(error, SparkConnectException) and not any(word in str(error) for word in _GONE):
            raise
        if _SILENT in str(error):
            message = (
                f"Spark takes calls but answers none, and did not {what}. Look at its server: it may have to be restarted."
            )
            raise SparkSilentError(message) from error
        raise SparkUnavailableError(f"Spark went away and did not {what}: {_short(error)}") from error


@contextmanager
def _turn(url: str) -> Iterator[None]:
    """Let one thread at a time look after the session; what hangs is found out by the first and told to the others."""
    if not _lock.acquire(timeout=TURN_TIMEOUT_S):
        raise SparkSilentError(f"Spark at {urlsplit(url).netloc} has answered no other call for {TURN_TIMEOUT_S:.0f} s.")
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
        message = f"No Spark Connect server answers at {address.netloc}: {error}. Start it or correct its address."
        raise SparkUnavailableError(message) from error


def _open(url: str) -> SparkSession:
    from pyspark.sql.connect.client.core import DefaultChannelBuilder  # noqa: PLC0415
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415

    from linkengine.sparkdeadlines import Deadlines  # noqa: PLC0415 - needs gRPC

    channel = DefaultChannelBuilder(url)
    channel.setChannelOption("grpc.max_reconnect_backoff_ms", RECONNECT_MS)
    channel.add_interceptor(Deadlines(call_s=CALL_TIMEOUT_S, stream_s=_stream_left_s))
    with spark_answers("open a session"):
        fresh = SparkSession.builder.channelBuilder(channel).create()
        fresh.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES, max_backoff=1000)])
        fresh.conf.get("spark.app.name", "")
    return fresh


def _stream_left_s() -> float | None:
    end = _streams_end_at.get()
    return None if end is None else max(0.0, end - time.monotonic())


def _alive(known: SparkSession) -> bool:
    try:
        with spark_answers("look after its session"):
            known.conf.get("spark.app.name", "")
    except SparkSilentError:
        raise  # another session would not be answered either
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
