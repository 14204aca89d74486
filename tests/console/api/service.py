"""Runs the whole product: web process, worker and beat with a database of their own, used over HTTP."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from devcluster.ports import LOOPBACK, free_port
from devcluster.processes import Process

ROOT = Path(__file__).resolve().parents[3]
START_TIMEOUT_S = 180.0
POLL_S = 0.1  # or as long as a poll takes, if that is longer: it may list hundreds of mirrors
USER_NAME, PASSWORD = "owner", "a-password-for-tests"
# Run in the product's shell, like an installer would: migrates the database, and once the product is ready, creates an
# administrator, who has an API key, and the clusters.
_SEED = f"""
import json, sys
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone
from console.access import actions as access
from console.clusters import actions as clusters
from console.actors import SYSTEM
from console.models import Environment, Organization
call_command("migrate", verbosity=0)
print("migrated", flush=True)
properties_by_name = json.loads(sys.stdin.readline())
now = timezone.now()
organization = Organization.objects.create(name="Acme", created_at=now)
environment = Environment.objects.create(organization=organization, name="Test", slug="test", created_at=now)
owner = User.objects.create_user({USER_NAME!r}, password={PASSWORD!r})
access.grant_role(user=owner, role="EnvironmentAdmin", environment=environment, by=SYSTEM, now=now)
for name, properties in properties_by_name.items():
    clusters.register_cluster(environment=environment, name=name, properties=properties, by=SYSTEM, now=now)
api_key, secret = access.create_api_key(user=owner, description="test", by=SYSTEM, now=now)
print(json.dumps([api_key.key, secret]))
"""


class Service:
    """A running product and a client of its REST API."""

    def __init__(self, *, directory: Path, clusters: Mapping[str, Mapping[str, str]]) -> None:
        """Migrate the database and start the processes; ``stop`` ends them."""
        self._directory = directory
        self._env = {"CLUSTERLINK_DATABASE_URL": f"sqlite:///{directory}/service.sqlite3", "CLUSTERLINK_LOG_LEVEL": "INFO"}
        port = free_port()
        self._processes: list[Process] = []
        shell = self._shell(_SEED)
        try:
            assert shell.stdout is not None
            assert shell.stdout.readline() == "migrated\n", self._shell_log()
            beat = ["-B", "-s", str(directory / "beat")]
            self._start("worker", "celery", "-A", "console.celery", "worker", *beat, "--loglevel=INFO", "-n", f"e2e-{port}@%h")
            web = self._start(
                "web", "uvicorn", "console.asgi:application", "--host", LOOPBACK, "--port", str(port), "--no-proxy-headers"
            )
            self.client = httpx.Client(base_url=f"http://{LOOPBACK}:{port}", timeout=60.0)
            web.wait_until(self._ready, timeout_s=START_TIMEOUT_S)
            output, _ = shell.communicate(json.dumps(clusters) + "\n", timeout=START_TIMEOUT_S)
            assert shell.returncode == 0, self._shell_log()
            key, secret = json.loads(output.splitlines()[-1])
            self.key, self.secret = str(key), str(secret)
            self.client.auth = httpx.BasicAuth(key, secret)
        except BaseException:
            shell.kill()
            self.stop()
            raise

    @property
    def base_url(self) -> str:
        """The address of the web process."""
        return str(self.client.base_url).rstrip("/")

    def stop(self) -> None:
        """Stop the processes in the order of their start, so that the worker finishes first."""
        for process in self._processes:
            process.stop()

    def call(self, method: str, path: str, *, expect: int, body: Any = None) -> Any:
        """Send a request, check its status and return its JSON (None if the response is empty)."""
        response = self.client.request(method, path, json=body)
        assert response.status_code == expect, f"{method} {path}: {response.status_code} {response.text}\n{self.log_tail()}"
        return response.json() if response.content else None

    def wait_for(self, what: str, poll: Callable[[], Any], *, timeout_s: float = 180.0) -> Any:
        """Poll until the result is true and return it; fail with ``what`` and the logs after the timeout."""
        began = time.monotonic()
        deadline = began + timeout_s
        while not (result := poll()):
            polled = time.monotonic()
            assert polled < deadline, f"{what}: not within {timeout_s} s\n{self.log_tail()}"
            time.sleep(max(POLL_S, polled - began))
            began = time.monotonic()
        return result

    def log_tail(self) -> str:
        """Return the last lines of the processes' logs."""
        return "\n".join(process.log_tail() for process in self._processes)

    def _ready(self) -> bool:
        """Return whether /readyz succeeds; it also needs the worker, which probes the registered clusters."""
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _start(self, name: str, program: str, *arguments: str) -> Process:
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        process = Process(command, name=name, log=self._directory / f"{name}.log", env=self._env, cwd=ROOT)
        self._processes.append(process)
        return process

    def _shell(self, script: str) -> subprocess.Popen[str]:
        """Run a script in the product's shell."""
        command = [sys.executable, "manage.py", "shell", "-v0", "-c", script]
        with (self._directory / "shell.log").open("w") as errors:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
                env={**os.environ, **self._env},
            )  # fmt: skip

    def _shell_log(self) -> str:
        return (self._directory / "shell.log").read_text()


@contextmanager
def running(*, directory: Path, clusters: Mapping[str, Mapping[str, str]]) -> Iterator[Service]:
    """Run the product during a ``with`` block; the user ``owner`` administers its one environment, named Test."""
    service = Service(directory=directory, clusters=clusters)
    try:
        yield service
    finally:
        service.client.close()
        service.stop()
