"""Several things done at the same moment, each over a database connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread

from django.db import connection

TIMEOUT_S = 60


def run_concurrently(*works: Callable[[], object]) -> None:
    """Run each in a thread; they begin together."""
    start = Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        start.wait(TIMEOUT_S)
        try:
            work()
        finally:
            connection.close()

    threads = [Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
