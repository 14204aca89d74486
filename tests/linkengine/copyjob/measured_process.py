"""Runs a copy worker in a process of its own, whose memory is measured.

Reads the worker's plans from a pickled file; the second argument is the end to reach. Imports first what the Python worker
of an executor imports. Prints the resident megabytes before the copy and at the peak.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
import time
from pathlib import Path

from devcluster.spark import PRELOAD
from linkengine.copyjob.coordination_thread import CoordinationPorts
from linkengine.copyjob.worker import run_worker
from linkengine.domain.plans import CopyPlan
from tests.linkengine.copyjob.copying import setup_for
from tests.linkengine.copyjob.memory import MemoryAssignments, MemoryLease, MemoryProgress

DEADLINE_S = 200.0


def resident_mb(which: str) -> int:
    """Return VmRSS or VmHWM of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which)) // 1024


def main(plans_file: str, end: str) -> None:
    for module in PRELOAD:
        importlib.import_module(module)
    plans: list[CopyPlan] = pickle.loads(Path(plans_file).read_bytes())
    partitions = sum(len(plan.assignments) for plan in plans)
    assignments, progress = MemoryAssignments(*plans), MemoryProgress()
    before = resident_mb("VmRSS")

    def stop_at_the_end() -> None:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            latest = list(progress.latest.values())
            if len(latest) == partitions and all(report.mirror_end == int(end) for report in latest):
                break
            time.sleep(0.05)
        assignments.end()

    watch = threading.Thread(target=stop_at_the_end)
    watch.start()
    run_worker(setup_for(), ports=CoordinationPorts(lease=MemoryLease(), assignments=assignments, progress=progress))
    watch.join()
    ends = sorted({report.mirror_end or -1 for report in progress.latest.values()})
    errors = {report.error_message for report in progress.latest.values() if report.error_message}
    sys.stdout.write(f"{before} {resident_mb('VmHWM')} {ends} {errors or ''}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
