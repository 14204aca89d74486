"""Fifty links with one mirror each on two copy workers, 100 records/s each: latency and longest gap of a link.

Measured without anything else; while two large mirrors are verified; while links move from one copy worker to the other; and
while the source of a link accepts connections and never responds. Spark has four task slots, two of which copy.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median

from bench import load
from bench.environment import BenchEnvironment
from bench.figures import Figure
from bench.measure import watch_copy
from bench.pool import CopyWorkers, WorkerCost, mirrored
from bench.report import MOST_MEMORY_MB
from bench.steady import Latencies, Load, Place, SteadyWriter, TimedReader, writing
from bench.steal_time import Stolen
from bench.submitting import Submitters
from bench.verifying import compare_until
from bench.workloads import throughput_of
from devcluster.spark import SparkConnectServer
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.plans import CopyPlan, VerifyPlan

NAME = "fifty links"
VERIFYING, MOVING, FROZEN = f"{NAME}, verify now", f"{NAME}, hand-over", f"{NAME}, one source frozen"
NAMES = (NAME, VERIFYING, MOVING, FROZEN)  # of what is measured; the links without anything else always are
LINKS, RATE, BATCH = 50, 100, 10  # records/s of each link, in batches of so many
WORKERS, SLOTS = 2, 4  # copy workers, and Spark's task slots
SECONDS = 30.0
MOST_P99_MS, MOST_GAP_S, LEAST_CAME = 50.0, 1.0, 0.99
MOST_TIMES = 2.0  # p99 beside something else, as a multiple of p99 alone
MOVED = 10  # links that change their copy worker, one a second
VERIFIED = "kb-1"  # the workload of the two topics that are verified
_VERIFIED_TOPICS = ("bench-verify-now-0", "bench-verify-now-1")
_VERIFY_TIMEOUT_S = 420.0
_NUMBERS = 500_000  # of mirrors: producer ids of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The measurements of a phase."""

    take: Latencies
    links: int
    costs: Sequence[WorkerCost]
    stolen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """The links while they copy."""

    environment: BenchEnvironment
    submitters: Submitters
    workers: CopyWorkers
    reader: TimedReader
    plans: Mapping[Place, CopyPlan]
    owners: dict[Place, str]

    def assign(self, plan: CopyPlan, place: Place) -> None:
        """Write the plan of a link to the worker that owns it, and an empty plan to the others."""
        owner = self.owners[place]
        self.workers.assign(plan, {worker: plan.assignments if worker == owner else () for worker in self.workers.ids})

    def measure(
        self, what: str, *, begin: Callable[[], None] = lambda: None, during: Callable[[], None] = lambda: None
    ) -> _Measured:
        """Wait until all links copy, call ``begin``, measure for SECONDS and print the worst records.

        ``during`` is called once a second.
        """
        print(f"  {what}: all links copy after {self.reader.catch_up():.1f} s", flush=True)
        stolen, watch = Stolen(), self.workers.watch()
        begin()

        def each_second() -> None:
            watch.sample()
            during()

        take = self.reader.take(SECONDS, during=each_second)
        costs = watch.costs()
        for line in take.worst:
            print(f"    {line}", flush=True)
        for number, cost in enumerate(costs):
            print(f"    copy worker {number}: {cost.cores:.2f} cores, {cost.peak_mb:.0f} MB", flush=True)
        return _Measured(take=take, links=len(self.reader.places), costs=costs, stolen=stolen.share())


def measure_many_links(
    environment: BenchEnvironment, *, names: Collection[str] = NAMES, links: int = LINKS
) -> Iterator[Figure]:
    """Write to all links and read all mirrors: without anything else, and beside what ``names`` lists."""
    topics = [f"bench-link-{number:02}" for number in range(links)]
    verified = _VERIFIED_TOPICS if VERIFYING in names else ()
    try:
        with _running(environment, topics, verified=verified) as running:
            alone = running.measure(NAME)
            what = f"{links} links on {WORKERS} copy workers, {RATE} records/s each in batches of {BATCH}"
            yield from _figures(alone, what, most_p99_ms=MOST_P99_MS)
            most = MOST_TIMES * alone.take.p99_ms
            if VERIFYING in names:
                yield from _while_verifying(running, f"{links} links while two topics are verified", most_p99_ms=most)
            if MOVING in names:
                yield from _while_moving(running)
            if FROZEN in names:
                yield from _beside_frozen(running, f"{links - 1} links while the source of another is frozen", most_p99_ms=most)
    finally:
        for cluster in environment.clusters:
            load.discard_topics(cluster, [*topics, *verified])


@contextmanager
def _running(environment: BenchEnvironment, topics: Sequence[str], *, verified: Sequence[str]) -> Iterator[_Running]:
    """Copy each topic over a link of its own, and write to all of them."""
    load.create_topics(environment.source, topics)
    plans = {
        (topic, 0): mirrored(environment.source, environment.destination, topic, link_id=f"bench-link-{number}", number=number)
        for number, topic in enumerate(topics, _NUMBERS)
    }
    for topic in verified:
        _copy_whole(environment, topic)
    with ExitStack() as stack:
        spark = stack.enter_context(SparkConnectServer(master=f"local[{SLOTS},8]"))
        submitters = stack.enter_context(Submitters.to(spark))
        workers = stack.enter_context(CopyWorkers(environment.redis, submitters, count=WORKERS))
        writer: SteadyWriter = stack.enter_context(
            writing(environment.source, Load(places=tuple(plans), rate=RATE * len(plans), batch=BATCH))
        )
        reader = TimedReader(environment.destination, list(plans), writer=writer)
        stack.callback(reader.close)
        owners = {place: workers.ids[number % WORKERS] for number, place in enumerate(plans)}
        running = _Running(
            environment=environment, submitters=submitters, workers=workers, reader=reader, plans=plans, owners=owners
        )  # fmt: skip
        for place, plan in plans.items():
            running.assign(plan, place)
        yield running


