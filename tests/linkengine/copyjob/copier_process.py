"""Copy workers as processes that a test may kill: a parent that has imported everything forks one per line of its input.

Each gets the setup of its line's worker; output: the process id of the worker just started. Plan and setups come pickled in a
file.
"""

import os
import pickle
import sys
from pathlib import Path

from linkengine.copyjob.spark import copy_until_the_end
from linkengine.domain.workers import WorkerSetup


def main(setups_file: str) -> None:
    setups: list[WorkerSetup] = pickle.loads(Path(setups_file).read_bytes())
    for number, _ in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the parent's answers are read from there, logs are not
            copy_until_the_end(setups[number])
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
