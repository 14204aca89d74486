"""Copy workers in processes that can be killed: a parent that has imported everything forks a child per order.

`python -m chaos.copier <directory> [mutation]`: orders are read line by line from the FIFO ``orders``, as names of files in the
directory that hold a pickled CopyOrder or StopOrder; a child writes its process id to ``<name>.pid``. The mutation is applied
here, in a process of the test: the product's code has no switch for it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from chaos.mutations import mutate
from chaos.orders import FIFO, CopyOrder, StopOrder, write_whole
from linkengine.copyjob.spark_job import copy_until_the_end
from linkengine.domain.errors import LinkEngineError
from linkengine.jobs import stop_mirrors

RETRY_S = 0.5


def obey(directory: Path, name: str) -> None:
    """Execute an order; runs in the child."""
    order = pickle.loads((directory / name).read_bytes())
    write_whole(directory / f"{name}.pid", str(os.getpid()).encode())
    if isinstance(order, CopyOrder):
        copy_until_the_end(order.setup)
    else:
        write_whole(directory / f"{name}.ends", pickle.dumps(stop(order)))


def stop(order: StopOrder) -> dict[int, int]:
    """Stop a mirror and return its ends by partition. A failed attempt is repeated, as in the console."""
    while True:
        (result,) = stop_mirrors([order.stop]).values()
        if not isinstance(result, LinkEngineError):
            return dict(result.ends)
        # for example while a fault holds up a broker
        print(f"stop.failed: {result.code}: {result.message}", flush=True)
        time.sleep(RETRY_S)


def main(directory: Path, mutation: str = "") -> None:
    """Fork a child per line until all writers of the FIFO have closed it."""
    mutate(mutation)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    assert threading.active_count() == 1, "only a single-threaded process may fork"
    with (directory / FIFO).open() as orders:
        serve(directory, orders)


def serve(directory: Path, orders: Iterable[str]) -> None:
    """Fork a child per order."""
    for line in orders:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            obey(directory, line.strip())
            os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
