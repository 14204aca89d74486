"""Rows of the result as JSON and as tables, with the goals beside the measured values."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median

from bench.latency import CAUGHT_UP_S, LATE_S
from bench.steal_time import MAX_STOLEN
from bench.workloads import COPIES, KAFKA_VERSION, LATENCIES, LATENCY, ROUNDS, THROUGHPUT, Workload

ENGINE, ENGINE_LOOP, MIRRORMAKER = "clusterlink", "clusterlink, copy loop only", "MirrorMaker 2"
BARE = "bare writer of the same batches"
PAIR = "bare writer, and a bare reader of the source"
FAR = "bare readers through the same proxies"
SHARES = {BARE: "share of the bare writer's rate", PAIR: "share of what bare reader and writer reach together"}
LEAST_OF_BARE = 0.9
MIRRORMAKER_S_PER_GB = 7.7  # its best, on the machine for which the goals in CPU seconds were set
LEAST_OF_WRITTEN = 10.0
MOST_MEMORY_MB = 256.0
JSON_FILE, TABLE_FILE = Path("var/benchmarks.json"), Path("docs/benchmarks.md")
_MIDDLE = ("mb_per_s", "records_per_s", "cpu_s_per_gb", "share", "p50_ms", "p99_ms", "cores", "stolen")
# how several measurements of a column are combined
_COMBINED: dict[str, Callable[[list[float]], float]] = {**dict.fromkeys(_MIDDLE, median), "worst_ms": max, "peak_mb": max}
_MARK = "<!-- written by `make bench`; do not edit -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An engine's result for a workload; None if not measured. MB and GB are decimal, of record payload."""

    workload: str
    engine: str
    mb_per_s: float | None = None
    records_per_s: float | None = None
    cpu_s_per_gb: float | None = None
    share: float | None = None  # this engine's rate in the same round, as a share of this rate
    p50_ms: float | None = None
    p99_ms: float | None = None
    worst_ms: float | None = None
    cores: float | None = None
    peak_mb: float | None = None  # of the largest worker
    stolen: float | None = None  # steal time during the measurement, as a share of the machine


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and the measured value."""

    workload: str
    what: str
    goal: float
    found: float
    most: bool  # the goal is an upper bound
    digits: int = 1

    @property
    def reached(self) -> bool:
        return self.found <= self.goal if self.most else self.found >= self.goal


@dataclass(frozen=True, slots=True)
class Round:
    """Rows of a workload that were measured in immediate succession."""

    rows: Sequence[Row]

    @property
    def stolen(self) -> float:
        return max(row.stolen or 0.0 for row in self.rows)


def medians(rounds: Sequence[Round]) -> Iterator[Row]:
    """Yield a row per engine of a workload that was measured several times: medians, the worst latency, the worst peak."""
    for takes in zip(*(measured.rows for measured in rounds), strict=True):
        yield replace(takes[0], **{name: _of_all(takes, name, choose) for name, choose in _COMBINED.items()})


def _of_all(takes: Sequence[Row], name: str, choose: Callable[[list[float]], float]) -> float | None:
    known = [value for take in takes if (value := getattr(take, name)) is not None]
    return choose(known) if known else None


def document(rows: Sequence[Row], *, now: datetime, appendix: Sequence[str] = ()) -> str:
    """Return the benchmark page; ``appendix``: lines about everything but copying."""
    return "\n".join([
        "# Benchmarks", "", _MARK, "",
        f"Measured {now:%Y-%m-%d} on {_machine()}. Two Kafka clusters (one broker each, SASL/SCRAM, ACLs on),",
        "Spark and the measured engine share this machine. One run, the engines in turn on the same topics.",
        f"Kafka and MirrorMaker 2: {KAFKA_VERSION}. Spark: {version('pyspark')}. Settings of both: `bench/`.", "",
        "MB/s and CPU count record payload (before compression, decimal units), between 5 % and 100 % of the copy.",
        "CPU is that of the engine's whole process tree: for ours the Spark Connect server, its JVM and its Python workers;",
        "*copy loop only* counts the Python workers alone. Brokers are not counted. Peak is the resident memory of the largest",
        "worker: a Python worker of ours, the JVM of MirrorMaker 2. The *bare writer* sends batches that it prepared before:",
        "the rate at which the destination accepts them, with the machine to itself. With a bare *reader* of the source beside",
        "it, whose bytes are thrown away, it is what these two clusters can do on this machine for anything that copies.",
        "Where there is a bare writer, our copy and it take turns, and medians are told (also of the shares,",
        "each that of one turn): a single take of some seconds is a matter of luck on a machine that has neighbours.",
        "*Stolen* is the share of all processor time that the host of this virtual machine gave to others meanwhile. What was",
        f"measured while more than {MAX_STOLEN:.0%} were stolen is measured again ({LATENCIES.max_stolen:.2%} of a latency: a",
        "p99 is the host's where it takes a hundredth); the calmest takes count, whatever they showed:",
        f"{ROUNDS} turns, {LATENCIES} takes of a latency, {COPIES} where a copy has no bare writer beside it.",
        "Of latencies p50, p99 and cores are medians, *worst* is the worst of all. All partitions are written to, and of a",
        "thousand every tenth is read: one consumer of all of them is a load of its own for the destination. Counted is",
        f"what was produced within a take, also what comes up to {LATE_S:.0f} s after it.",
        "Before anything is measured the brokers are warmed up, until a bare writer and reader's rate rises no more: their",
        "JVMs spend thrice as much on their first gigabytes.",
        "A source *80 ms away* is reached through proxies (`devcluster/distance.py`) that hold back what they pass for 40 ms",
        "in each direction and keep a limited number of bytes in flight per connection: 131,072 stand for stock socket",
        "buffers, with which MirrorMaker 2 copies a quarter of the records. The proxies share the machine: *bare readers*,",
        "with as many connections as a copy worker opens, whose bytes are thrown away, show what they and the source allow.",
        "After each copy the ends of all partitions are compared, and of transactions the committed records are counted.",
        "Where many topics are written to, another process writes. A take begins when all of them have received nothing but",
        f"fresh records for {CAUGHT_UP_S:.0f} s. A gap is the longest time without a record of one topic, from the beginning",
        "of the take to its end. Two copy workers on four task slots of Spark copy the fifty links.", "",
        *_throughput_table(rows), "", *_latency_table(rows), "", *_goal_table(rows), "", *appendix, "",
    ])  # fmt: skip


def goals(rows: Sequence[Row]) -> Iterator[Goal]:
    """Yield the goals with their measured values."""
    by_key = {(row.workload, row.engine): row for row in rows}
    for workload in THROUGHPUT:
        engine, loop, mirrormaker = (by_key.get((workload.name, name)) for name in (ENGINE, ENGINE_LOOP, MIRRORMAKER))
        if not (engine and loop and mirrormaker and engine.records_per_s and mirrormaker.records_per_s):
            continue
        times = engine.records_per_s / mirrormaker.records_per_s
        yield Goal(workload.name, "times MirrorMaker 2's rate", workload.least_times, times, most=False)
        if workload.least_mb_per_s is not None:
            yield Goal(workload.name, "MB/s", workload.least_mb_per_s, engine.mb_per_s or 0.0, most=False)
        if workload.written_per_s is not None:
            what = "times the rate that commits every 100 ms write at"
            yield Goal(workload.name, what, LEAST_OF_WRITTEN, engine.records_per_s / workload.written_per_s, most=False)
        yield from _cpu_goals(workload, loop, mirrormaker)
        for name, what in SHARES.items():
            bare = by_key.get((workload.name, name))
            if bare and bare.share:
                yield Goal(workload.name, what, LEAST_OF_BARE, bare.share, most=False, digits=2)
    yield from _steady_goals(by_key)
    peaks = [row for row in rows if row.engine in (ENGINE, ENGINE_LOOP) and row.peak_mb is not None]
    if peaks:
        worst = max(peaks, key=lambda row: row.peak_mb or 0.0)
        yield Goal(
            worst.workload,
            "MB of one copy task, the most of these rows",
            MOST_MEMORY_MB,
            worst.peak_mb or 0.0,
            most=True,
            digits=0,
        )


def _cpu_goals(workload: Workload, loop: Row, mirrormaker: Row) -> Iterator[Goal]:
    """Yield the goal in seconds, and the same as a share of MirrorMaker 2's, which is independent of the machine's speed."""
    if workload.most_cpu_s_per_gb is None or loop.cpu_s_per_gb is None:
        return
    yield Goal(workload.name, "CPU-s/GB of the copy loop", workload.most_cpu_s_per_gb, loop.cpu_s_per_gb, most=True, digits=2)
    if mirrormaker.cpu_s_per_gb:
        goal, share = round(workload.most_cpu_s_per_gb / MIRRORMAKER_S_PER_GB, 2), loop.cpu_s_per_gb / mirrormaker.cpu_s_per_gb
        yield Goal(workload.name, "the same, as a share of MirrorMaker 2's CPU-s/GB", goal, share, most=True, digits=2)


def _steady_goals(by_key: dict[tuple[str, str], Row]) -> Iterator[Goal]:
    for workload in LATENCY:
        row = by_key.get((workload.name, ENGINE))
        if row is None:
            continue
        bounds = (
            ("p50 ms", workload.most_p50_ms, row.p50_ms, 1),
            ("p99 ms", workload.most_p99_ms, row.p99_ms, 1),
            ("worst ms", workload.most_worst_ms, row.worst_ms, 1),
            ("cores of the copy loop", workload.most_cores, row.cores, 2),
        )
        yield from (
            Goal(workload.name, what, most, found, most=True, digits=digits)
            for what, most, found, digits in bounds
            if most is not None and found is not None
        )


def _throughput_table(rows: Sequence[Row]) -> list[str]:
    names = {workload.name for workload in THROUGHPUT}
    lines = [
        "| workload | engine | MB/s | records/s | CPU-s/GB | peak MB | stolen % |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    return lines + [
        f"| {row.workload} | {row.engine} | {_number(row.mb_per_s)} | {_number(row.records_per_s)} "
        f"| {_number(row.cpu_s_per_gb, 2)} | {_number(row.peak_mb)} | {_percent(row.stolen)} |"
        for row in rows
        if row.workload in names
    ]


def _latency_table(rows: Sequence[Row]) -> list[str]:
    names = {workload.name for workload in LATENCY}
    lines = [
        "| latency, produce to consume | engine | p50 ms | p99 ms | worst ms | cores | peak MB | stolen % |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    return lines + [
        f"| {row.workload} | {row.engine} | {_number(row.p50_ms, 1)} | {_number(row.p99_ms, 1)} "
        f"| {_number(row.worst_ms, 1)} | {_number(row.cores, 2)} | {_number(row.peak_mb)} | {_percent(row.stolen)} |"
        for row in rows
        if row.workload in names
    ]


def _goal_table(rows: Sequence[Row]) -> list[str]:
    lines = ["| goal | | goal | measured | reached |", "|---|---|---:|---:|---|"]
    return lines + [
        f"| {goal.workload} | {goal.what} | {'at most' if goal.most else 'at least'} {goal.goal:g} "
        f"| {goal.found:,.{goal.digits}f} | {'yes' if goal.reached else '**no**'} |"
        for goal in goals(rows)
    ]


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(share: float | None) -> str:
    return _number(None if share is None else 100 * share, 1)


@cache  # Java is started for it, which is not to be done during a measurement again and again
def _machine() -> str:
    cores = os.cpu_count()
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.split('"')[1:2]
    return f"{cores} cores, {memory_gib:.0f} GiB, Linux, Python {platform.python_version()}, Java {''.join(java)}"
