"""Turns one partition's share of a Fetch answer into the steps that are written next, or into the reason why there are none.

``Intake.take`` plans an answer that was asked for at the partition's position, ``Intake.join`` one that was asked for earlier
in the log: several requests for one partition are outstanding at the same time where its source is far away (``read_ahead``,
``staggered_polls``). Both use the same planner.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from linkengine.batches.intact import intact_part
from linkengine.batches.neighbours import NOT_SEEN, DoubtfulBatchError
from linkengine.batches.planning import AbortedTransaction, SegmentPlanner
from linkengine.batches.steps import Step
from linkengine.batches.view import CURRENT_MAGIC, CorruptBatchError, iter_batches
from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import payload_bytes, points_into
from linkengine.copyjob.refusals import damaged
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.codes import BrokerError, KafkaCode, RedirectedError
from linkengine.kafka.fetch import FetchedPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeEvents:
    """What the source side tells the loop."""

    planned: Callable[[MirrorPartition], None]
    refused: Callable[[MirrorPartition, LinkEngineError], None]  # this partition, by an error code
    emptied: Callable[[MirrorPartition, int], None]  # nothing came up to this end, though it was asked for alone
    lost: Callable[[list[MirrorPartition], LinkEngineError], None]  # the broker


class Intake:
    """Takes in answers for partitions that still want them."""

    def __init__(self, services: Services, events: IntakeEvents) -> None:
        self._services, self._events = services, events
        self._doubtful: dict[MirrorPartition, tuple[int, int]] = {}  # where an answer began, and the batch out of place in it

    def take(self, partition: MirrorPartition, answer: FetchedPartition, buffer: Buffer, *, heard_ms: int, alone: bool) -> None:
        """Plan what came, as its broker told at ``heard_ms``; ``alone``: the partition was the only one asked for."""
        if answer.error:
            self._events.refused(partition, BrokerError(answer.error, f"Source {_name(partition)} cannot be read"))
            return
        if answer.preferred_replica >= 0 and not len(answer.records):
            self._events.refused(partition, RedirectedError(f"source {_name(partition)}", replica=answer.preferred_replica))
            return
        if _is_behind(partition, answer):
            self._events.refused(
                partition, BrokerError(KafkaCode.OFFSET_OUT_OF_RANGE, f"Source {_name(partition)} ends before its mirror")
            )
            return
        partition.source_answered(
            start=answer.log_start, end=answer.last_stable_offset, high_watermark=answer.high_watermark, now_ms=heard_ms
        )
        try:
            steps = self._plan(partition, answer) if len(answer.records) else []
            _check_whole(partition, answer, steps)
        except (CorruptBatchError, DoubtfulBatchError) as error:
            self._not_planned(partition, error)
            return
        partition.source_backoff.reset()
        if steps:
            self._planned(partition, steps, buffer)
        elif not len(answer.records):
            self._nothing_there(partition, answer, alone=alone)

    def join(
        self, partition: MirrorPartition, answer: FetchedPartition, buffer: Buffer, *, asked_from: int, heard_ms: int
    ) -> bool:
        """Plan what an answer has beyond the position; return whether the position has advanced.

        ``asked_from`` is at or before the position. An answer that cannot be joined changes nothing but the observed end of the
        source, and neither does an error code: who asked exactly at the position decides what that means.
        """
        before = partition.position
        assert before is not None
        if answer.error or answer.preferred_replica >= 0:
            return False
        records = answer.records if asked_from == before else records_beyond(answer, before)
        if records is None or not len(records):
            self.overhear(partition, answer, heard_ms=heard_ms)
            return False
        self.take(partition, answer._replace(records=records), buffer, heard_ms=heard_ms, alone=False)
        return partition.position is not None and partition.position > before

    def overhear(self, partition: MirrorPartition, answer: FetchedPartition, *, heard_ms: int) -> None:
        """Take in where the source ends though the rest is not wanted any more: a session tells it only once."""
        if not answer.error and not _is_behind(partition, answer):
            partition.account.observed_source(
                start=answer.log_start,
                end=answer.last_stable_offset,
                high_watermark=answer.high_watermark,
                now_ms=heard_ms,
            )

    def _planned(self, partition: MirrorPartition, steps: list[Step], buffer: Buffer) -> None:
        if self._doubtful:
            self._doubtful.pop(partition, None)
        holder = None if points_into(steps, buffer) else self._services.pool.loose(payload_bytes(steps))
        if holder is None:  # also where too much is merged already: the held buffer slows the reading down
            holder = buffer
            buffer.users += 1
        partition.planned(steps, holder)
        self._events.planned(partition)

    def _not_planned(self, partition: MirrorPartition, error: CorruptBatchError | DoubtfulBatchError) -> None:
        if isinstance(error, CorruptBatchError):
            self._events.refused(partition, damaged(partition, error))
            return
        assert partition.position is not None
        self._doubtful[partition] = (partition.position, error.base_offset)  # and it is read again at once

    def _plan(self, partition: MirrorPartition, answer: FetchedPartition) -> list[Step]:
        assert partition.position is not None
        if partition.refused_at is not None and partition.refused_at < partition.position:
            partition.refused_at = None
        if partition.refused_at is None:
            with suppress(CorruptBatchError):  # how far it is whole is looked at below
                return self._steps(partition, answer, answer.records)
        return self._steps(partition, answer, intact_part(answer.records, next_offset=partition.position))

    def _steps(self, partition: MirrorPartition, answer: FetchedPartition, records: memoryview) -> list[Step]:
        assert partition.position is not None
        asked_from, seen = self._doubtful.get(partition, (partition.position, NOT_SEEN))
        return SegmentPlanner().plan(
            records,
            next_offset=partition.position,
            aborted=[AbortedTransaction(*entry) for entry in answer.aborted],
            high_end=answer.last_stable_offset,
            coalesce_bytes=max(1, int(self._services.tuning.coalesce_bytes * partition.coalesce_share)),
            seen=seen if asked_from == partition.position else NOT_SEEN,
        )

    def _nothing_there(self, partition: MirrorPartition, answer: FetchedPartition, *, alone: bool) -> None:
        """No batch came: there is none yet, or compaction emptied the end, or it is fetched from remote storage still."""
        assert partition.position is not None
        if alone and answer.last_stable_offset > partition.position:
            self._events.emptied(partition, answer.last_stable_offset)


def records_beyond(answer: FetchedPartition, position: int) -> memoryview | None:
    """Return what to plan of an answer that begins before ``position``; None where it does not join there.

    Empty: the answer ends before the position. Where the answer lists aborted transactions nothing is cut off: the planner
    must see an ABORT marker before the position, or it takes committed records of the same producer behind it for aborted
    (KIP-98). Otherwise the first batch that is kept must begin exactly at the position. A batch in front of it whose base
    offset is damaged cannot hide records then: a hole would be in its place.
    """
    try:
        for start, view in iter_batches(answer.records):
            if view.magic != CURRENT_MAGIC:
                return None
            if view.next_offset > position:
                if view.base_offset != position:
                    return None
                return answer.records if answer.aborted else answer.records[start:]
    except CorruptBatchError:
        return None
    return answer.records[:0]


def _check_whole(partition: MirrorPartition, answer: FetchedPartition, steps: list[Step]) -> None:
    """Raise where there are bytes and no batch in them, whole or wanted: a broker sends the first one whole (KIP-74).

    A damaged length looks like that, and would be asked for again at once, for ever, and nobody would hear of it.
    """
    assert partition.position is not None
    if len(answer.records) and not steps and answer.last_stable_offset > partition.position:
        raise CorruptBatchError(
            f"An answer from offset {partition.position} on holds no whole batch in {len(answer.records)} bytes."
        )


def _is_behind(partition: MirrorPartition, answer: FetchedPartition) -> bool:
    """Tell whether a leader shows less than was read already: no sight of the source, whatever the reason.

    After an election it knows an older high watermark until its followers have fetched from it.
    """
    return partition.position is not None and answer.last_stable_offset < partition.position


def _name(partition: MirrorPartition) -> str:
    return f"{partition.assignment.source_topic}-{partition.assignment.partition}"
