"""Run all workloads, or those whose name contains the arguments, through both engines in turn, and write the result."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import gap_filling, idledemo, large_messages, load, manylinks, manymirrors, newmirror, pages, product, sparkworkers
from bench.farreader import measure_far_readers
from bench.figures import Figure
from bench.latency import Latency, NothingCameError, measure_latency
from bench.measure import Copy, count_records, end_offsets, watch_copy
from bench.report import BARE, ENGINE, ENGINE_LOOP, FAR, MIRRORMAKER, PAIR, Round, Row, medians
from bench.results import Results
from bench.stage import Stage, open_stage
from bench.steal_time import Stolen, Takes, undisturbed_takes, unstalled
from bench.verifying import NAME as VERIFYING
from bench.verifying import figure, measure_verifying, table
from bench.warm_up import until_settled
from bench.workloads import (
    COPIES,
    LATENCY,
    MINUTES,
    MINUTES_WORST_MS,
    ROUNDS,
    THROUGHPUT,
    LatencyWorkload,
    Workload,
    throughput_of,
)
from bench.writer import measure_bare, measure_pair
from devcluster.signals import INTERRUPTED, interruptible

WARMED_BY = ("kb-4", "kb-lz4-4", "kb-1")  # the last of them is measured first
WARMING_COPIES = 2
COPIED_BESIDE = "kb-4"  # the workload that is copied during verification


def main() -> int:
    """Measure and write the result; return 0 if every workload was measured."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("only", nargs="*", help="words of the names to be run; docs/benchmarks.md stays as it is")
    parser.add_argument(
        "--earlier", type=Path, metavar="FILE", help="keep the other results of this run (var/bench/*.json); write the page"
    )
    parser.add_argument("--minutes", type=float, help=f"duration of {MINUTES!r}, which is not run otherwise")
    arguments = parser.parse_args()
    only = " ".join(arguments.only)
    single = _single_figures(arguments.minutes)
    known = [workload.name for workload in (*THROUGHPUT, *LATENCY)] + [name for names in single for name in names]
    if not any(only in name for name in known):
        parser.error(f"no name contains {only!r}. The names:\n  " + "\n  ".join(known))
    results = Results(earlier=arguments.earlier)
    try:
        with interruptible(), open_stage() as stage:
            _measure(stage, results, only=only)
            for names, measure in single.items():
                if wanted := [name for name in names if only in name]:
                    with results.attempt(names[0]):
                        for found in measure(stage, wanted):
                            results.add(found)
    except KeyboardInterrupt:
        print(f"Interrupted. What was measured is in {results.file}.", flush=True)
        return INTERRUPTED
    if not only or arguments.earlier:
        results.write()
    print(results.page())
    return 1 if results.failures else 0


def _measure(stage: Stage, results: Results, *, only: str) -> None:
    """Measure what both engines do."""
    if any(only in workload.name for workload in THROUGHPUT):
        with results.attempt("the warm-up of the brokers"):
            _warm_up(stage)
    for workload in THROUGHPUT:
        if only in workload.name:
            with results.attempt(workload.name), stage.seen_from(workload.in_flight) as seen:
                for row in _throughput(seen, workload):
                    results.add(row)
    for steady in LATENCY:
        if only in steady.name:
            with results.attempt(steady.name), stage.seen_from(steady.in_flight) as seen:
                for row in _latency(seen, steady):
                    results.add(row)


