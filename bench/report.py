"""Rows of the result, as JSON for machines and as a table for people."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from bench.workloads import LATENCY_NAME

ENGINE, ENGINE_LOOP, MIRRORMAKER = "clusterlink", "clusterlink, copy loop only", "MirrorMaker 2"
JSON_FILE, TABLE_FILE = Path("var/benchmarks.json"), Path("docs/benchmarks.md")
_MARK = "<!-- written by `make bench`; do not edit -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One engine on one workload; None where it was not measured. MB and GB are decimal, of record payload."""

    workload: str
    engine: str
    mb_per_s: float | None = None
    records_per_s: float | None = None
    cpu_s_per_gb: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


def write(rows: Sequence[Row], *, now: datetime, appendix: Sequence[str] = ()) -> None:
    """Write var/benchmarks.json and docs/benchmarks.md."""
    JSON_FILE.parent.mkdir(exist_ok=True)
    JSON_FILE.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    TABLE_FILE.write_text(document(rows, now=now, appendix=appendix))


def document(rows: Sequence[Row], *, now: datetime, appendix: Sequence[str] = ()) -> str:
    """Answer the benchmark page; ``appendix`` are lines about what is not copying."""
    return "\n".join([
        "# Benchmarks", "", _MARK, "",
        f"Measured {now:%Y-%m-%d} on {_machine()}. Two Kafka clusters (one broker each, SASL/SCRAM, ACLs on),",
        "Spark and the measured engine share this machine. One run, the engines in turn on the same topics.",
        f"Kafka and MirrorMaker 2: 4.3.1. Spark: {version('pyspark')}. Settings of both: `bench/`.", "",
        "MB/s and CPU count record payload (before compression, decimal units), between 5 % and 100 % of the copy.",
        "CPU is that of the engine's whole process tree: for ours the Spark Connect server, its JVM and its Python workers;",
        "*copy loop only* counts the Python workers alone. Brokers are not counted.", "",
        *_throughput_table(rows), "", *_latency_table(rows), "", *_ratio_table(rows), "", *appendix, "",
    ])  # fmt: skip


def _throughput_table(rows: Sequence[Row]) -> list[str]:
    lines = ["| workload | engine | MB/s | records/s | CPU-s/GB |", "|---|---|---:|---:|---:|"]
    return lines + [
        f"| {row.workload} | {row.engine} | {_number(row.mb_per_s)} | {_number(row.records_per_s)} "
        f"| {_number(row.cpu_s_per_gb, 2)} |"
        for row in rows
        if row.workload != LATENCY_NAME
    ]


def _latency_table(rows: Sequence[Row]) -> list[str]:
    lines = ["| latency, produce to consume | engine | p50 ms | p99 ms |", "|---|---|---:|---:|"]
    return lines + [
        f"| {row.workload} | {row.engine} | {_number(row.p50_ms, 1)} | {_number(row.p99_ms, 1)} |"
        for row in rows
        if row.workload == LATENCY_NAME
    ]


def _ratio_table(rows: Sequence[Row]) -> list[str]:
    lines = ["| workload | MB/s, times MirrorMaker 2 | CPU, tree | CPU, copy loop |", "|---|---:|---:|---:|"]
    by_key = {(row.workload, row.engine): row for row in rows}
    for name in dict.fromkeys(row.workload for row in rows if row.mb_per_s is not None):
        ours, loop, theirs = (by_key.get((name, engine)) for engine in (ENGINE, ENGINE_LOOP, MIRRORMAKER))
        if ours and loop and theirs:
            speed = _ratio(ours.mb_per_s, theirs.mb_per_s)
            tree, alone = (_ratio(theirs.cpu_s_per_gb, mine.cpu_s_per_gb) for mine in (ours, loop))
            lines.append(f"| {name} | {_number(speed, 1)} | 1/{_number(tree, 1)} | 1/{_number(alone, 1)} |")
    return lines


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _machine() -> str:
    cores = os.cpu_count()
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.split('"')[1:2]
    return f"{cores} cores, {memory_gib:.0f} GiB, Linux, Python {platform.python_version()}, Java {''.join(java)}"
