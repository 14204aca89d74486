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
SHARES = {BARE: "share of the bare writer's rate", PAIR: "share of the rate of bare reader and writer together"}
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


def document(rows: Sequence[Row], *, now: datetime, runs: int = 1, appendix: Sequence[str] = ()) -> str:
    """Return the benchmark page; ``appendix``: the lines of measurements other than copies."""
    taken = "One run" if runs == 1 else f"The newest results of {runs} runs"
    return "\n".join([
        "# Benchmarks", "", _MARK, "",
        f"Measured {now:%Y-%m-%d} on {_machine()}. Two Kafka clusters (one broker each, SASL/SCRAM, ACLs on),",
        f"Spark and the measured engine share this machine. {taken}; the engines copy the same topics one after the other.",
        f"Kafka and MirrorMaker 2: {KAFKA_VERSION}. Spark: {version('pyspark')}. Settings of both: `bench/`.", "",
        "**Rates and CPU.** MB/s and CPU seconds per GB are of record payload (before compression, decimal units), between",
        "5 % and 100 % of the copy. CPU is that of all processes of an engine; for Clusterlink the Spark Connect server, its",
        "JVM and its Python workers. *Copy loop only* is the Python workers alone. Brokers are not included. Peak is the",
        "resident memory of the largest worker: a Python worker of Clusterlink, the JVM of MirrorMaker 2.", "",
        "**Bare writer and reader.** The *bare writer* sends prepared batches: the rate at which the destination accepts them",
        "while nothing else uses the machine. A bare *reader* fetches from the source at the same time and discards the",
        "bytes: the highest rate that a copy could reach with these two clusters on this machine. Clusterlink and the bare",
        "writer take turns. Rates and shares are medians over the turns, since a single take of some seconds depends on the",
        "other virtual machines of the host.", "",
        "**Steal time.** *Stolen* is the share of processor time that the host gave to other virtual machines during a",
        f"measurement. Takes with more than {MAX_STOLEN:.0%} are repeated ({LATENCIES.max_stolen:.2%} for latencies, where 1 %",
        "would decide the p99). If too many takes are disturbed, those with the lowest steal time count, regardless of their",
        f"results. Takes: {ROUNDS} turns with a bare writer, {LATENCIES} of a latency, {COPIES} of all other copies.", "",
        "**Latencies.** p50, p99 and cores are medians of the takes, *worst* is the maximum of all. Records are produced to",
        "all partitions. Of a thousand partitions every tenth is consumed, since one consumer of all would load the",
        f"destination. Records that were produced within a take count if they arrive at most {LATE_S:.0f} s after its end.",
        "With many topics, another process produces, and a take begins when only fresh records have arrived from all topics",
        f"for {CAUGHT_UP_S:.0f} s. A gap is the longest time without a record of one topic within a take. Two copy workers on",
        "four task slots of Spark copy the fifty links.", "",
        "**Warm-up.** Before the first measurement a bare writer and reader run until their rate no longer rises: the",
        "brokers' JVMs need three times as much CPU for their first gigabytes.", "",
        "**Distance.** A source *80 ms away* is reached through proxies (`devcluster/distance.py`) that delay all bytes by",
        "40 ms in each direction and limit the bytes in flight per connection: 131,072 correspond to stock socket buffers.",
        "With those, MirrorMaker 2 copies a quarter of the records. The proxies share the machine: *bare readers*, which open",
        "as many connections as a copy worker and discard the bytes, show what proxies and source allow.", "",
        "**Checks.** After each copy the log ends of all partitions are compared, and for transactions the committed records",
        "are counted.", "",
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
            what = "times the rate of producers that commit every 100 ms"
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
            "peak MB of a copy worker, maximum of these rows",
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


@cache  # it starts Java, which must not disturb measurements
def _machine() -> str:
    cores = os.cpu_count()
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.split('"')[1:2]
    return f"{cores} cores, {memory_gib:.0f} GiB, Linux, Python {platform.python_version()}, Java {''.join(java)}"