def _single_figures(minutes: float | None) -> dict[tuple[str, ...], Callable[[Stage, Collection[str]], Iterable[Figure | str]]]:
    """Return the measurements of single figures by their names, one per part; a measurement gets those that are wanted."""
    found: dict[tuple[str, ...], Callable[[Stage, Collection[str]], Iterable[Figure | str]]] = {
        (gap_filling.NAME,): lambda stage, _: gap_filling.measure_gap_filling(
            *stage.clusters, start=partial(stage.engine, partitions=1)
        ),
        (large_messages.NAME,): lambda stage, _: large_messages.measure_large_messages(
            *stage.clusters, start=partial(stage.engine, partitions=1)
        ),
        (VERIFYING,): lambda stage, _: _verifying(stage),
        manylinks.NAMES: lambda stage, names: manylinks.measure_many_links(stage, names=names),
        (sparkworkers.NAME,): lambda stage, _: sparkworkers.measure_spark_workers(*stage.clusters),
        (newmirror.NAME,): lambda stage, _: newmirror.measure_new_mirror(*stage.clusters),
        (idledemo.NAME,): lambda _stage, _: idledemo.measure_idle_demo(),
        (product.NAME,): lambda stage, _: product.measure_product(*stage.clusters, **stage.for_product),
        (pages.NAME,): lambda _stage, _: pages.measure_pages(),
        (manymirrors.NAME,): lambda stage, _: manymirrors.measure_many_mirrors(*stage.clusters, **stage.for_product),
    }
    if minutes is not None:
        found[MINUTES,] = lambda stage, _: _minutes(stage, minutes)
    return found


def _minutes(stage: Stage, minutes: float) -> Iterator[Figure]:
    """Measure the first latency workload for minutes, regardless of steal time."""
    workload = replace(LATENCY[0], seconds=60 * minutes)
    topic = "bench-minutes"
    load.create_topic(stage.source, topic, partitions=workload.partitions)
    try:
        with stage.engine(topic, partitions=workload.partitions, idle=True) as running:
            [found] = measure_latency(
                stage.source, stage.destination, topics=(topic, topic), workload=workload, pid=running.pid,
                takes=Takes(wanted=1, most=1),
            )  # fmt: skip
    finally:
        for cluster in (stage.source, stage.destination):
            load.discard_topics(cluster, [topic])
    what = f"{workload.name}, for {minutes:g} minutes"
    yield Figure(what=f"{what}: p50", unit="ms", found=found.p50_ms, goal=workload.most_p50_ms, most=True, digits=1)
    yield Figure(what=f"{what}: p99", unit="ms", found=found.p99_ms, goal=workload.most_p99_ms, most=True, digits=1)
    yield Figure(what=f"{what}: worst", unit="ms", found=found.worst_ms, goal=MINUTES_WORST_MS, most=True, digits=1)
    yield Figure(what=f"{what}: copy loop", unit="cores", found=found.cores.python_s, digits=2)
    yield Figure(what=f"{what}: stolen by the host", unit="%", found=100 * found.stolen, digits=2)


def _verifying(stage: Stage) -> Iterator[Figure | str]:
    """Measure verification, and its cost for a concurrent copy."""
    workload = throughput_of(COPIED_BESIDE)
    topic = "bench-beside"
    end = load.fill(stage.source, topic, workload)
    rates: list[float] = []

    def copy() -> None:
        with stage.engine(topic, partitions=workload.partitions) as running:
            measured = _watch(stage, topic, workload, end=end, pid=running.pid)
        load.delete_topic(stage.destination, topic)
        rates.append(measured.share * workload.payload_bytes / 1e6 / measured.seconds)

    copy()
    compared = measure_verifying(stage.source, stage.destination, stage.spark, meanwhile=copy)
    load.delete_topic(stage.source, topic)
    alone, beside = rates
    yield from table(compared)
    yield figure(compared)
    yield Figure(what=f"copy of {workload.name}, without a verification run", unit="MB/s", found=alone)
    what = "the same while the witness compares without a pause (the product rests four times as long)"
    yield Figure(what=what, unit="MB/s", found=beside)


def _warm_up(stage: Stage) -> None:
    """Copy without counting until the brokers' rate stops rising, so that no row includes the warm-up of their JVMs.

    The rate is that of the bare writer and reader, not of an engine.
    """
    for workload in map(throughput_of, WARMED_BY):
        _warm_up_by(stage, workload)


