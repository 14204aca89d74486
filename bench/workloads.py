"""What is copied: record size, batch size, codec, partitions. Sizes are chosen so that a copy lasts some seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One topic full of records."""

    name: str  # as it appears in the table
    slug: str  # as it appears in topic names
    partitions: int
    record_bytes: int
    records: int
    batch_bytes: int  # the producer's batch.size
    codec: str = "none"

    @property
    def payload_bytes(self) -> int:
        return self.records * self.record_bytes


THROUGHPUT = (
    Workload(name="1 KB, 128 KB batches, 1 partition", slug="kb-1", partitions=1,
             record_bytes=1000, records=1_500_000, batch_bytes=131_072),
    Workload(name="1 KB, 128 KB batches, 4 partitions", slug="kb-4", partitions=4,
             record_bytes=1000, records=1_500_000, batch_bytes=131_072),
    Workload(name="1 KB, 128 KB batches, lz4, 1 partition", slug="kb-lz4-1", partitions=1,
             record_bytes=1000, records=1_500_000, batch_bytes=131_072, codec="lz4"),
    Workload(name="1 KB, 128 KB batches, lz4, 4 partitions", slug="kb-lz4-4", partitions=4,
             record_bytes=1000, records=1_500_000, batch_bytes=131_072, codec="lz4"),
    Workload(name="100 B, default producer, 1 partition", slug="small-1", partitions=1,
             record_bytes=100, records=3_000_000, batch_bytes=16_384),
)  # fmt: skip
KAFKA_VERSION = "4.3.1"  # of the brokers, the load generator and MirrorMaker 2
LATENCY_NAME = "100 records/s, 1 partition"
LATENCY_RATE = 100
LATENCY_SECONDS = 25.0
