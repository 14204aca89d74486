"""One copy task in a process of its own, whose memory is measured: the plan comes pickled in a file, with the offset to reach.

Imports first what the Python worker of an executor has imported. Prints the resident megabytes before and at the peak.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
import time
from pathlib import Path

from linkengine.copyjob.loop import run_task

from devcluster.spark import PRELOAD
from linkengine.domain.leases import OrdersSnapshot
from linkengine.domain.plans import CopyPlan
from tests.linkengine.copyjob.memory import MemoryLease, MemoryOrders, MemoryProgress

DEADLINE_S = 120.0


def resident_mb(which: str) -> int:
    """Read VmRSS or VmHWM of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which)) // 1024


def main(plan_file: str, end: str) -> None:
    for module in PRELOAD:
        importlib.import_module(module)
    plan: CopyPlan = pickle.loads(Path(plan_file).read_bytes())
    lease, orders, progress = MemoryLease(), MemoryOrders(), MemoryProgress()
    before = resident_mb("VmRSS")

    def stop_at_the_end() -> None:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            latest = list(progress.latest.values())
            if latest and all(one.mirror_end == int(end) for one in latest):
                break
            time.sleep(0.05)
        orders.snapshot = OrdersSnapshot(revision=1, wanted={})

    watch = threading.Thread(target=stop_at_the_end)
    watch.start()
    run_task(plan, plan.assignments, lease=lease, orders=orders, progress=progress)
    watch.join()
    ends = [one.mirror_end for one in progress.latest.values()]
    problems = {one.error_message for one in progress.latest.values() if one.error_message}
    sys.stdout.write(f"{before} {resident_mb('VmHWM')} {ends} {problems or ''}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