def _warm_up_by(stage: Stage, workload: Workload) -> None:
    print(f"Warming up the brokers: {workload.name} ...", flush=True)
    topic = f"bench-warm-{workload.slug}"
    end = load.fill(stage.source, topic, workload)
    for _ in range(WARMING_COPIES):
        with stage.engine(topic, partitions=workload.partitions) as running:
            _watch(stage, topic, workload, end=end, pid=running.pid)
        load.delete_topic(stage.destination, topic)
    until_settled(lambda: _bare(stage, topic, workload, name=PAIR, measure=measure_pair).mb_per_s or 0.0)
    load.delete_topic(stage.source, topic)


def _throughput(stage: Stage, workload: Workload) -> Iterator[Row]:
    topic = f"bench-{workload.slug}"
    print(f"{workload.name}: producing {workload.payload_bytes / 1e9:.2f} GB ...", flush=True)
    takes = ROUNDS if workload.bare else COPIES
    try:
        end = load.fill(stage.source, topic, workload)
        yield from medians(
            undisturbed_takes(lambda: unstalled(lambda: Round(list(_round(stage, topic, workload, end=end)))), takes)
        )
        if stage.distant:
            yield from medians(undisturbed_takes(lambda: Round([_far_readers(stage, topic, workload)]), COPIES))
        yield from medians(
            undisturbed_takes(lambda: Round([unstalled(lambda: _mirrormaker_row(stage, topic, workload))]), COPIES)
        )
    finally:
        load.discard_topics(stage.source, [topic])


def _far_readers(stage: Stage, topic: str, workload: Workload) -> Row:
    stolen = Stolen()
    records, seconds = measure_far_readers(
        stage.source, topic, partitions=workload.partitions, properties=stage.source_properties
    )
    return _rate_row(workload, FAR, records=records, seconds=seconds, stolen=stolen.share())


def _mirrormaker_row(stage: Stage, topic: str, workload: Workload) -> Row:
    try:
        with stage.mirrormaker(
            topic, partitions=workload.partitions, batch_bytes=workload.batch_bytes, codec=workload.codec
        ) as running:
            part = replace(workload, records=int(workload.records * workload.mirrormaker_share))
            copy = _watch(stage, topic, part, end=part.records, pid=running.pid)
    finally:
        load.delete_topic(stage.destination, topic)
    return _row(part, MIRRORMAKER, copy, cpu_s=copy.cpu.total_s)


def _round(stage: Stage, topic: str, workload: Workload, *, end: int) -> Iterator[Row]:
    """Measure this engine's copy, and right after it a bare writer on the same clusters."""
    try:
        with stage.engine(topic, partitions=workload.partitions) as running:
            copy = _watch(stage, topic, workload, end=end, pid=running.pid)
            _check(stage, topic, workload)
    finally:
        load.delete_topic(stage.destination, topic)
    copied = _row(workload, ENGINE, copy, cpu_s=copy.cpu.total_s)
    yield copied
    yield _row(workload, ENGINE_LOOP, copy, cpu_s=copy.cpu.python_s)
    if workload.bare:
        for name, measure in ((BARE, measure_bare), (PAIR, measure_pair)):
            yield _compared(copied, _bare(stage, topic, workload, name=name, measure=measure))


def _compared(copied: Row, bare: Row) -> Row:
    assert copied.mb_per_s is not None
    return replace(bare, share=copied.mb_per_s / bare.mb_per_s if bare.mb_per_s else None)


def _watch(stage: Stage, topic: str, workload: Workload, *, end: int, pid: int) -> Copy:
    return watch_copy(stage.destination, topic, partitions=workload.partitions, end=end, pid=lambda: pid)


def _check(stage: Stage, topic: str, workload: Workload) -> None:
    """Raise RuntimeError unless mirror and source end alike; with transactions, count the committed records, too."""
    ends = [end_offsets(cluster, topic, partitions=workload.partitions) for cluster in (stage.source, stage.destination)]
    if ends[0] != ends[1]:
        raise RuntimeError(f"The mirror of {topic} does not end where its source ends: {ends}")
    if workload.shape.transactional:
        found = count_records(stage.destination, topic)
        if found != workload.records:
            raise RuntimeError(f"The mirror of {topic} shows {found} of {workload.records} records")


