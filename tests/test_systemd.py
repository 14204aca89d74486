"""The systemd units, run as plain processes: what they start becomes ready, with the settings that the documents name."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from cryptography.fernet import Fernet

from devcluster.ports import LOOPBACK, accepts, free_port
from devcluster.postgres import PostgresServer
from devcluster.processes import Process
from devcluster.redis import RedisServer
from devcluster.spark import write_secrets
from tests.test_deployment import EXAMPLE, SERVICES, megabytes

ROOT = Path(__file__).resolve().parents[1]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
SPARK_CORES = 5
SPARK_TOKEN = "t" * 43


def values(unit: Path) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("systemd")


def here(text: str, directory: Path, port: int) -> str:
    """Replace the places of an installation by those of this checkout."""
    text = text.replace("/opt/clusterlink/.venv/bin", str(Path(sys.executable).parent)).replace("/opt/clusterlink", str(ROOT))
    text = text.replace("/var/lib/clusterlink-spark", str(directory))
    return text.replace("/var/lib/clusterlink", str(directory)).replace("--port 8000", f"--port {port}")


@pytest.fixture(scope="module")
def product(directory: Path) -> Iterator[httpx.Client]:
    """All units but those of a Spark cluster of several machines, with the files of variables that the guide describes."""
    port, spark_port = free_port(), free_port()
    with ExitStack() as stack:
        database, queue = stack.enter_context(PostgresServer()), stack.enter_context(RedisServer(directory=directory / "redis"))
        settings = {
            "CLUSTERLINK_SECRET_KEY": "s" * 50,
            "CLUSTERLINK_CREDENTIALS_KEY": Fernet.generate_key().decode(),
            "CLUSTERLINK_DATABASE_URL": database.url,
            "CLUSTERLINK_REDIS_URL": queue.url,
            "CLUSTERLINK_SPARK_URL": f"sc://{LOOPBACK}:{spark_port}",
            "CLUSTERLINK_SPARK_TOKEN": SPARK_TOKEN,
            "CLUSTERLINK_EXPORT_DIR": str(directory / "exports"),
        }
        spark = {"SPARK_CONNECT_PORT": str(spark_port), "SPARK_WORKER_CORES": str(SPARK_CORES), "SPARK_LOCAL_IP": LOOPBACK}
        spark |= {"SPARK_LOCAL_DIRS": str(directory), "PYSPARK_PYTHON": sys.executable}
        spark["SPARK_SECRETS"] = str(directory / "spark-secrets.conf")
        write_secrets(directory / "spark-secrets.conf", token=SPARK_TOKEN)
        own = {**dict(re.findall(r"^(CLUSTERLINK_\w+)=(.*)$", EXAMPLE, re.MULTILINE)), **settings}
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(migrate, cwd=ROOT, env={**os.environ, **own}, check=True, timeout=120)
        for unit in UNITS:
            unit_settings = values(unit)
            if unit.stem in {"clusterlink-spark-master", "clusterlink-spark-worker"}:
                continue
            variables = own if unit_settings["EnvironmentFile"].endswith("clusterlink.env") else spark
            variables = {
                **variables,
                **dict(word.split("=", 1) for word in shlex.split(here(unit_settings["Environment"], directory, port))),
            }
            variables["PATH"] += os.pathsep + os.environ["PATH"]  # where Java lies differs
            cwd = Path(here(unit_settings["WorkingDirectory"], directory, port))
            command = shlex.split(here(unit_settings["ExecStart"], directory, port))
            log = directory / f"{unit.stem}.log"
            process = Process(command, name=unit.stem, log=log, env=variables, cwd=cwd, withheld="CLUSTERLINK_")
            stack.callback(process.stop)
            if "web" in unit.stem:
                process.wait_until(lambda: accepts(port), timeout_s=120)
        yield stack.enter_context(httpx.Client(base_url=f"http://{LOOPBACK}:{port}", timeout=60))


@pytest.mark.spark
@pytest.mark.timeout(280)
def test_services_started_by_the_units_become_ready(product: httpx.Client) -> None:
    deadline = time.monotonic() + 200
    while (response := product.get("/readyz").json())["parts"].get("spark") != "ok" or response["status"] != "ready":
        assert time.monotonic() < deadline, response
        time.sleep(1)

    assert set(response["parts"].values()) == {"ok"}
    assert response["spark_slots"] == SPARK_CORES
    assert product.get("/static/css/shell.css").status_code == 200


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_is_limited_like_its_container_and_runs_as_a_user_of_its_own(unit: Path) -> None:
    unit_settings, service = values(unit), SERVICES[unit.stem.removeprefix("clusterlink-")]

    # A Spark session runs any code: as the product's user it could read the variables of its processes and exported records.
    user = "clusterlink-spark" if "spark" in unit.stem else "clusterlink"
    assert (unit_settings["User"], unit_settings["ReadWritePaths"]) == (user, f"/var/lib/{user}")
    assert f"useradd --system --home-dir /var/lib/{user} " in (ROOT / "docs/operations/install.md").read_text()
    if unit.stem != "clusterlink-spark-connect":  # its own JVM and Python workers run the tasks here
        assert int(unit_settings["MemoryMax"][:-1]) * (1024 if unit_settings["MemoryMax"][-1] == "G" else 1) == megabytes(
            service["mem_limit"]
        )
    container = service["command"][0].rpartition("/")[2]
    assert shlex.split(unit_settings["ExecStart"])[0].rpartition("/")[2] == container
    assert ("spark" in unit.stem) is unit_settings["EnvironmentFile"].endswith("/spark.env")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_can_read_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        (tmp_path / unit.name).write_text(here(unit.read_text(), tmp_path, 8000))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *tmp_path.iterdir()], capture_output=True, text=True, check=False
    )

    assert [line for line in done.stderr.splitlines() if "clusterlink" in line and "Permission" not in line] == []
