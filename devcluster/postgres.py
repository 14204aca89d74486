"""A PostgreSQL server on a free port of this machine, for database tests. Its data is deleted when it stops.

PostgreSQL refuses to run as root; started by root it runs as the user `postgres`, which Debian's package creates.
"""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from devcluster.parts import PartsMissingError, program
from devcluster.ports import LOOPBACK, accepts, free_port
from devcluster.processes import Process

START_TIMEOUT_S = 180.0
INIT_TIMEOUT_S = 120.0
SYSTEM_USER = "postgres"
DATABASE = "postgres"


class PostgresServer:
    """A local server with a single user; also a context manager that starts and stops it."""

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        """Plan a server in a temporary folder, with additional ``settings`` of postgresql.conf."""
        self.port = free_port()
        self._settings = {"fsync": "off", **(settings or {})}  # a test database need not survive a power failure
        self._password = secrets.token_hex(16)
        self._directory = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """The address with user, password and database."""
        return f"postgres://{SYSTEM_USER}:{self._password}@{LOOPBACK}:{self.port}/{DATABASE}"

    def start(self) -> Self:
        """Create the data folder, start the server and wait until it accepts connections. About 3 s."""
        password = self._directory / "password"
        password.touch(mode=0o600)
        password.write_text(self._password)
        self._change_owner()
        data = str(self._directory / "data")
        self._run("initdb", "-D", data, "-U", SYSTEM_USER, "-A", "scram-sha-256", f"--pwfile={password}", "--no-sync")
        password.unlink()
        self.resume_service()
        return self

    def resume_service(self) -> None:
        """Start the server on its data, also after `kill`."""
        command = [*_as_user(), _binary("postgres"), "-D", str(self._directory / "data"), "-h", LOOPBACK, "-p", str(self.port)]
        command += ["-k", str(self._directory), *(word for item in self._settings.items() for word in ("-c", "=".join(item)))]
        self._process = Process(command, name="postgres", log=self._directory / "postgres.log")
        self._process.wait_until(lambda: accepts(self.port), timeout_s=START_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the server with SIGKILL; its data stays."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Freeze the server: the kernel accepts connections, but nothing responds, on open connections neither."""
        for process in self._processes():
            process.suspend()

    def resume(self) -> None:
        """Continue a frozen server."""
        for process in reversed(self._processes()):
            process.resume()

    def stop(self) -> None:
        """Stop the server and remove its data. Safe to repeat."""
        if self._process is not None:
            self._process.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        """Start the server."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop the server."""
        self.stop()

    def _processes(self) -> list[psutil.Process]:
        """Return the main process and then those of connections, each of which leads a session of its own."""
        if self._process is None or not self._process.running():
            return []
        main = psutil.Process(self._process.pid)
        return [main, *main.children(recursive=True)]

    def _change_owner(self) -> None:
        if os.geteuid() == 0:
            for path in (self._directory, *self._directory.iterdir()):
                shutil.chown(path, SYSTEM_USER)

    def _run(self, name: str, *arguments: str) -> None:
        command = [*_as_user(), _binary(name), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INIT_TIMEOUT_S, cwd="/", check=False)
        if done.returncode:
            raise RuntimeError(f"{name} failed: {done.stdout}{done.stderr}")


def _as_user() -> list[str]:
    if os.geteuid() != 0:
        return []
    group = str(pwd.getpwnam(SYSTEM_USER).pw_gid)
    return ["setpriv", f"--reuid={SYSTEM_USER}", f"--regid={group}", "--clear-groups"]


def _binary(name: str) -> str:
    """Return a program of the newest installed server, which Debian does not put on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    if found:
        return str(found[-1])
    try:
        return program(name, package="postgresql")
    except PartsMissingError:
        raise PartsMissingError("PostgreSQL's server is not installed. Install the Debian package postgresql.") from None
