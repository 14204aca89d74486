"""Run all workloads, or those whose name contains the arguments, through both engines in turn, and write the result."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import gap_filling, idledemo, large_messages, load, manylinks, manymirrors, newmirror, pages, product, sparkworkers
from bench.environment import BenchEnvironment, open_environment
from bench.farreader import measure_far_readers
from bench.figures import Figure
from bench.latency import Latency, NothingCameError, measure_latency
from bench.measure import Copy, count_records, end_offsets, watch_copy
from bench.report import BARE, ENGINE, ENGINE_LOOP, FAR, MIRRORMAKER, PAIR, Round, Row, medians
from bench.results import Results
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
        with interruptible(), open_environment() as environment:
            _measure(environment, results, only=only)
            for names, measure in single.items():
                if wanted := [name for name in names if only in name]:
                    with results.attempt(names[0]):
                        for found in measure(environment, wanted):
                            results.add(found)
    except KeyboardInterrupt:
        print(f"Interrupted. The results so far are in {results.file}.", flush=True)
        return INTERRUPTED
    if not only or arguments.earlier:
        results.write()
    print(results.page())
    return 1 if results.failures else 0


def _measure(environment: BenchEnvironment, results: Results, *, only: str) -> None:
    """Measure what both engines do."""
    if any(only in workload.name for workload in THROUGHPUT):
        with results.attempt("the warm-up of the brokers"):
            _warm_up(environment)
    for workload in THROUGHPUT:
        if only in workload.name:
            with results.attempt(workload.name), environment.seen_from(workload.in_flight) as seen:
                for row in _throughput(seen, workload):
                    results.add(row)
    for steady in LATENCY:
        if only in steady.name:
            with results.attempt(steady.name), environment.seen_from(steady.in_flight) as seen:
                for row in _latency(seen, steady):
                    results.add(row)


def _single_figures(
    minutes: float | None,
) -> dict[tuple[str, ...], Callable[[BenchEnvironment, Collection[str]], Iterable[Figure | str]]]:
    """Return the measurements of single figures by their names, one per part; a measurement gets those that are wanted."""
    found: dict[tuple[str, ...], Callable[[BenchEnvironment, Collection[str]], Iterable[Figure | str]]] = {
        (gap_filling.NAME,): lambda env, _: gap_filling.measure_gap_filling(
            *env.clusters, start=partial(env.engine, partitions=1)
        ),
        (large_messages.NAME,): lambda env, _: large_messages.measure_large_messages(
            *env.clusters, start=partial(env.engine, partitions=1)
        ),
        (VERIFYING,): lambda env, _: _verifying(env),
        manylinks.NAMES: lambda env, names: manylinks.measure_many_links(env, names=names),
        (sparkworkers.NAME,): lambda env, _: sparkworkers.measure_spark_workers(*env.clusters),
        (newmirror.NAME,): lambda env, _: newmirror.measure_new_mirror(*env.clusters),
        (idledemo.NAME,): lambda _environment, _: idledemo.measure_idle_demo(),
        (product.NAME,): lambda env, _: product.measure_product(*env.clusters, **env.for_product),
        (pages.NAME,): lambda _environment, _: pages.measure_pages(),
        (manymirrors.NAME,): lambda env, _: manymirrors.measure_many_mirrors(*env.clusters, **env.for_product),
    }
    if minutes is not None:
        found[MINUTES,] = lambda env, _: _minutes(env, minutes)
    return found


def _minutes(environment: BenchEnvironment, minutes: float) -> Iterator[Figure]:
    """Measure the first latency workload for minutes, regardless of steal time."""
    workload = replace(LATENCY[0], seconds=60 * minutes)
    topic = "bench-minutes"
    load.create_topic(environment.source, topic, partitions=workload.partitions)
    try:
        with environment.engine(topic, partitions=workload.partitions, idle=True) as running:
            [found] = measure_latency(
                environment.source, environment.destination, topics=(topic, topic), workload=workload, pid=running.pid,
                takes=Takes(wanted=1, most=1),
            )  # fmt: skip
    finally:
        for cluster in (environment.source, environment.destination):
            load.discard_topics(cluster, [topic])
    what = f"{workload.name}, for {minutes:g} minutes"
    yield Figure(what=f"{what}: p50", unit="ms", found=found.p50_ms, goal=workload.most_p50_ms, most=True, digits=1)
    yield Figure(what=f"{what}: p99", unit="ms", found=found.p99_ms, goal=workload.most_p99_ms, most=True, digits=1)
    yield Figure(what=f"{what}: worst", unit="ms", found=found.worst_ms, goal=MINUTES_WORST_MS, most=True, digits=1)
    yield Figure(what=f"{what}: copy loop", unit="cores", found=found.cores.python_s, digits=2)
    yield Figure(what=f"{what}: stolen by the host", unit="%", found=100 * found.stolen, digits=2)


def _verifying(environment: BenchEnvironment) -> Iterator[Figure | str]:
    """Measure verification, and its cost for a concurrent copy."""
    workload = throughput_of(COPIED_BESIDE)
    topic = "bench-beside"
    end = load.fill(environment.source, topic, workload)
    rates: list[float] = []

    def copy() -> None:
        with environment.engine(topic, partitions=workload.partitions) as running:
            measured = _watch(environment, topic, workload, end=end, pid=running.pid)
        load.delete_topic(environment.destination, topic)
        rates.append(measured.share * workload.payload_bytes / 1e6 / measured.seconds)

    copy()
    compared = measure_verifying(environment.source, environment.destination, environment.spark, meanwhile=copy)
    load.delete_topic(environment.source, topic)
    alone, beside = rates
    yield from table(compared)
    yield figure(compared)
    yield Figure(what=f"copy of {workload.name}, without a verification run", unit="MB/s", found=alone)
    what = "the same while the witness compares without a pause (the product rests four times as long)"
    yield Figure(what=what, unit="MB/s", found=beside)


def _warm_up(environment: BenchEnvironment) -> None:
    """Copy without counting until the brokers' rate stops rising, so that no row includes the warm-up of their JVMs.

    The rate is that of the bare writer and reader, not of an engine.
    """
    for workload in map(throughput_of, WARMED_BY):
        _warm_up_by(environment, workload)


def _warm_up_by(environment: BenchEnvironment, workload: Workload) -> None:
    print(f"Warming up the brokers: {workload.name} ...", flush=True)
    topic = f"bench-warm-{workload.slug}"
    end = load.fill(environment.source, topic, workload)
    for _ in range(WARMING_COPIES):
        with environment.engine(topic, partitions=workload.partitions) as running:
            _watch(environment, topic, workload, end=end, pid=running.pid)
        load.delete_topic(environment.destination, topic)
    until_settled(lambda: _bare(environment, topic, workload, name=PAIR, measure=measure_pair).mb_per_s or 0.0)
    load.delete_topic(environment.source, topic)


def _throughput(environment: BenchEnvironment, workload: Workload) -> Iterator[Row]:
    topic = f"bench-{workload.slug}"
    print(f"{workload.name}: producing {workload.payload_bytes / 1e9:.2f} GB ...", flush=True)
    takes = ROUNDS if workload.bare else COPIES
    try:
        end = load.fill(environment.source, topic, workload)
        yield from medians(
            undisturbed_takes(lambda: unstalled(lambda: Round(list(_round(environment, topic, workload, end=end)))), takes)
        )
        if environment.distant:
            yield from medians(undisturbed_takes(lambda: Round([_far_readers(environment, topic, workload)]), COPIES))
        yield from medians(
            undisturbed_takes(lambda: Round([unstalled(lambda: _mirrormaker_row(environment, topic, workload))]), COPIES)
        )
    finally:
        load.discard_topics(environment.source, [topic])


def _far_readers(environment: BenchEnvironment, topic: str, workload: Workload) -> Row:
    stolen = Stolen()
    records, seconds = measure_far_readers(
        environment.source, topic, partitions=workload.partitions, properties=environment.source_properties
    )
    return _rate_row(workload, FAR, records=records, seconds=seconds, stolen=stolen.share())


def _mirrormaker_row(environment: BenchEnvironment, topic: str, workload: Workload) -> Row:
    try:
        with environment.mirrormaker(
            topic, partitions=workload.partitions, batch_bytes=workload.batch_bytes, codec=workload.codec
        ) as running:
            part = replace(workload, records=int(workload.records * workload.mirrormaker_share))
            copy = _watch(environment, topic, part, end=part.records, pid=running.pid)
    finally:
        load.delete_topic(environment.destination, topic)
    return _row(part, MIRRORMAKER, copy, cpu_s=copy.cpu.total_s)


def _round(environment: BenchEnvironment, topic: str, workload: Workload, *, end: int) -> Iterator[Row]:
    """Measure this engine's copy, and right after it a bare writer on the same clusters."""
    try:
        with environment.engine(topic, partitions=workload.partitions) as running:
            copy = _watch(environment, topic, workload, end=end, pid=running.pid)
            _check(environment, topic, workload)
    finally:
        load.delete_topic(environment.destination, topic)
    copied = _row(workload, ENGINE, copy, cpu_s=copy.cpu.total_s)
    yield copied
    yield _row(workload, ENGINE_LOOP, copy, cpu_s=copy.cpu.python_s)
    if workload.bare:
        for name, measure in ((BARE, measure_bare), (PAIR, measure_pair)):
            yield _compared(copied, _bare(environment, topic, workload, name=name, measure=measure))


