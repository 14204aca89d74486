"""Processor time of the demo while it is idle: three mirrors and 20 records/s, with everything that `make demo` starts."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from bench.figures import Figure
from devcluster.demo.live import PER_SECOND
from devcluster.parts import ROOT
from devcluster.processes import Process

NAME = "idle demo"
SETTLE_S, SECONDS = 60.0, 60.0
MOST_CORES = 0.42  # before there were copy workers
_UP = "The demo stays up"
_START_TIMEOUT_S, _STOP_TIMEOUT_S = 600.0, 90.0
_KINDS = {  # word of a command line -> part; the first that matches counts
    "kafka.Kafka": "both brokers",
    "SparkConnectServer": "Spark's JVM",
    "warm_daemon": "copy worker",
    "uvicorn": "web",
    "beat-schedule": "beat",
    "celery": "worker",
    "redis-server": "Redis",
    "devcluster.demo": "the demo itself, with its writer",
}


def measure_idle_demo() -> Iterator[Figure]:
    """Start the demo, wait until it is idle, and measure each part of it."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "demo.log"
        env = {"PYTHONUNBUFFERED": "1"}  # so that its log shows at once when it is up
        demo = Process([sys.executable, "-m", "devcluster.demo"], name="demo", log=log, cwd=ROOT, env=env)
        try:
            demo.wait_until(lambda: _UP in log.read_text(errors="replace"), timeout_s=_START_TIMEOUT_S)
            time.sleep(SETTLE_S)
            before, began = _cpu_s(demo.pid), time.monotonic()
            time.sleep(SECONDS)
            after, seconds = _cpu_s(demo.pid), time.monotonic() - began
        finally:
            demo.stop(timeout_s=_STOP_TIMEOUT_S)
    cores: dict[str, float] = defaultdict(float)
    for (pid, part), spent_s in after.items():
        cores[part] += (spent_s - before.get((pid, part), 0.0)) / seconds
    what = f"idle demo, three mirrors and {PER_SECOND} records/s"
    yield Figure(what=f"{what}: everything", unit="cores", found=sum(cores.values()), goal=MOST_CORES, most=True, digits=2)
    for part, found in cores.items():
        yield Figure(what=f"{what}: {part}", unit="cores", found=found, digits=3)


def _cpu_s(pid: int) -> Mapping[tuple[int, str], float]:
    """Return the processor time of each process that runs now, by process id and part.

    Not that of ended children: Spark's daemon does not wait for each of its Python workers, whose time would then be lost.
    """
    found: dict[tuple[int, str], float] = {}
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            line, times = " ".join(process.cmdline()), process.cpu_times()
            part = next((part for word, part in _KINDS.items() if word in line), "others")
            found[process.pid, part] = times.user + times.system
    return found
