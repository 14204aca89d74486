"""Mirror partitions for tests of their rules, a cluster that is not contacted, and a callback that must not be called."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from linkengine.batches.steps import Append, Fill
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.destination.head_seed import dense_filler
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.values import FillInFlight, LogEnd, SourceOrigin
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.plans import PartitionAssignment
from linkengine.domain.producers import ProducerState, TransactionalProducer
from linkengine.domain.states import GapReason
from linkengine.domain.workers import Grant
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.topicviews import Leader

NOWHERE = Cluster(ClusterAddress(bootstrap_servers="127.0.0.1:1"))


def unexpected(*event: object) -> NoReturn:
    """Fail the test: this event must not occur."""
    pytest.fail(f"unexpected event: {event}")


def partition(number: int = 0) -> PartitionState:
    """Return a partition that waits for its lease."""
    assignment = PartitionAssignment(
        mirror_id="1", partition=number, source_topic="t", mirror_topic="t", source_topic_id="", producer_id=1 << 62
    )
    return PartitionState(assignment, copy_run_id="slice")


UNTIL = 1_000.0
SEEN = ProducerState(epoch=3, last_sequence=9, coordinator_epoch=8)
BOUND = TransactionalProducer(producer_id=5, epoch=3)


def log_end(*, start: int = 0, end: int = 10, producer: ProducerState = SEEN) -> LogEnd:
    """Return a tail whose leader remembers ``producer``."""
    leader = Leader(broker=0, epoch=1)
    return LogEnd(leader=leader, topic_id=bytes(16), start=start, end=end, producer=producer, producer_id=1 << 62)


def owned(
    *,
    generation: int,
    clean: bool,
    producer: ProducerState = SEEN,
    start: int = 0,
    transactions: TransactionalProducer | None = None,
) -> PartitionState:
    """Return a partition that was granted a lease and has resumed at offset 10."""
    mirror_partition = partition()
    mirror_partition.start_hold(Grant(key=mirror_partition.key, generation=generation, clean=clean, valid_until=UNTIL))
    mirror_partition.resumed(replace(log_end(start=start, producer=producer), transactions=transactions), now_ms=0)
    return mirror_partition


def sent(mirror_partition: PartitionState) -> Append:
    """Send a batch of two records at offset 10; return its step."""
    (step,) = planned(mirror_partition, 10)
    mirror_partition.send_append(step)
    return step


def planned(mirror_partition: PartitionState, *offsets: int) -> list[Append]:
    """Add a chunk of batches with two records each, at these offsets; return its steps."""
    batch = dense_filler(2, 0)
    steps = [Append(start, 2, memoryview(bytearray(batch)), records=2, max_timestamp=0) for start in offsets]
    mirror_partition.planned(steps, Buffer())
    return steps


def filling(mirror_partition: PartitionState, *, late_until: float) -> FillInFlight:
    """Send the first markers of a gap from offset 10 to 12; return the fill in flight."""
    step = Fill(10, 13, GapReason.ABORTED)
    mirror_partition.planned([step], Buffer())
    return mirror_partition.send_fill(step, most=100, late_until=late_until)


def served(mirror_partition: PartitionState, *, epoch: int) -> PartitionState:
    """Set a source leader of this epoch that has responded; return the partition."""
    mirror_partition.origin = SourceOrigin(Leader(broker=0, epoch=epoch), b"topic")
    mirror_partition.source_responded(start=0, end=10, high_watermark=10, now_ms=1)
    return mirror_partition