def _compared(copied: Row, bare: Row) -> Row:
    assert copied.mb_per_s is not None
    return replace(bare, share=copied.mb_per_s / bare.mb_per_s if bare.mb_per_s else None)


def _watch(environment: BenchEnvironment, topic: str, workload: Workload, *, end: int, pid: int) -> Copy:
    return watch_copy(environment.destination, topic, partitions=workload.partitions, end=end, pid=lambda: pid)


def _check(environment: BenchEnvironment, topic: str, workload: Workload) -> None:
    """Raise RuntimeError unless mirror and source end alike; with transactions, count the committed records, too."""
    ends = [
        end_offsets(cluster, topic, partitions=workload.partitions) for cluster in (environment.source, environment.destination)
    ]
    if ends[0] != ends[1]:
        raise RuntimeError(f"The mirror of {topic} does not end where its source ends: {ends}")
    if workload.shape.transactional:
        found = count_records(environment.destination, topic)
        if found != workload.records:
            raise RuntimeError(f"The mirror of {topic} shows {found} of {workload.records} records")


def _bare(
    environment: BenchEnvironment, topic: str, workload: Workload, *, name: str, measure: Callable[..., tuple[int, float]]
) -> Row:
    load.create_topic(environment.destination, topic, partitions=workload.partitions)
    stolen = Stolen()
    try:
        records, seconds = measure(environment.source, environment.destination, topic, partitions=workload.partitions)
        taken = stolen.share()
    finally:
        load.delete_topic(environment.destination, topic)
    return _rate_row(workload, name, records=records, seconds=seconds, stolen=taken)


