"""The Spark cluster of docker-compose.yml as plain processes: its scripts, its environment, a master that is restarted."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from pyspark.sql.connect.session import SparkSession

from console.config.env import spark_address
from deploy.check import problem
from devcluster.ports import LOOPBACK, accepts, free_port
from devcluster.processes import Process
from devcluster.reaper import session_members
from linkengine import sparkclient
from tests.sparksecrets import PASSED_ON, exposed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(290)]
ROOT = Path(__file__).resolve().parents[1]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
CORES = 3
PARTS = ("master", "worker", "connect")
# As Compose passes them: from files only. A backslash is an escape in the properties file that the secrets are written to.
SECRETS = {
    "SPARK_AUTH_SECRET": secrets.token_hex(16) + "\\n",
    "CLUSTERLINK_SPARK_TOKEN": secrets.token_urlsafe(32) + "\\t=#",
}


@dataclass
class Standalone:
    """Master, worker and Connect server, each on a port of its own, and the master's page."""

    directory: Path
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in (*PARTS, "master page")})
    running: dict[str, Process] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return spark_address(f"sc://{LOOPBACK}:{self.ports['connect']}", SECRETS["CLUSTERLINK_SPARK_TOKEN"])

    def __post_init__(self) -> None:
        """Write the properties file with the secrets, as the service spark-secrets does."""
        self._secrets = self.directory / "spark-secrets.conf"
        script, _ = SERVICES["spark-secrets"]["command"]
        variables = {"PATH": os.environ["PATH"]}
        for name, value in SECRETS.items():
            (self.directory / name).write_text(f"{value}\n")
            variables |= {name: "", f"{name}_FILE": str(self.directory / name)}
        subprocess.run([ROOT / script, self._secrets], env=variables, check=True, timeout=30)

    def start(self, name: str) -> None:
        (command,) = SERVICES[f"spark-{name}"]["command"]
        log = self.directory / f"{name}.log"
        process = Process([str(ROOT / command)], name=name, log=log, env=self._environment(), cwd=ROOT, withheld="CLUSTERLINK_")
        self.running[name] = process
        process.wait_until(lambda: accepts(self.ports[name]), timeout_s=120)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def master_state(self) -> tuple[str, int, list[str]]:
        """Return what the master reports: its state, how many workers are alive, and the states of the applications."""
        try:
            page = httpx.get(f"http://{LOOPBACK}:{self.ports['master page']}/json/", timeout=5).json()
        except httpx.TransportError:  # it is starting
            return "", 0, []
        return page["status"], page["aliveworkers"], [application["state"] for application in page["activeapps"]]

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_SECRETS": str(self._secrets),
            "SPARK_MASTER_HOST": LOOPBACK,
            "SPARK_MASTER_PORT": str(self.ports["master"]),
            "SPARK_MASTER_WEBUI_PORT": str(self.ports["master page"]),
            "SPARK_MASTER_URL": f"spark://{LOOPBACK}:{self.ports['master']}",
            "SPARK_RECOVERY_DIR": str(self.directory / "recovery"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_PORT": str(self.ports["worker"]),
            "SPARK_WORKER_WEBUI_PORT": str(free_port()),
            "SPARK_WORKER_CORES": str(CORES),
            "SPARK_WORKER_MEMORY": "600m",
            "SPARK_WORK_DIR": str(self.directory / "work"),
            "SPARK_EXECUTOR_MEMORY": "500m",
            "SPARK_DRIVER_MEMORY": "600m",
            "SPARK_CONNECT_PORT": str(self.ports["connect"]),
            "SPARK_CONNECT_OPTIONS": "--conf spark.python.worker.faulthandler.enabled=true --conf spark.driver.host=127.0.0.1",
            "SPARK_LOG_LEVEL": "WARN",
        }


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    (cluster.directory / "recovery").mkdir()
    try:
        for name in PARTS:
            cluster.start(name)
        yield cluster
    finally:
        sparkclient.close_session(cluster.url)
        for process in reversed(cluster.running.values()):
            process.stop()


def run_job(session: SparkSession, words: str) -> int:
    """Run a Python task on an executor that writes `words` to its standard error."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import sys as there  # noqa: PLC0415 - on the executor

        there.stderr.write(f"{words}\n")
        there.stderr.flush()
        yield from batches

    return session.range(0, 1, 1, 1).mapInArrow(work, "id long").count()


def wait_for(condition: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_job_runs_and_its_logs_reach_the_workers_output(spark: Standalone) -> None:
    words = f"written by a task {secrets.token_hex(4)}"

    assert run_job(sparkclient.session(spark.url), words) == 1

    wait_for(lambda: words in spark.log("worker"))
    (line,) = [line for line in spark.log("worker").splitlines() if words in line]
    assert line.startswith("app-")
    assert line.split(":")[0].endswith("stderr")


def test_processes_have_no_secret_in_environment_or_arguments(spark: Standalone) -> None:
    run_job(sparkclient.session(spark.url), "warm")
    members = {name: session_members(process.pid) for name, process in spark.running.items()}
    assert len(members["worker"]) >= 4  # the worker, the copier of its executors' logs, an executor, its Python daemon

    for name, pids in members.items():
        passed_on = PASSED_ON if name == "worker" else ""
        assert exposed(pids, SECRETS.values(), passed_on=passed_on) == [], name
    assert exposed(members["worker"], [SECRETS["CLUSTERLINK_SPARK_TOKEN"]]) == []


def test_the_slots_of_all_executors_are_counted(spark: Standalone) -> None:
    run_job(sparkclient.session(spark.url), "warm")

    assert sparkclient.count_slots(spark.url) == CORES


def test_options_and_log_level_take_effect(spark: Standalone) -> None:
    conf = sparkclient.session(spark.url).conf

    assert conf.get("spark.python.worker.faulthandler.enabled") == "true"
    assert conf.get("spark.task.maxFailures") == "8"
    assert conf.get("spark.sql.shuffle.partitions") == "4"
    assert b"-Xmx600m" in Path(f"/proc/{spark.running['connect'].pid}/cmdline").read_bytes()  # SPARK_DAEMON_MEMORY is less
    for name in spark.running:
        assert " INFO " not in spark.log(name), name


def test_a_restarted_master_keeps_the_application_and_its_executors(spark: Standalone) -> None:
    session = sparkclient.session(spark.url)
    run_job(session, "before")
    before = sorted(path.name for path in (spark.directory / "work").glob("app-*/*"))

    spark.running["master"].kill()
    assert run_job(session, "while the master is away") == 1
    spark.start("master")
    wait_for(lambda: spark.master_state() == ("ALIVE", 1, ["RUNNING"]))  # recovered; an unknown application would be missing

    assert run_job(sparkclient.session(spark.url), "after") == 1
    assert sparkclient.count_slots(spark.url) == CORES
    assert sorted(path.name for path in (spark.directory / "work").glob("app-*/*")) == before  # the same executor


def test_the_health_checks_of_compose_succeed_while_the_part_lives(spark: Standalone) -> None:
    for name in PARTS:
        assert problem("tcp", LOOPBACK, str(spark.ports[name])) == ""
    assert "refused" in problem("tcp", LOOPBACK, str(free_port()))
