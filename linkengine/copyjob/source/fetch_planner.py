"""Turns a partition's part of a Fetch response into steps to write (appends and gap fills), or into an error.

``FetchPlanner.take`` plans a response to a request at the partition's position. ``FetchPlanner.join`` plans a response that
starts at or before it: several requests for a partition are in flight if its source is distant (``read_ahead``,
``staggered_polls``). Both use the same planner (``SegmentPlanner``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from linkengine.batches.planning import AbortedTransaction, SegmentPlanner
from linkengine.batches.steps import Step
from linkengine.batches.view import CURRENT_MAGIC, NOT_SEEN, CorruptBatchError, UnconfirmedBatchError, intact_part, iter_batches
from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.errors import damaged
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.values import payload_bytes, points_into
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.protocol import BrokerError, KafkaCode, RedirectedError
from linkengine.kafka.requests import FetchedPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchEvents:
    """Outcomes of Fetch responses, as callbacks of the source side."""

    planned: Callable[[PartitionState], None]
    refused: Callable[[PartitionState, LinkEngineError], None]  # an error of this partition
    emptied: Callable[[PartitionState, int], None]  # no records up to this offset, in a response for the partition alone
    lost: Callable[[list[PartitionState], LinkEngineError], None]  # the connection to the broker


class FetchPlanner:
    """Plans Fetch responses of partitions."""

    def __init__(self, services: Services, events: FetchEvents) -> None:
        self._services, self._events = services, events
        self._unconfirmed: dict[PartitionState, tuple[int, int]] = {}  # position, base offset of a batch out of place

    def take(
        self, partition: PartitionState, response: FetchedPartition, buffer: Buffer, *, responded_ms: int, alone: bool
    ) -> None:
        """Plan a response, or report why it cannot be planned.

        ``responded_ms`` is the Unix time of the response; ``alone``: the request had no other partition.
        """
        if response.error:
            self._events.refused(partition, BrokerError(response.error, f"Source {_name(partition)} cannot be read"))
            return
        if response.preferred_replica >= 0 and not len(response.records):
            self._events.refused(partition, RedirectedError(f"source {_name(partition)}", replica=response.preferred_replica))
            return
        if _is_behind(partition, response):
            self._events.refused(
                partition, BrokerError(KafkaCode.OFFSET_OUT_OF_RANGE, f"Source {_name(partition)} ends before its mirror")
            )
            return
        partition.source_responded(
            start=response.log_start,
            end=response.last_stable_offset,
            high_watermark=response.high_watermark,
            now_ms=responded_ms,
        )
        try:
            steps = self._plan(partition, response) if len(response.records) else []
            _check_whole(partition, response, steps)
        except (CorruptBatchError, UnconfirmedBatchError) as error:
            self._not_planned(partition, error)
            return
        partition.source_backoff.reset()
        if steps:
            self._planned(partition, steps, buffer)
        elif not len(response.records):
            self._nothing_there(partition, response, alone=alone)

    def join(
        self, partition: PartitionState, response: FetchedPartition, buffer: Buffer, *, requested_from: int, responded_ms: int
    ) -> bool:
        """Plan the part of a response beyond the position; return whether the position has advanced.

        ``requested_from`` is at or before the position. A response that cannot be joined changes only the observed end of the
        source. Error codes are ignored here: only those of a request exactly at the position count.
        """
        before = partition.position
        assert before is not None
        if response.error or response.preferred_replica >= 0:
            return False
        records = response.records if requested_from == before else records_beyond(response, before)
        if records is None or not len(records):
            self.observe(partition, response, responded_ms=responded_ms)
            return False
        self.take(partition, response._replace(records=records), buffer, responded_ms=responded_ms, alone=False)
        return partition.position is not None and partition.position > before

    def observe(self, partition: PartitionState, response: FetchedPartition, *, responded_ms: int) -> None:
        """Record only the source's bounds of a response that is not planned: a session reports them only once."""
        if not response.error and not _is_behind(partition, response):
            partition.counters.observed_source(
                start=response.log_start,
                end=response.last_stable_offset,
                high_watermark=response.high_watermark,
                now_ms=responded_ms,
            )

    def _planned(self, partition: PartitionState, steps: list[Step], buffer: Buffer) -> None:
        if self._unconfirmed:
            self._unconfirmed.pop(partition, None)
        holder = None if points_into(steps, buffer) else self._services.pool.loose(payload_bytes(steps))
        if holder is None:  # also when too many merged batches are in memory: holding the receive buffer slows reading down
            holder = buffer
            buffer.users += 1
        partition.planned(steps, holder)
        self._events.planned(partition)

    def _not_planned(self, partition: PartitionState, error: CorruptBatchError | UnconfirmedBatchError) -> None:
        if isinstance(error, CorruptBatchError):
            self._events.refused(partition, damaged(partition, error))
            return
        assert partition.position is not None
        self._unconfirmed[partition] = (partition.position, error.base_offset)  # the partition is fetched again immediately

    def _plan(self, partition: PartitionState, response: FetchedPartition) -> list[Step]:
        assert partition.position is not None
        if partition.refused_at is not None and partition.refused_at < partition.position:
            partition.refused_at = None
        if partition.refused_at is None:
            with suppress(CorruptBatchError):  # below, the batches before the damaged one are planned
                return self._steps(partition, response, response.records)
        return self._steps(partition, response, intact_part(response.records, next_offset=partition.position))

    def _steps(self, partition: PartitionState, response: FetchedPartition, records: memoryview) -> list[Step]:
        assert partition.position is not None
        requested_from, seen = self._unconfirmed.get(partition, (partition.position, NOT_SEEN))
        return SegmentPlanner().plan(
            records,
            next_offset=partition.position,
            aborted=[AbortedTransaction(*entry) for entry in response.aborted],
            high_end=response.last_stable_offset,
            coalesce_bytes=max(1, int(self._services.tuning.coalesce_bytes * partition.coalesce_share)),
            seen=seen if requested_from == partition.position else NOT_SEEN,
        )

    def _nothing_there(self, partition: PartitionState, response: FetchedPartition, *, alone: bool) -> None:
        """Handle a response without records: there are none yet, compaction removed them, or remote storage is slow."""
        assert partition.position is not None
        if alone and response.last_stable_offset > partition.position:
            self._events.emptied(partition, response.last_stable_offset)