def _rate_row(workload: Workload, name: str, *, records: int, seconds: float, stolen: float) -> Row:
    row = Row(
        workload=workload.name, engine=name, mb_per_s=round(records * workload.record_bytes / 1e6 / seconds, 1),
        records_per_s=round(records / seconds), stolen=round(stolen, 3),
    )  # fmt: skip
    print(f"  {name}: {row.mb_per_s:,.0f} MB/s, {stolen:.1%} stolen", flush=True)
    return row


def _latency(environment: BenchEnvironment, workload: LatencyWorkload) -> Iterator[Row]:
    for engine in (ENGINE, MIRRORMAKER):
        topic = f"bench-{workload.slug}-{'ours' if engine == ENGINE else 'mm2'}"
        load.create_topic(environment.source, topic, partitions=workload.partitions)
        running = (
            environment.engine(topic, partitions=workload.partitions, idle=True)
            if engine == ENGINE
            else environment.mirrormaker(topic, partitions=workload.partitions, batch_bytes=16_384, codec="none")
        )
        print(f"{workload.name}: {engine} ...", flush=True)
        try:
            with running:
                takes = measure_latency(
                    environment.source, environment.destination, topics=(topic, topic), workload=workload, pid=running.pid
                )
            yield from medians([Round([_latency_row(workload, engine, take)]) for take in takes])
        except NothingCameError as error:
            if engine == ENGINE:
                raise
            print(f"  {engine}: {error}", flush=True)
            yield Row(workload=workload.name, engine=f"{engine} (did not keep up)")
        finally:
            for cluster in (environment.source, environment.destination):
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
