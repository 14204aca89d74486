"""Reads a partition as the Python workers of ``read_far`` do, in a process of its own, whose memory is measured.

The argument is a file with the pickled arguments of ``read_piece``. Imports first what the Python worker of an executor
imports. Prints the resident megabytes before and at the peak, the megabytes of the largest Arrow batch, and the rows of each.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path

from devcluster.spark import PRELOAD
from linkengine.jobs.verifying import read_piece
from tests.linkengine.copyjob.measured_process import resident_mb


def main(arguments_file: str) -> None:
    for module in (*PRELOAD, "pyarrow"):
        importlib.import_module(module)
    arguments = pickle.loads(Path(arguments_file).read_bytes())
    before, largest = resident_mb("VmRSS"), 0
    rows: list[int] = []
    for batch in read_piece(*arguments):
        largest = max(largest, batch.nbytes >> 20)
        rows.append(batch.num_rows)
        del batch
    sys.stdout.write(f"{before} {resident_mb('VmHWM')} {largest} {' '.join(map(str, rows))}\n")


if __name__ == "__main__":
    main(sys.argv[1])