def _copy_whole(environment: BenchEnvironment, topic: str) -> None:
    workload = throughput_of(VERIFIED)
    end = load.fill(environment.source, topic, workload)
    with environment.engine(topic, partitions=workload.partitions) as copy:
        watch_copy(environment.destination, topic, partitions=workload.partitions, end=end, pid=lambda: copy.pid)


def _while_verifying(running: _Running, what: str, *, most_p99_ms: float) -> Iterator[Figure]:
    """Measure while both topics are compared again and again, each by a client of its own, as often as the time allows."""
    environment, submitters = running.environment, running.submitters
    source, destination = (address_from_properties(cluster.client_properties("admin")) for cluster in environment.clusters)
    whole = VerifyPlan(source=source, destination=destination, source_topic="", mirror_topic="")
    plans = [replace(whole, source_topic=topic, mirror_topic=topic) for topic in _VERIFIED_TOPICS]

    def compare(until_s: float) -> list[Future[tuple[int, float]]]:
        submit, url = submitters.processes.submit, submitters.spark.url
        return [submit(compare_until, plan, spark_url=url, until_s=until_s) for plan in plans]

    # the first comparisons load Spark's classes and start two processes; their cost is in the rows about verification
    for comparison in compare(0.0):
        comparison.result(_VERIFY_TIMEOUT_S)
    comparisons: list[Future[tuple[int, float]]] = []

    found = running.measure(VERIFYING, begin=lambda: comparisons.extend(compare(time.monotonic() + SECONDS)))
    yield from _figures(found, what, most_p99_ms=most_p99_ms)
    compared = [comparison.result(_VERIFY_TIMEOUT_S) for comparison in comparisons]
    rate = sum(records / seconds for records, seconds in compared)
    yield Figure(what=f"{what}: compared", unit="records/s", found=rate, goal=1.0)


def _while_moving(running: _Running) -> Iterator[Figure]:
    """Move a link a second to the other copy worker, which is running, as a rebalance does it."""
    moved = list(running.plans)[:MOVED]
    left = iter(moved)

    def move() -> None:
        place = next(left, None)
        if place is not None:
            running.owners[place] = next(worker for worker in running.workers.ids if worker != running.owners[place])
            running.assign(running.plans[place], place)

    found = running.measure(MOVING, during=move)
    gaps = [found.take.gaps_s[place] for place in moved]
    others = max(found.take.gaps_s[place] for place in running.plans if place not in moved)
    what = f"planned hand-over of {MOVED} of {found.links} links between two copy workers, one a second"
    yield Figure(what=f"{what}: longest gap", unit="s", found=max(gaps), goal=MOST_GAP_S, most=True, digits=2)
    yield Figure(what=f"{what}: median gap", unit="s", found=median(gaps), digits=2)
    yield Figure(what=f"{what}: longest gap of the others", unit="s", found=others, goal=MOST_GAP_S, most=True, digits=2)


def _beside_frozen(running: _Running, what: str, *, most_p99_ms: float) -> Iterator[Figure]:
    """Measure the other links while the source of the last link accepts connections and never responds."""
    *others, last = running.plans
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        address = ClusterAddress(bootstrap_servers="{}:{}".format(*server.getsockname()), security_protocol="PLAINTEXT")
        frozen = replace(running.plans[last], source=address, revision=2)
        running.reader.places = frozenset(others)
        found = running.measure(FROZEN, begin=lambda: running.assign(frozen, last))
        yield from _figures(found, what, most_p99_ms=most_p99_ms)


def _figures(found: _Measured, what: str, *, most_p99_ms: float) -> list[Figure]:
    take, wanted = found.take, LEAST_CAME * found.links * RATE
    memory = max(cost.peak_mb for cost in found.costs)
    return [
        Figure(what=f"{what}: p50", unit="ms", found=take.p50_ms, digits=1),
        Figure(what=f"{what}: p99", unit="ms", found=take.p99_ms, goal=most_p99_ms, most=True, digits=1),
        Figure(what=f"{what}: worst", unit="ms", found=take.worst_ms, digits=1),
        Figure(what=f"{what}: longest gap of a link", unit="s", found=take.gap_s, goal=MOST_GAP_S, most=True, digits=2),
        Figure(what=f"{what}: records that came", unit="records/s", found=take.records_per_s, goal=wanted),
        Figure(what=f"{what}: copy workers", unit="cores", found=sum(cost.cores for cost in found.costs), digits=2),
        Figure(what=f"{what}: largest copy worker", unit="MB", found=memory, goal=MOST_MEMORY_MB, most=True),
        Figure(what=f"{what}: stolen by the host", unit="%", found=100 * found.stolen, digits=2),
    ]
