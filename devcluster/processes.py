"""Start programs, wait until they are ready, stop them, and leave no process behind.

Does not know the programs. Every child gets a session of its own (so Ctrl-C reaches only this process, which stops the children
in order) and writes to a log file. The watcher of `reaper.py` kills it when this process ends in any way.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from devcluster import reaper

POLL_S = 0.05
STOP_TIMEOUT_S = 20.0
LOG_TAIL_LINES = 30

_guard_lock = threading.Lock()
_guards: dict[int, "subprocess.Popen[bytes]"] = {}


class ProcessFailedError(RuntimeError):
    """A program ended, or was not ready in time; the message has the tail of its log."""


def _send_to_guard(line: str) -> None:
    with _guard_lock:
        watcher = _guards.get(os.getpid())
        if watcher is None:
            command = [sys.executable, "-E", "-S", str(Path(reaper.__file__)), str(os.getpid())]
            watcher = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            _guards[os.getpid()] = watcher
        assert watcher.stdin is not None
        os.write(watcher.stdin.fileno(), f"{line}\n".encode())


def run(
    command: Sequence[str], *, text: str = "", env: Mapping[str, str], cwd: Path, timeout_s: float
) -> "subprocess.CompletedProcess[str]":
    """Run a short program to its end with `text` as its input; it is killed with this process, like the others."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
        env={**os.environ, **env}, start_new_session=True,
    ) as popen:  # fmt: skip
        _send_to_guard(f"+{popen.pid}")
        try:
            output, errors = popen.communicate(text, timeout_s)
        finally:
            reaper.kill_session(popen.pid)
            _send_to_guard(f"-{popen.pid}")
    return subprocess.CompletedProcess(command, popen.returncode, output, errors)


class Process:
    """A running program with its log file."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        withheld: str | None = None,
    ) -> None:
        """Start the program; `env` is added to this process's environment.

        Variables that begin with `withheld` are not inherited.
        """
        inherited = {key: value for key, value in os.environ.items() if withheld is None or not key.startswith(withheld)}
        log.parent.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = log
        self._gone = False
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=cwd,
                env={**inherited, **(env or {})}, start_new_session=True,
            )  # fmt: skip
        _send_to_guard(f"+{self.pid}")

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its session and group."""
        return self._popen.pid

    def running(self) -> bool:
        """Return whether the program itself is running."""
        return self._popen.poll() is None

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float, poll_s: float = POLL_S) -> None:
        """Wait for readiness; raise ProcessFailedError with the log's tail if the program ends or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running():
                raise ProcessFailedError(
                    self._message_with_log(f"ended with code {self._popen.returncode} before it was ready")
                )
            if time.monotonic() > deadline:
                raise ProcessFailedError(self._message_with_log(f"was not ready after {timeout_s:.0f} s"))
            time.sleep(poll_s)

    def wait_until_ended(self, *, timeout_s: float) -> None:
        """Wait for a program that ends on its own; raise ProcessFailedError with the log's tail if it failed."""
        try:
            code = self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessFailedError(self._message_with_log(f"had not ended after {timeout_s:.0f} s")) from None
        self.kill()
        if code:
            raise ProcessFailedError(self._message_with_log(f"ended with code {code}"))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program's process group; does nothing if the program has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def pause(self) -> None:
        """Freeze the program: its connections stay open, but it does not respond."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a frozen program."""
        self.signal(signal.SIGCONT)

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send SIGTERM to the program; kill its whole session after the time limit. Safe to repeat."""
        if self.running():
            self.signal(signal.SIGTERM)
            self.resume()  # a frozen program handles SIGTERM only when it runs again
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kill the program and everything in its session at once. Safe to repeat."""
        if self._gone:
            return  # its id may have been reused
        if self.running() or not Path(f"/proc/{self.pid}").exists():  # otherwise the id has been reused
            reaper.kill_session(self.pid)
        self._popen.wait(STOP_TIMEOUT_S)
        self._gone = True
        _send_to_guard(f"-{self.pid}")

    def log_tail(self, *, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _message_with_log(self, what: str) -> str:
        return f"{self.name} {what}. The end of its log ({self.log}):\n{self.log_tail()}"
