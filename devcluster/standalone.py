"""A Spark standalone cluster of plain processes with authentication: a master that recovers, and workers that can be killed.

Jobs are started by the Spark Connect server that ``connect_server`` returns (``spark.py``). Must not know the jobs.

The secret is in a file that only the user can read, never in an argument. Spark itself passes it to executors in the variable
``_SPARK_AUTH_SECRET``. No process inherits the settings of the product.
"""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from devcluster import parts
from devcluster.ports import LOOPBACK, accepts, free_port
from devcluster.processes import Process
from devcluster.spark import PRELOAD, PRELOAD_VARIABLE, SparkConnectServer, spark_home

START_TIMEOUT_S = 120.0
EXECUTOR = "CoarseGrainedExecutorBackend"
AUTHENTICATION = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


class StandaloneCluster:
    """A master and its workers; a context manager."""

    def __init__(self, directory: Path, *, cores: int = 2, memory: str = "512m") -> None:
        """Plan a master; ``cores`` and ``memory`` are those of each worker, which has a single executor."""
        self._directory, self._cores, self._memory = directory, cores, memory
        self._port = free_port()
        self.secret = secrets.token_hex(16)  # of all processes of the cluster, and of the Connect server
        self._master: Process | None = None
        self.workers: list[Process] = []

    @property
    def url(self) -> str:
        """The address of the master."""
        return f"spark://{LOOPBACK}:{self._port}"

    def connect_server(self, directory: Path) -> SparkConnectServer:
        """Return a Connect server, not started yet, whose executors run in this cluster."""
        path = os.pathsep.join([str(parts.ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        settings = {
            **AUTHENTICATION,
            "spark.executor.cores": self._cores,
            "spark.executor.memory": self._memory,
            "spark.executor.extraClassPath": ":".join(str(jar) for jar in parts.spark_jars()),
            "spark.executorEnv.PYTHONPATH": path,
            "spark.executorEnv.PYTHONHASHSEED": "0",
            f"spark.executorEnv.{PRELOAD_VARIABLE}": ",".join(PRELOAD),
            "spark.pyspark.python": sys.executable,
        }
        return SparkConnectServer(directory=directory, master=self.url, secret=self.secret, extra=settings)

    def start(self, *, workers: int) -> Self:
        """Start the master and workers."""
        self.start_master()
        for _ in range(workers):
            self.add_worker()
        return self

    def start_master(self) -> None:
        """Start the master, also after `kill_master`; it recovers its workers and applications."""
        ports = ["--host", LOOPBACK, "--port", str(self._port), "--webui-port", "0"]
        self._master = self._run(_MASTER, ports, name="spark-master")
        self._master.wait_until(lambda: accepts(self._port), timeout_s=START_TIMEOUT_S)

    def kill_master(self) -> None:
        """Kill the master with SIGKILL."""
        assert self._master is not None
        self._master.kill()

    def add_worker(self) -> Process:
        """Start another worker."""
        number = len(self.workers)
        place = self._directory / f"worker-{number}"
        sizes = ["--cores", str(self._cores), "--memory", "1g", "--work-dir", str(place)]
        words = ["--host", LOOPBACK, "--webui-port", "0", *sizes, self.url]
        worker = self._run(_WORKER, words, name=f"spark-worker-{number}")
        worker.wait_until(
            lambda: "Successfully registered with master" in worker.log.read_text(errors="replace"), timeout_s=START_TIMEOUT_S
        )
        self.workers.append(worker)
        return worker

    def executors(self, worker: Process) -> list[psutil.Process]:
        """Return the executors of a worker."""
        found = []
        for process in psutil.Process(worker.pid).children(recursive=True):
            with suppress(psutil.Error):  # the process has just ended
                if EXECUTOR in " ".join(process.cmdline()):
                    found.append(process)
        return found

    @property
    def processes(self) -> list[Process]:
        """The workers and the master, including those that were killed."""
        return [*self.workers, *([] if self._master is None else [self._master])]

    def stop(self) -> None:
        """Stop everything. Safe to repeat."""
        for process in self.processes:
            process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _run(self, main: str, words: list[str], *, name: str) -> Process:
        properties = self._directory / "spark.conf"
        properties.parent.mkdir(parents=True, exist_ok=True)
        properties.touch(mode=0o600)
        values = {**AUTHENTICATION, "spark.authenticate.secret": self.secret}
        properties.write_text("".join(f"{key} {value}\n" for key, value in values.items()))
        recovery = self._directory / "recovery"
        options = ["-Xmx256m", "-Dspark.deploy.recoveryMode=FILESYSTEM", f"-Dspark.deploy.recoveryDirectory={recovery}"]
        env = {
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(options[1:]),
            "SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=false",
        }
        command = [str(spark_home() / "bin" / "spark-class"), main, *words, "--properties-file", str(properties)]
        if main == _WORKER:  # the master's address has to be the last argument
            command = [*command[:-3], *command[-2:], command[-3]]
        log = self._directory / f"{name}.log"
        return Process(command, name=name, log=log, env=env, cwd=self._directory, withheld="CLUSTERLINK_")
