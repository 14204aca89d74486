"""The process from which Spark forks its Python workers, with slow imports done before the fork.

Set as `spark.python.daemon.module`. A new worker otherwise spends one to three seconds on imports of pyarrow and the engine
before its first record; a fork of this process has them. The module names come from the environment, so this file
names none. Spark reads the daemon's port from standard output, so nothing here may print to it.
"""

import importlib
import os
import sys

from pyspark.daemon import manager

from devcluster.spark import PRELOAD_VARIABLE


def preload(names: str) -> list[str]:
    """Import the modules; return those that could not be imported, which only makes workers start more slowly."""
    failures = []
    for name in filter(None, names.split(",")):
        try:
            importlib.import_module(name)
        except (ImportError, SyntaxError) as error:
            failures.append(f"{name}: {error}")
    return failures


if __name__ == "__main__":
    for failure in preload(os.environ.get(PRELOAD_VARIABLE, "")):
        sys.stderr.write(f"Not imported before the fork: {failure}\n")
    manager()
