"""Workloads: record size, batch size, codec, partitions. Sizes are chosen so that a copy takes some seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bench.steal_time import Takes
from devcluster.distance import STOCK_IN_FLIGHT, WIDE_IN_FLIGHT


class Shape(StrEnum):
    """The kind of producer of the source topic, which determines the structure of its log."""

    PRODUCER = "Kafka's producer benchmark tool"
    SINGLES = "one record per batch, by a writer of prepared batches"
    TRANSACTIONS = "transactional producers that commit every 100 ms"
    STREAMS = "threads of a streams application with exactly-once: each commit has one record per partition"

    @property
    def transactional(self) -> bool:
        """Return whether there are transaction markers between the records."""
        return self in (Shape.TRANSACTIONS, Shape.STREAMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A topic with records."""

    name: str  # in the table
    slug: str  # in topic names
    partitions: int
    record_bytes: int
    records: int
    batch_bytes: int  # the producer's batch.size
    codec: str = "none"
    shape: Shape = Shape.PRODUCER
    bare: bool = False  # also measure a writer of the same, prepared batches
    least_times: float = 1.0  # the goal: MB/s as a multiple of MirrorMaker 2's
    most_cpu_s_per_gb: float | None = None  # the goal for the copy loop
    written_per_s: int | None = None  # records/s of the application that wrote this log; the goal is ten times as many
    in_flight: int = 0  # bytes per connection of a source that is ``DELAY_MS`` away; 0: a nearby source
    least_mb_per_s: float | None = None
    mirrormaker_share: float = 1.0  # of the records, that MirrorMaker 2 copies: with stock buffers all would take it minutes

    @property
    def payload_bytes(self) -> int:
        return self.records * self.record_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyWorkload:
    """Records at a steady rate, timed from produce() to the consumer of the copy."""

    name: str
    slug: str
    partitions: int
    rate: int  # records/s in total
    record_bytes: int
    seconds: float
    settle_s: float = 8.0  # after the consumer has caught up; records produced before its end are not counted
    read_every: int = 1  # read every n-th partition: a consumer of a thousand is a considerable load
    most_p50_ms: float | None = None
    most_p99_ms: float | None = None
    most_worst_ms: float | None = None
    most_cores: float | None = None  # of the copy loop: CPU seconds per second
    in_flight: int = 0  # bytes per connection of a source that is ``DELAY_MS`` away; 0: a nearby source


DELAY_MS = 40.0  # of a distant source, in each direction

THROUGHPUT = (
    Workload(name="1 KB, 128 KB batches, 1 partition", slug="kb-1", partitions=1, record_bytes=1000, records=1_500_000,
             batch_bytes=131_072, bare=True, least_times=3.0, most_cpu_s_per_gb=0.8),
    Workload(name="1 KB, 128 KB batches, 4 partitions", slug="kb-4", partitions=4, record_bytes=1000, records=1_500_000,
             batch_bytes=131_072, bare=True, least_times=3.0, most_cpu_s_per_gb=0.8),
    Workload(name="1 KB, 128 KB batches, lz4, 1 partition", slug="kb-lz4-1", partitions=1, record_bytes=1000,
             records=1_500_000, batch_bytes=131_072, codec="lz4", bare=True, least_times=1.7, most_cpu_s_per_gb=1.5),
    Workload(name="1 KB, 128 KB batches, lz4, 4 partitions", slug="kb-lz4-4", partitions=4, record_bytes=1000,
             records=1_500_000, batch_bytes=131_072, codec="lz4", bare=True, least_times=1.7, most_cpu_s_per_gb=1.5),
    Workload(name="100 B, default producer, 1 partition", slug="small-1", partitions=1, record_bytes=100, records=3_000_000,
             batch_bytes=16_384, least_times=2.0),
    Workload(name="100 B, one record per batch, 8 partitions", slug="singles", partitions=8, record_bytes=100,
             records=1_600_000, batch_bytes=16_384, shape=Shape.SINGLES),
    Workload(name="100 B, transactions of 100 ms, 20 partitions", slug="transactions", partitions=20, record_bytes=100,
             records=900_000, batch_bytes=16_384, shape=Shape.TRANSACTIONS),
    Workload(name="100 B, one record between two markers, 20 partitions", slug="streams", partitions=20, record_bytes=100,
             records=24_000, batch_bytes=16_384, shape=Shape.STREAMS, written_per_s=200),
    Workload(name="source 80 ms away, stock socket buffers, 4 partitions", slug="far-4", partitions=4, record_bytes=1000,
             records=800_000, batch_bytes=131_072, in_flight=STOCK_IN_FLIGHT, least_mb_per_s=80.0, mirrormaker_share=0.25),
    Workload(name="source 80 ms away, stock socket buffers, 1 partition", slug="far-1", partitions=1, record_bytes=1000,
             records=400_000, batch_bytes=131_072, in_flight=STOCK_IN_FLIGHT, least_mb_per_s=40.0, mirrormaker_share=0.25),
    Workload(name="source 80 ms away, 16 MiB in flight, 4 partitions", slug="far-wide-4", partitions=4, record_bytes=1000,
             records=1_000_000, batch_bytes=131_072, in_flight=WIDE_IN_FLIGHT, least_mb_per_s=200.0),
    Workload(name="source 80 ms away, 16 MiB in flight, 1 partition", slug="far-wide-1", partitions=1, record_bytes=1000,
             records=1_000_000, batch_bytes=131_072, in_flight=WIDE_IN_FLIGHT, least_mb_per_s=150.0),
)  # fmt: skip
LATENCY = (
    LatencyWorkload(name="100 records/s, 1 partition", slug="few", partitions=1, rate=100,
                    record_bytes=20, seconds=30.0, most_p50_ms=3, most_p99_ms=10, most_worst_ms=50),
    LatencyWorkload(name="1 MB/s over 1,000 partitions", slug="wide", partitions=1_000, rate=1_000, record_bytes=1_000,
                    seconds=20.0, read_every=10, most_p99_ms=50, most_cores=0.15),
    LatencyWorkload(name="source 80 ms away, 100 records/s, 1 partition", slug="far-few", partitions=1, rate=100,
                    record_bytes=20, seconds=30.0, most_p99_ms=80, in_flight=STOCK_IN_FLIGHT),
)  # fmt: skip
MINUTES = "100 records/s for minutes"  # the first latency workload for longer, by this engine alone; only on request
MINUTES_WORST_MS = 20.0
# of this engine's copy and the bare writer, in turn: their rates are compared, and a single take varies by a sixth
ROUNDS = Takes(wanted=9, most=13)
COPIES = Takes(wanted=1, most=3)  # of all other copies
# the slowest hundredth of 20 s is 0.2 s: a single stall of the host and the backlog behind it
LATENCIES = Takes(wanted=3, most=12, max_stolen=0.0005)
KAFKA_VERSION = "4.3.1"  # of the brokers, the load generator and MirrorMaker 2


def throughput_of(slug: str) -> Workload:
    """Return the workload with this name in topic names."""
    return next(workload for workload in THROUGHPUT if workload.slug == slug)
