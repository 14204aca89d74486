"""A Redis server on a free port of this machine, with a password, and without persistence by default.

Does not know the stored data. The password is in a file that only the user can read, never in a process argument.
"""

import secrets
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from devcluster import parts
from devcluster.ports import LOOPBACK, free_port
from devcluster.processes import STOP_TIMEOUT_S, Process

START_TIMEOUT_S = 60.0


class RedisServer:
    """A local Redis server; also a context manager that starts and stops it."""

    def __init__(
        self, *, directory: Path | None = None, append_only: bool = False, port: int | None = None, password: str | None = None
    ) -> None:
        """Plan a server. Default: a temporary directory, deleted on stop, and a new password."""
        self.port = port or free_port()
        self._password = password or secrets.token_urlsafe(24)
        self._append_only = append_only
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="redis-"))
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """The address with password and database 0."""
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/0"

    def start(self) -> Self:
        """Start the server and wait until it responds. About 0.1 s."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            parts.program("redis-server", package="redis-server"),
            self._write_config(),
            *("--bind", LOOPBACK, "--port", str(self.port), "--dir", str(self.directory), "--save", ""),
            *("--appendonly", "yes" if self._append_only else "no"),
        ]
        self._process = Process(command, name="redis", log=self.directory / "redis.log")
        self._process.wait_until(self._responds, timeout_s=START_TIMEOUT_S)
        return self

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the server. Safe to repeat."""
        if self._process is not None:
            self._process.stop(timeout_s=timeout_s)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """Kill the server with SIGKILL; `start` restarts it on the same port."""
        if self._process is not None:
            self._process.kill()

    def forget(self) -> None:
        """Delete the data of a killed server."""
        shutil.rmtree(self.directory / "appendonlydir", ignore_errors=True)

    def __enter__(self) -> Self:
        """Start the server."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop the server."""
        self.stop()

    def _write_config(self) -> str:
        path = self.directory / "redis.conf"
        path.touch(mode=0o600)
        path.write_text(f"requirepass {self._password}\nmasterauth {self._password}\n")
        return str(path)

    def _responds(self) -> bool:
        with redis.Redis.from_url(self.url, socket_timeout=1.0) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False
