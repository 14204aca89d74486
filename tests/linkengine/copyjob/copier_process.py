"""Runs copy workers as processes that a test may kill.

The parent has imported everything and forks a worker per line of input. Each worker gets the next setup of a pickled
file; the parent prints the process id of each worker that it starts.
"""

import os
import pickle
import sys
from pathlib import Path

from linkengine.copyjob.spark_job import copy_until_the_end
from linkengine.domain.workers import WorkerSetup


def main(setups_file: str) -> None:
    setups: list[WorkerSetup] = pickle.loads(Path(setups_file).read_bytes())
    for number, _ in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            # the test reads process ids from the parent's stdout; logs go to stderr
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
            copy_until_the_end(setups[number])
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