def _bare(stage: Stage, topic: str, workload: Workload, *, name: str, measure: Callable[..., tuple[int, float]]) -> Row:
    load.create_topic(stage.destination, topic, partitions=workload.partitions)
    stolen = Stolen()
    try:
        records, seconds = measure(stage.source, stage.destination, topic, partitions=workload.partitions)
        taken = stolen.share()
    finally:
        load.delete_topic(stage.destination, topic)
    return _rate_row(workload, name, records=records, seconds=seconds, stolen=taken)


def _rate_row(workload: Workload, name: str, *, records: int, seconds: float, stolen: float) -> Row:
    row = Row(
        workload=workload.name, engine=name, mb_per_s=round(records * workload.record_bytes / 1e6 / seconds, 1),
        records_per_s=round(records / seconds), stolen=round(stolen, 3),
    )  # fmt: skip
    print(f"  {name}: {row.mb_per_s:,.0f} MB/s, {stolen:.1%} stolen", flush=True)
    return row


def _latency(stage: Stage, workload: LatencyWorkload) -> Iterator[Row]:
    for engine in (ENGINE, MIRRORMAKER):
        topic = f"bench-{workload.slug}-{'ours' if engine == ENGINE else 'mm2'}"
        load.create_topic(stage.source, topic, partitions=workload.partitions)
        running = (
            stage.engine(topic, partitions=workload.partitions, idle=True)
            if engine == ENGINE
            else stage.mirrormaker(topic, partitions=workload.partitions, batch_bytes=16_384, codec="none")
        )
        print(f"{workload.name}: {engine} ...", flush=True)
        try:
            with running:
                takes = measure_latency(
                    stage.source, stage.destination, topics=(topic, topic), workload=workload, pid=running.pid
                )
            yield from medians([Round([_latency_row(workload, engine, take)]) for take in takes])
        except NothingCameError as error:
            if engine == ENGINE:
                raise
            print(f"  {engine}: {error}", flush=True)
            yield Row(workload=workload.name, engine=f"{engine} (did not keep up)")
        finally:
            for cluster in (stage.source, stage.destination):
                load.discard_topics(cluster, [topic])


def _row(workload: Workload, engine: str, copy: Copy, *, cpu_s: float) -> Row:
    records = copy.share * workload.records
    megabytes = records * workload.record_bytes / 1e6
    row = Row(
        workload=workload.name, engine=engine, mb_per_s=round(megabytes / copy.seconds, 1),
        records_per_s=round(records / copy.seconds), cpu_s_per_gb=round(cpu_s / megabytes * 1000, 3),
        peak_mb=None if engine == ENGINE else round(copy.peak_mb), stolen=round(copy.stolen, 3),
    )  # fmt: skip
    print(
        f"  {engine}: {row.mb_per_s:,.0f} MB/s, {row.records_per_s:,} records/s, "
        f"{row.cpu_s_per_gb:.2f} CPU-s/GB, {copy.stolen:.1%} stolen",
        flush=True,
    )
    return row


def _latency_row(workload: LatencyWorkload, engine: str, measured: Latency) -> Row:
    cores = measured.cores.python_s if engine == ENGINE else measured.cores.total_s
    print(
        f"  {engine}: p50 {measured.p50_ms:.1f} ms, p99 {measured.p99_ms:.1f} ms, worst {measured.worst_ms:.1f} ms, "
        f"{cores:.2f} cores, {measured.peak_mb:.0f} MB, {measured.stolen:.1%} stolen",
        flush=True,
    )
    return Row(
        workload=workload.name, engine=engine, records_per_s=workload.rate, p50_ms=round(measured.p50_ms, 2),
        p99_ms=round(measured.p99_ms, 2), worst_ms=round(measured.worst_ms, 1), cores=round(cores, 3),
        peak_mb=round(measured.peak_mb), stolen=round(measured.stolen, 3),
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
