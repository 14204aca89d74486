"""An embedded Spark Connect server: a JVM with local executors, for the demo, the tests and small deployments.

Runs the Spark of the `pyspark` package, with the jars of the Kafka source. Must not know the jobs; executors find them because
this project's root is on their path.

A client that may open a session can run code as this user, so clients need a token, and Spark's processes a secret of their
own. Both are in a file that only the user can read. Spark does not inherit the settings of the product, which hold the keys of
all credentials: it gets what it needs with each plan.
"""

import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Self

from devcluster import parts
from devcluster.ports import LOOPBACK, accepts, free_port
from devcluster.processes import STOP_TIMEOUT_S, Process

FIRST_QUERY_TIMEOUT_S = 240.0  # a few seconds on two idle cores
FIRST_QUERY_RETRIES = 3  # a server that has ended is not restarted automatically; the default retries for ten minutes
THREAD_DUMP_S = 2.0
START_TIMEOUT_S = 240.0  # about 12 s on two idle cores, a minute on busy cores
MASTER = "local[16,8]"  # 16 concurrent tasks, each may fail 8 times
PRELOAD_VARIABLE = "DEVCLUSTER_PRELOAD"  # read by warm_daemon.py
PRELOAD = ("pyarrow", "pyspark.sql.pandas.serializers", "linkengine.copyjob.spark_job", "linkengine.copyjob.worker")
DETACHED_TIMEOUT = "1h"  # how long a copy worker continues without its Celery worker
SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


def write_secrets(path: Path, *, token: str, secret: str = "") -> None:
    """Write the properties file with Spark's secrets: the token of clients and the secret of its processes (empty: new)."""
    path.touch(mode=0o600)
    values = {"spark.connect.authenticate.token": token, "spark.authenticate.secret": secret or secrets.token_hex(32)}
    path.write_text("".join(f"{name} {value}\n" for name, value in values.items()))


class SparkConnectServer:
    """A local Spark Connect server; also a context manager that starts and stops it."""

    def __init__(
        self,
        *,
        directory: Path | None = None,
        heap: str = "1g",
        master: str = MASTER,
        port: int | None = None,
        token: str | None = None,
        secret: str = "",
        preload: Sequence[str] = PRELOAD,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Plan a server. Without `directory` it uses a temporary directory, deleted on stop.

        `preload` are modules that Python workers have imported when they start. Without `token` it creates one, and likewise
        `secret`, which a server needs whose executors are in a cluster of their own: the cluster's.
        """
        self.port = port or free_port()
        self._token = token or secrets.token_urlsafe(32)
        self._secret = secret
        self._heap = heap
        self._master = master
        self._preload = preload
        self._extra = extra or {}
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="spark-"))
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """The address for `SparkSession.builder.remote`, token included.

        PySpark sends a `token` over TLS only. It sends other parameters as headers of each call, as is done with this token.
        """
        return f"{self.address}/;authorization=Bearer%20{self._token}"

    @property
    def address(self) -> str:
        """The address without the token, for display."""
        return f"sc://{LOOPBACK}:{self.port}"

    def start(self) -> Self:
        """Start the server and wait until it has run a query."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        write_secrets(self.secrets_file, token=self._token, secret=self._secret)
        self._process = Process(
            self._command(), name="spark-connect", log=self.log, env=self._env(), cwd=self.directory, withheld="CLUSTERLINK_"
        )
        self._process.wait_until(lambda: accepts(self.port), timeout_s=START_TIMEOUT_S)
        try:
            self._first_query()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the server and its Python workers. Safe to repeat."""
        if self._process is not None:
            self._process.stop(timeout_s=timeout_s)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """Kill the server and its Python workers with SIGKILL; `start` restarts it on the same port."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): it accepts connections but does not respond. Its Python workers continue."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a frozen server (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    @property
    def secrets_file(self) -> Path:
        """The properties file with the server's secrets, which only this user can read."""
        return self.directory / "secrets.conf"

    @property
    def _scratch(self) -> Path:
        return self.directory / "scratch"

    @property
    def pid(self) -> int:
        """The process id of the server; its Python workers share its session."""
        if self._process is None:
            raise RuntimeError("The Spark Connect server has not been started.")
        return self._process.pid

    @property
    def log(self) -> Path:
        """The server's log; its Python workers write to it as well."""
        return self.directory / "spark.log"

    def log_tail(self) -> str:
        """Return the last lines of the server's log."""
        return "" if self._process is None else self._process.log_tail()

    def __enter__(self) -> Self:
        """Start the server."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop the server."""
        self.stop()

    def _command(self) -> list[str]:
        settings = {**self._settings(), **self._extra}
        options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        return [
            str(spark_home() / "bin" / "spark-submit"),
            *("--properties-file", str(self.secrets_file)),
            *("--class", SERVER_CLASS, "--master", self._master, "--driver-memory", self._heap),
            *("--driver-java-options", " ".join(self._jvm_flags())),
            *("--driver-class-path", ":".join(str(jar) for jar in parts.spark_jars())),
            *options,
            "spark-internal",
        ]

    def _jvm_flags(self) -> list[str]:
        # A killed server does not clean up: its files are deleted with its directory.
        return ["-Xshare:auto", *parts.archive_flags(parts.SPARK_ARCHIVE), f"-Djava.io.tmpdir={self._scratch}"]

    def _settings(self) -> dict[str, object]:
        return {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": self.port,
            "spark.authenticate": "true",
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.connect.execute.manager.detachedTimeout": DETACHED_TIMEOUT,
            "spark.python.daemon.module": "devcluster.warm_daemon",
            "spark.ui.enabled": "false",
            "spark.python.worker.reuse": "true",  # Spark ends idle workers after a minute in which no task began or ended
            "spark.sql.shuffle.partitions": 4,
            "spark.sql.warehouse.dir": self.directory / "warehouse",
            "spark.local.dir": self._scratch,
            "spark.log.level": "WARN",
            # A record too large for the heap fails only the query that reads it; by default Spark, and all copying, would end.
            "spark.executor.killOnFatalError.depth": 0,
        }

    def _env(self) -> dict[str, str]:
        path = os.pathsep.join([str(parts.ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return {
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": path,
            PRELOAD_VARIABLE: ",".join(self._preload),
            "PYTHONHASHSEED": "0",  # Spark requires the same hashes in every worker
        }

    def _first_query(self) -> None:
        from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - imports take a second
        from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415

        session = SparkSession.builder.remote(self.url).create()
        session.client.set_retry_policies([DefaultPolicy(max_retries=FIRST_QUERY_RETRIES)])
        watch = Timer(FIRST_QUERY_TIMEOUT_S, self._kill_with_thread_dump)
        watch.daemon = True
        watch.start()
        try:
            # Runs Python, so that the daemon of the workers is warm when the first job starts.
            assert session.range(0, 1, 1, 1).mapInArrow(_unchanged, "id long").count() == 1
        finally:
            watch.cancel()
            session.stop()

    def _kill_with_thread_dump(self) -> None:
        """Kill a server that hangs, after a thread dump to its log; a caller that waits for it gets an error."""
        os.kill(self.pid, signal.SIGQUIT)
        time.sleep(THREAD_DUMP_S)
        self.kill()


def _unchanged(batches: Iterator[object]) -> Iterator[object]:
    return batches


def spark_home() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise parts.PartsMissingError("The pyspark package is not installed. Run `make setup` first.")
    return Path(found.origin).parent
