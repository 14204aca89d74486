"""The test's side of the crashing worker: starts it, sets the tasks at which it crashes, and reads where it did."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from django.conf import settings
from django.db import connection

from console.models import MirrorPartition, MirrorTopic
from devcluster.processes import Process

ROOT = Path(__file__).resolve().parents[3]
START_TIMEOUT_S = 180.0
POLL_EVERY_S = 0.25  # or as long as a check takes, if that is longer: it may read a whole topic


class CrashError(BaseException):
    """The Celery worker was killed: its task ends without a report."""


class CrashingWorkers:
    """Workers in sequence; each crashes at the next step at which none has crashed yet."""

    def __init__(self, directory: Path) -> None:
        """Start the parent process of the workers; no worker runs yet."""
        self._home = directory
        (directory / "steps").mkdir()
        (directory / "watched_tasks").touch()
        env = {
            "CLUSTERLINK_DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
            "CLUSTERLINK_REDIS_URL": settings.REDIS_URL,
            "CLUSTERLINK_EXPORT_DIR": str(directory / "exports"),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "tests.console.workflows.crashing_worker", str(directory)]
        self._parent = Process(command, name="deadly-worker", log=directory / "worker.log", env=env, cwd=ROOT)
        self._parent.wait_until((directory / "idle").exists, timeout_s=START_TIMEOUT_S)

    @property
    def exports(self) -> Path:
        """The export directory of the workers."""
        return self._home / "exports"

    @contextlib.contextmanager
    def living(self) -> Iterator[CrashingWorkers]:
        """Run workers for the length of a block."""
        self.crash_at()
        (self._home / "run").touch()
        try:
            yield self
        finally:
            (self._home / "run").unlink()
            deadline = time.monotonic() + START_TIMEOUT_S
            while not (self._home / "idle").exists():
                self.kill()
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def crash_at(self, *tasks: str) -> None:
        """Crash at every step of these tasks from now on; earlier steps are forgotten."""
        (self._home / "watched_tasks").write_text("")
        shutil.rmtree(self._home / "steps")
        (self._home / "steps").mkdir()
        (self._home / "watched_tasks").write_text(" ".join(tasks))

    def kill(self) -> None:
        """Kill the worker that is running now."""
        pids = self._pids()
        with contextlib.suppress(ProcessLookupError):
            if pids:
                os.kill(int(pids[-1]), signal.SIGKILL)

    def steps(self) -> set[str]:
        """Return the steps at which workers crashed."""
        return {step.name for step in (self._home / "steps").iterdir()}

    def count(self) -> int:
        """Return how many workers were started."""
        return len(self._pids())

    def wait_for(self, condition: Callable[[], bool], *, timeout_s: float = 300.0) -> None:
        """Repeat a check until it is true."""
        began = time.monotonic()
        deadline = began + timeout_s
        while not condition():
            polled = time.monotonic()
            assert polled < deadline, f"Died at {sorted(self.steps())}.\n{self._parent.log_tail(lines=60)}"
            assert self._parent.running(), self._parent.log_tail(lines=60)
            time.sleep(max(POLL_EVERY_S, polled - began))
            began = time.monotonic()

    def stop(self) -> None:
        """Kill the parent process and the running worker."""
        self._parent.kill()

    def _pids(self) -> list[str]:
        file = self._home / "starts"
        return file.read_text().split() if file.exists() else []


def around(*names: str, task: str) -> set[str]:
    """Return the steps before and after calls within a task, and its beginning; a crash may prevent its end."""
    return {f"{task}.{moment}-{name}" for name in names for moment in ("before", "after")} | {f"{task}.before-task"}


def after(*names: str, task: str) -> set[str]:
    """Return the steps after calls that only read."""
    return {f"{task}.after-{name}" for name in names}


def phases(mirror: MirrorTopic) -> set[str]:
    """Return the phases that the partitions of a mirror report."""
    return set(MirrorPartition.objects.filter(mirror=mirror).values_list("phase", flat=True))
