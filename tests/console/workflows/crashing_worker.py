"""A real Celery worker that crashes (SIGKILL) at every step of the given tasks, once per step, and is started again.

A step is the moment before or after a call of the engine, a change of a mirror's state, a callback of the engine that stores a
result, or a whole task. The parent process has everything imported and forks a worker each time: settings, queue, threads and
tasks are the product's own. Only its pauses are shorter. In the directory it is given, ``run`` means that a worker is to run
and ``idle`` that none does, ``watched_tasks`` lists the tasks, ``steps`` gets a file per step at which a worker crashed,
``starts`` a line per worker.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
django.setup()

from celery import current_task  # noqa: E402 - after the settings
from celery.signals import worker_ready  # noqa: E402

from console.reconciling import plans  # noqa: E402

plans.TUNING = replace(plans.TUNING, lease_ttl_ms=1_500)  # before other modules import it

# imports that take a second, once instead of once per worker
import celery.apps.worker  # noqa: E402
import celery.bin.celery  # noqa: E402
import celery.concurrency.thread  # noqa: E402
import celery.worker.autoscale  # noqa: E402
import celery.worker.consumer  # noqa: E402, F401
import psutil  # noqa: E402, F401
import pyspark.sql.connect.session  # noqa: E402, F401

import console.urls  # noqa: E402, F401
from console.celery import app  # noqa: E402
from console.mirrors import bulk_actions, transitions  # noqa: E402
from console.reconciling import due_tasks  # noqa: E402
from console.redis import locks  # noqa: E402
from console.tasks import links as link_tasks  # noqa: E402
from console.tasks import mirrors as mirror_tasks  # noqa: E402
from console.workflows import links, pool, reverse_and_restore, stopping  # noqa: E402
from linkengine import jobs  # noqa: E402

BEAT_S = 0.4
# A call that only reads changes nothing, so crashing before it equals crashing after the previous step.
READING = frozenset(
    {
        "find_mirror",
        "find_topic",
        "group_blockers",
        "has_kept",
        "list_topics",
        "log_ranges",
        "promotion_blockers",
        "read_kept",
        "read_news",
        "read_readings",
        "read_workers",
        "topic_ends",
        "failed_tail_checks",
    }
)
# Django's checks would take much of a worker's start, with the same result each time.
WORKER = ["--skip-checks", "worker", "--loglevel=INFO", "--without-mingle", "--without-gossip", "--without-heartbeat"]


class Deaths:
    """Where workers crash, stored in files because memory does not survive."""

    def __init__(self, directory: Path) -> None:
        """Use ``directory``, which the test has created."""
        self._watched_tasks, self._steps = directory / "watched_tasks", directory / "steps"

    def wrap(self, name: str, real: Callable[..., Any], task: str = "") -> Callable[..., Any]:
        """Return ``real`` with a step after it, and before it unless it only reads."""

        @wraps(real)
        def deadly(*args: Any, **kwargs: Any) -> Any:
            if name not in READING:
                self._maybe_die(task, f"before-{name}")
            response = real(*args, **kwargs)
            self._maybe_die(task, f"after-{name}")
            return response

        return deadly

    def _maybe_die(self, task: str, step: str) -> None:
        task = task or getattr(current_task, "name", "")
        if task not in self._watched_tasks.read_text().split():
            return
        try:
            os.close(os.open(self._steps / f"{task}.{step}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def add_steps(deaths: Deaths) -> None:
    """Add a step before and after everything that has an effect outside of the worker's memory."""
    for name in jobs.__all__:
        setattr(jobs, name, deaths.wrap(name, getattr(jobs, name)))
    transitions.apply_event = deaths.wrap("move", transitions.apply_event)
    transitions.apply_to_many = deaths.wrap("move", transitions.apply_to_many)
    stopping._record_ends = deaths.wrap("record-ends", stopping._record_ends)  # with its transaction
    bulk_actions.carry_out = deaths.wrap("carry-out", bulk_actions.carry_out)  # some topics of an operation
    for name, task in app.tasks.items():
        if not name.startswith("celery."):
            patch.object(task, "run", deaths.wrap("task", task.run, task=name)).start()


def hurry() -> None:
    """Shorten the pauses between attempts. The order of operations stays the same."""
    locks.LOCK_TTL_S = 0.5
    links.CLAIM_MS = link_tasks.WAITING_MS = 200
    mirror_tasks.BULK_RESEND_MS = mirror_tasks.DRILL_RESEND_MS = 200
    mirror_tasks.RUN_CLAIM_MS = 200
    pool.CLAIM_MS = 200
    reverse_and_restore.POLL_EVERY_S = 0.1
    patch.object(reverse_and_restore, "SETTLE_S", 0.2).start()
    due_tasks.MANY = 3
    bulk_actions.TOGETHER = 20


@worker_ready.connect
def _beat(**_: Any) -> None:
    def beat() -> None:
        while True:
            app.send_task("reconcile", expires=1)
            time.sleep(BEAT_S)

    Thread(target=beat, name="beat", daemon=True).start()


def live() -> None:
    """Run a worker until it is killed."""
    app.worker_main([*WORKER, "-n", f"deadly-{os.getpid()}@%h"])
    os._exit(1)


def main(directory: Path) -> None:
    """Start workers in sequence, as long as the test wants them."""
    run, idle, starts = directory / "run", directory / "idle", directory / "starts"
    app.finalize()
    hurry()
    add_steps(Deaths(directory))
    gc.freeze()  # a worker's garbage collections would copy the memory that it shares with this process
    while True:
        while not run.exists():
            idle.touch()
            time.sleep(0.05)
        idle.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            live()
        with starts.open("a") as file:
            file.write(f"{child}\n")
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
