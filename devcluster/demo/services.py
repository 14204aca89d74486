"""The product's own processes for the demo: web, worker and beat on SQLite, and its management commands.

Starts them as an operator would, by command and environment; must not import the console.
"""

import base64
import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from devcluster.parts import ROOT
from devcluster.ports import LOOPBACK, preferred_port
from devcluster.processes import Process, run

COMMAND_TIMEOUT_S = 120.0
START_TIMEOUT_S = 180.0  # about 8 s on two idle cores
STOP_TIMEOUT_S = 4.0  # a worker would finish a running comparison; copies can be stopped anywhere
WEB_PORT = 8000
SERVICES = ("web", "worker", "beat")
SOURCES = ("console", "linkengine", "templates", "static/css", "static/js")
WATCHED = ("*.py", "*.html", "*.css", "*.js")  # templates and static files are read once, at start-up


class CommandFailedError(RuntimeError):
    """A management command failed; the message has its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """The directory and port of the demo's console, and the environment of its processes."""

    directory: Path
    port: int
    environment: Mapping[str, str]

    @property
    def base_url(self) -> str:
        """The console's address."""
        return f"http://{LOOPBACK}:{self.port}"


def plan_console(directory: Path, *, redis_url: str, spark_url: str, copy_workers: int = 1) -> Console:
    """Choose port and secrets."""
    environment = {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "CLUSTERLINK_DATABASE_URL": f"sqlite:///{directory / 'console.sqlite3'}",
        "CLUSTERLINK_REDIS_URL": redis_url,
        "CLUSTERLINK_SPARK_URL": spark_url,
        "CLUSTERLINK_SECRET_KEY": secrets.token_urlsafe(50),
        "CLUSTERLINK_CREDENTIALS_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "CLUSTERLINK_ALLOWED_HOSTS": f"{LOOPBACK},localhost",
        "CLUSTERLINK_DEBUG": "false",
        "CLUSTERLINK_COPY_WORKERS": str(copy_workers),
    }
    return Console(directory=directory, port=preferred_port(WEB_PORT), environment=environment)


def manage(console: Console, *arguments: str, text: str = "", **variables: str) -> str:
    """Run a management command with `text` as its input; return its output."""
    command = [sys.executable, "manage.py", *arguments]
    environment = {**console.environment, **variables}
    done = run(command, text=text, env=environment, cwd=ROOT, timeout_s=COMMAND_TIMEOUT_S)
    if done.returncode:
        raise CommandFailedError(f"manage.py {arguments[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def prepare(console: Console, *, user: str, password: str) -> dict[str, Any]:
    """Create the database, an administrator and an API key; return `api_key` and `api_secret`."""
    manage(console, "migrate", "--verbosity", "0")
    email = f"{user}@example.org"
    manage(console, "createsuperuser", "--noinput", "--username", user, "--email", email, DJANGO_SUPERUSER_PASSWORD=password)
    key: dict[str, Any] = json.loads(manage(console, "create_api_key", user, "--description", "demo"))
    return key


def register_cluster(console: Console, *, name: str, properties: Mapping[str, str]) -> None:
    """Register a cluster with the credentials that the link engine uses there."""
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    places = ("--organization", "Airports of New York", "--environment", "Demo")
    manage(console, "register_cluster", name, "--properties", "-", *places, text=text)


def start_services(console: Console, *, reload: bool) -> list[Process]:
    """Start web, worker and beat without waiting for them; each writes its own log."""
    return [start_service(console, name, reload=reload) for name in SERVICES]


def start_service(console: Console, name: str, *, reload: bool = False) -> Process:
    """Start a process of SERVICES, also after it was stopped."""
    commands = {"web": web_command(console, reload=reload), "worker": _worker(reload=reload), "beat": _beat(console)}
    log = console.directory / "logs" / f"{name}.log"
    return Process(commands[name], name=name, log=log, env=console.environment, cwd=ROOT)


def wait_ready(console: Console, services: Sequence[Process]) -> None:
    """Wait until the console reports that its database, Redis and a worker respond."""
    for service in services:
        service.wait_until(lambda: is_ready(console), timeout_s=START_TIMEOUT_S, poll_s=0.5)


def is_ready(console: Console) -> bool:
    """Return whether the console's readiness check succeeds."""
    try:
        with urlopen(f"{console.base_url}/readyz", timeout=5) as response:  # noqa: S310 - own address
            return bool(response.status == 200)
    except (URLError, TimeoutError, ConnectionError):
        return False


def web_command(console: Console, *, reload: bool) -> list[str]:
    """Return the command that starts the web process."""
    command = [sys.executable, "-m", "uvicorn", "console.asgi:application", "--host", LOOPBACK, "--port", str(console.port)]
    folders = [word for folder in SOURCES if (ROOT / folder).exists() for word in ("--reload-dir", folder)]
    kinds = [word for kind in WATCHED for word in ("--reload-include", kind)]
    return [*command, "--no-access-log", "--no-proxy-headers", *(["--reload", *folders, *kinds] if reload else [])]


def _worker(*, reload: bool) -> list[str]:
    command = [sys.executable, "-m", "celery", "-A", "console", "worker", "--pool", "threads", "--loglevel", "INFO"]
    command += ["--without-gossip", "--without-mingle"]  # not needed between workers, and both fail while Redis is down
    if not reload:
        return command
    return [sys.executable, "-m", "watchfiles", "--filter", "python", " ".join(command), "console", "linkengine"]


def _beat(console: Console) -> list[str]:
    schedule = str(console.directory / "beat-schedule")
    return [sys.executable, "-m", "celery", "-A", "console", "beat", "--schedule", schedule, "--loglevel", "WARNING"]
