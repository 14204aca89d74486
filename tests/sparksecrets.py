"""Finds settings of the product and secrets of Spark in the environments and arguments of processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

PASSED_ON = "_SPARK_AUTH_SECRET="  # Spark passes its secret to the executors of a cluster in this variable
_OF_THE_PRODUCT = ("SECRET_KEY", "CREDENTIALS_KEY", "DATABASE_URL", "REDIS_URL")


def exposed(pids: Iterable[int], secrets: Iterable[str], *, passed_on: str = "") -> list[str]:
    """Return in which files of /proc these secrets of Spark, or a setting of the product, are.

    The test suite has the settings of the product in its environment, as a deployment might. Variables that begin with
    ``passed_on`` are left out.
    """
    words = ["CLUSTERLINK_", *(os.environ[f"CLUSTERLINK_{name}"] for name in _OF_THE_PRODUCT), *secrets]
    assert all(words)
    found = []
    for path in (Path(f"/proc/{pid}/{file}") for pid in pids for file in ("environ", "cmdline")):
        parts = [part for part in _read(path).split("\0") if not passed_on or not part.startswith(passed_on)]
        if any(word in part for word in words for part in parts):
            found.append(f"{path} ({_read(path.with_name('comm')).strip()})")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # the process has ended
        return ""
