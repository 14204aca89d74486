"""Runs tail checks for the copy loop: nothing is copied to a partition before its last records equal the source's.

``tail_check`` compares; this module starts the comparisons in the background, one job per source broker, and decides what a
difference means. A difference has to be found twice before the mirror fails, since a single response may be corrupted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.errors import Confirmation
from linkengine.copyjob.foreign_writes import foreign_write, marker_overrun, replaced_records
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.resume.tail_check import Difference, DifferenceKind, TailCheck, TailCheckResult, check_tails
from linkengine.copyjob.values import LogTail, SourceOrigin, Stage
from linkengine.domain.errors import ErrorCode, LinkEngineError, TruncationError
from linkengine.kafka.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class TailCheckEvents:
    """Outcomes of tail checks, as callbacks of the source side."""

    proven: Callable[[PartitionState], None]  # the records are equal
    short: Callable[[PartitionState], None]  # equal as far as the source goes, which ends (or still ends) before the mirror
    refused: Callable[[PartitionState, LinkEngineError], None]  # no result now; to be retried
    failed: Callable[[PartitionState, LinkEngineError], None]  # permanently


class TailChecker:
    """The partitions with a pending tail check."""

    def __init__(self, services: Services, cluster: Cluster, events: TailCheckEvents) -> None:
        self._services, self._cluster, self._events = services, cluster, events
        self._wanted: dict[PartitionState, None] = {}
        self._different = Confirmation(observations=2, seconds=0.0)

    def want(self, partition: PartitionState) -> None:
        """Check a partition, if its tail is to be checked, as soon as its source leader is located."""
        if partition.unchecked_tail is not None:
            self._wanted[partition] = None

    def forget(self, partition: PartitionState) -> None:
        """Cancel the tail check of a partition."""
        self._wanted.pop(partition, None)

    def tick(self, now: float) -> None:
        """Start the checks that can start, as one job per source broker."""
        groups: dict[int, list[tuple[PartitionState, int, TailCheck]]] = defaultdict(list)
        for partition in list(self._wanted):
            origin, tail = partition.origin, partition.unchecked_tail
            if tail is None:
                del self._wanted[partition]
            elif (
                origin is not None
                and partition.stage is Stage.COPYING
                and not partition.examining
                and partition.source_retry_at <= now
            ):
                partition.examining = True
                check = TailCheck(assignment=partition.assignment, origin=origin, tail=tail)
                groups[origin.leader.broker].append((partition, partition.attempt, check))
        for broker, started in groups.items():
            self._compare(broker, started)

    def _compare(self, broker: int, started: list[tuple[PartitionState, int, TailCheck]]) -> None:
        checks = [check for _, _, check in started]
        self._services.background.submit(
            lambda: check_tails(self._cluster, broker, checks),
            done=lambda results: self._compared(started, results),
            failed=lambda error: self._compared(started, dict.fromkeys([partition.key for partition, _, _ in started], error)),
        )

    def _compared(
        self, started: list[tuple[PartitionState, int, TailCheck]], results: dict[str, TailCheckResult | LinkEngineError]
    ) -> None:
        for partition, attempt, check in started:
            if partition.attempt == attempt and partition.stage is Stage.COPYING:
                partition.examining = False
                if partition.origin is check.origin:  # else another leader is read now, and has to be compared with
                    self._settle(partition, check.origin, check.tail, results[partition.key])

    def _settle(
        self, partition: PartitionState, origin: SourceOrigin, tail: LogTail, result: TailCheckResult | LinkEngineError
    ) -> None:
        if isinstance(result, LinkEngineError):
            self._events.refused(partition, result)
        elif result.difference is not None:
            error = _error_of(partition, tail, result.difference)
            if self._different.confirmed(partition.key, self._services.clock.monotonic(), of=result.difference):
                self._events.failed(partition, error)
            else:  # a single response may have been corrupted
                self._events.refused(partition, _to_be_confirmed(partition, result.difference))
        elif not result.complete:
            self._events.short(partition)
        else:
            self.forget(partition)
            partition.proven(origin)
            self._events.proven(partition)


def _to_be_confirmed(partition: PartitionState, difference: Difference) -> LinkEngineError:
    where = f"{partition.assignment.mirror_topic}-{partition.assignment.partition}"
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Offset {difference.offset} of mirror {where} differs from the source. Comparing a second time to confirm it.",
    )


def _error_of(partition: PartitionState, tail: LogTail, difference: Difference) -> LinkEngineError:
    if difference.kind is DifferenceKind.MARKER:
        return marker_overrun(partition.assignment, difference.offset)
    if difference.kind is DifferenceKind.UNSEEN:
        return foreign_write(partition.assignment, difference.offset)
    if tail.foreign is not None and tail.foreign <= difference.offset:
        return foreign_write(partition.assignment, tail.foreign)
    known = any(offset < difference.offset for offset in tail.records)  # the records before it are still equal
    return replaced_records(partition.assignment, difference.offset, kept=difference.offset if known else 0)


def beyond_source(partition: PartitionState, end: int) -> LinkEngineError:
    """Return the error of a mirror that is longer than its source, which ends at ``end``.

    FOREIGN_WRITE or MARKER_OVERRUN if the pending tail check shows that; otherwise the source must have lost the records.
    """
    tail = partition.unchecked_tail
    if tail is not None and tail.foreign is not None and tail.foreign >= end:
        return foreign_write(partition.assignment, tail.foreign)
    if tail is not None and tail.only_markers_from(end):
        return marker_overrun(partition.assignment, end)
    return _truncation(partition, end)


def _truncation(partition: PartitionState, end: int) -> LinkEngineError:
    name = f"{partition.assignment.source_topic}-{partition.assignment.partition}"
    return TruncationError(
        f"Source {name} ends at offset {end}, but its mirror ends at {partition.position}. The source has lost records, "
        "probably in an unclean leader election. Fail over to keep the mirror's records, or create the mirror again.",
        kept=end,
    )
