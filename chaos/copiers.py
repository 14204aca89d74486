"""Copy worker processes as seen by the harness: started by orders, killed, frozen."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from chaos.judge import Finding
from chaos.orders import FIFO, CopyOrder, StopOrder, write_whole
from chaos.troubles import crashes
from devcluster.parts import ROOT
from devcluster.processes import Process
from linkengine.domain.mirrorjobs import MirrorStop
from linkengine.domain.workers import WorkerSetup

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0
POLL_S = 0.02


class CopierFailedError(RuntimeError):
    """A copy worker did not start, or a stop did not end; the message has the end of the log."""


class Copiers:
    """A parent process and the copy workers that it forks."""

    def __init__(self, directory: Path, *, mutation: str = "") -> None:
        """Start the parent."""
        directory.mkdir(parents=True)
        self._directory = directory
        self._numbers = itertools.count(1)  # next() is atomic, so threads get different numbers
        os.mkfifo(directory / FIFO)
        command = [sys.executable, "-m", "chaos.copier", str(directory), mutation]
        environment = {"PYTHONPATH": str(ROOT)}
        self._parent = Process(command, name="copiers", log=directory / "copiers.log", env=environment, cwd=ROOT)
        self._orders = os.open(directory / FIFO, os.O_RDWR)  # opened read-write, so that it does not wait for the parent

    def copy(self, setup: WorkerSetup) -> int:
        """Start a copy worker and return its process id."""
        return int(self._result(self._send(CopyOrder(setup=setup)), "pid", START_TIMEOUT_S))

    def stop_mirror(self, stop: MirrorStop) -> dict[int, int]:
        """Stop a mirror in a process of its own; return its ends by partition."""
        ends: dict[int, int] = pickle.loads(self._result(self._send(StopOrder(stop=stop)), "ends", STOP_TIMEOUT_S))
        return ends

    def kill(self, pid: int) -> None:
        """Kill a process with SIGKILL and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._until(lambda: not psutil.pid_exists(pid), START_TIMEOUT_S, "does not end")

    def close(self) -> None:
        """Kill all processes."""
        self._parent.kill()
        os.close(self._orders)

    def crashes(self) -> Iterator[Finding]:
        """Yield the unexpected exceptions of all processes."""
        yield from crashes(self._parent.log)
        if not self._parent.running():
            yield Finding(kind="crash", detail=f"the parent of the copy workers has ended: {self.log_tail()}")

    @property
    def log(self) -> Path:
        """The log of all copy workers."""
        return self._parent.log

    def log_tail(self) -> str:
        """Return the end of their log."""
        return self._parent.log_tail()

    def _send(self, order: CopyOrder | StopOrder) -> str:
        name = f"order-{next(self._numbers)}"
        write_whole(self._directory / name, pickle.dumps(order))
        os.write(self._orders, f"{name}\n".encode())
        return name

    def _result(self, name: str, kind: str, timeout_s: float) -> bytes:
        path = self._directory / f"{name}.{kind}"
        self._until(path.exists, timeout_s, f"has no {kind}")
        return path.read_bytes()

    def _until(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline or not self._parent.running():
                raise CopierFailedError(f"A copy worker process {what}. The end of the log:\n{self.log_tail()}")
            time.sleep(POLL_S)


def freeze(pids: list[int]) -> None:
    """Send SIGSTOP."""
    _signal_all(pids, signal.SIGSTOP)


def thaw(pids: list[int]) -> None:
    """Send SIGCONT."""
    _signal_all(pids, signal.SIGCONT)


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