def records_beyond(response: FetchedPartition, position: int) -> memoryview | None:
    """Return the part to plan of a response that begins before ``position``; None if it does not join there.

    Empty: the response ends before the position.

    * With aborted transactions nothing is cut off. Without an ABORT marker before the position, the planner would treat later
      committed records of the same producer as aborted (KIP-98).
    * Without them the first batch that is kept must begin exactly at the position. So an earlier batch with a damaged base
      offset cannot hide records: there would be a gap in its place.
    """
    try:
        for start, view in iter_batches(response.records):
            if view.magic != CURRENT_MAGIC:
                return None
            if view.next_offset > position:
                if view.base_offset != position:
                    return None
                return response.records if response.aborted else response.records[start:]
    except CorruptBatchError:
        return None
    return response.records[:0]


def _check_whole(partition: PartitionState, response: FetchedPartition, steps: list[Step]) -> None:
    """Raise CorruptBatchError if there are bytes but no complete batch: a broker sends at least the first batch whole (KIP-74).

    A damaged batch length has this effect. Without the error it would be fetched again and again, unnoticed.
    """
    assert partition.position is not None
    if len(response.records) and not steps and response.last_stable_offset > partition.position:
        raise CorruptBatchError(
            f"A response from offset {partition.position} on holds no whole batch in {len(response.records)} bytes."
        )


def _is_behind(partition: PartitionState, response: FetchedPartition) -> bool:
    """Return whether the leader's last stable offset is before the position, so that it does not show the source's end.

    After an election a leader has an older high watermark until its followers have fetched from it.
    """
    return partition.position is not None and response.last_stable_offset < partition.position


def _name(partition: PartitionState) -> str:
    return f"{partition.assignment.source_topic}-{partition.assignment.partition}"
