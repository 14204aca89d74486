"""The copy loop in processes that may be killed: a parent that has imported everything forks one copier per order.

`python -m chaos.copier <directory> [mutation]`: orders come line by line through the FIFO ``orders``, as names of files in the
directory that hold a pickled CopyOrder; a copier writes its process id to ``<name>.pid``. The mutation is applied here, in the
test's own process: product code has no switch for it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from chaos.mutations import mutate
from chaos.orders import FIFO, CopyOrder, write_whole
from linkengine.coordination.lease import RedisLease
from linkengine.coordination.orders import RedisOrders
from linkengine.coordination.progress import RedisProgress
from linkengine.copyjob.loop import run_task
from linkengine.domain.plans import CopyPlan
from linkengine.jobs import stop_mirror


def copy(plan: CopyPlan) -> None:
    """Copy for one slice, as a Spark task does."""
    run_task(
        plan,
        plan.assignments,
        lease=RedisLease(plan.redis_url, ttl_ms=plan.tuning.lease_ttl_ms),
        orders=RedisOrders(plan.redis_url, plan.link_id, plan.signer),
        progress=RedisProgress(plan.redis_url, plan.link_id, plan.signer),
    )


def obey(directory: Path, name: str) -> None:
    """Carry out one order; the child's work."""
    order = pickle.loads((directory / name).read_bytes())
    write_whole(directory / f"{name}.pid", str(os.getpid()).encode())
    if isinstance(order, CopyOrder):
        copy(order.plan)
    else:
        write_whole(directory / f"{name}.ends", pickle.dumps(dict(stop_mirror(order.stop).ends)))


def main(directory: Path, mutation: str = "") -> None:
    """Fork a child per line until the writers of the FIFO are gone."""
    mutate(mutation)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    assert threading.active_count() == 1, "only a process of one thread may fork"
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
