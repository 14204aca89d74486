"""A copy worker in a process of its own, whose memory is measured: the plan comes pickled in a file, with the offset to reach.

Imports first what the Python worker of an executor has imported. Prints the resident megabytes before and at the peak.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path

from devcluster.spark import PRELOAD
from linkengine.domain.plans import CopyPlan
from tests.linkengine.copyjob.copying import Copier

DEADLINE_S = 120.0


def resident_mb(which: str) -> int:
    """Read VmRSS or VmHWM of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which)) // 1024


def main(plan_file: str, end: str) -> None:
    for module in PRELOAD:
        importlib.import_module(module)
    plan: CopyPlan = pickle.loads(Path(plan_file).read_bytes())
    before = resident_mb("VmRSS")
    with Copier(plan) as copier:
        copier.wait_until(lambda one: one.mirror_end == int(end), deadline_s=DEADLINE_S)
    results = copier.join()
    ends = [one.mirror_end for one in results]
    problems = {one.error_message for one in results if one.error_message}
    sys.stdout.write(f"{before} {resident_mb('VmHWM')} {ends} {problems or ''}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
