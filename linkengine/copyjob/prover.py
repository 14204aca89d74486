"""Has mirrors' last stretches compared with the source before anything follows: the loop's side of ``proving.py``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.foreign import foreign_write, marker_overrun, replaced_records
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Origin, Stage
from linkengine.copyjob.proving import Answer, Difference, DifferenceKind, Question, Stretch, compare_all
from linkengine.copyjob.suspicion import Suspicion
from linkengine.domain.errors import ErrorCode, LinkEngineError, TruncationError
from linkengine.kafka.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ProverEvents:
    """What the source side hears."""

    proven: Callable[[MirrorPartition], None]
    short: Callable[[MirrorPartition], None]  # the source does not show all of it (yet)
    refused: Callable[[MirrorPartition, LinkEngineError], None]  # it cannot be told now
    failed: Callable[[MirrorPartition, LinkEngineError], None]  # for good


class Prover:
    """The partitions whose mirror's end is not proven."""

    def __init__(self, services: Services, cluster: Cluster, events: ProverEvents) -> None:
        self._services, self._cluster, self._events = services, cluster, events
        self._wanted: dict[MirrorPartition, None] = {}
        self._different = Suspicion(observations=2, seconds=0.0)

    def want(self, partition: MirrorPartition) -> None:
        """Compare a partition's stretch, if it has one, as soon as it is known where its source is."""
        if partition.to_prove is not None:
            self._wanted[partition] = None

    def forget(self, partition: MirrorPartition) -> None:
        """Do not compare any more."""
        self._wanted.pop(partition, None)

    def tick(self, now: float) -> None:
        """Begin what can begin, with one job per source broker."""
        groups: dict[int, list[tuple[MirrorPartition, int, Question]]] = defaultdict(list)
        for partition in list(self._wanted):
            origin, stretch = partition.origin, partition.to_prove
            if stretch is None:
                del self._wanted[partition]
            elif (
                origin is not None
                and partition.stage is Stage.COPYING
                and not partition.examining
                and partition.source_retry_at <= now
            ):
                partition.examining = True
                question = Question(assignment=partition.assignment, origin=origin, stretch=stretch)
                groups[origin.leader.broker].append((partition, partition.attempt, question))
        for broker, asked in groups.items():
            self._compare(broker, asked)

    def _compare(self, broker: int, asked: list[tuple[MirrorPartition, int, Question]]) -> None:
        questions = [question for _, _, question in asked]
        self._services.background.submit(
            lambda: compare_all(self._cluster, broker, questions),
            done=lambda answers: self._compared(asked, answers),
            failed=lambda error: self._compared(asked, dict.fromkeys([partition.key for partition, _, _ in asked], error)),
        )

    def _compared(
        self, asked: list[tuple[MirrorPartition, int, Question]], answers: dict[str, Answer | LinkEngineError]
    ) -> None:
        for partition, attempt, question in asked:
            if partition.attempt == attempt and partition.stage is Stage.COPYING:
                partition.examining = False
                if partition.origin is question.origin:  # else another leader is read now: it has to be asked again
                    self._settle(partition, question.origin, question.stretch, answers[partition.key])

    def _settle(self, partition: MirrorPartition, origin: Origin, stretch: Stretch, answer: Answer | LinkEngineError) -> None:
        if isinstance(answer, LinkEngineError):
            self._events.refused(partition, answer)
        elif answer.difference is not None:
            meaning = _what_it_means(partition, stretch, answer.difference)
            if self._different.confirmed(partition.key, self._services.clock.monotonic(), of=answer.difference):
                self._events.failed(partition, meaning)
            else:  # a single answer may have been changed on its way
                self._events.refused(partition, _once_more(partition, answer.difference))
        elif not answer.complete:
            self._events.short(partition)
        else:
            self.forget(partition)
            partition.proven(origin)
            self._events.proven(partition)


def _once_more(partition: MirrorPartition, difference: Difference) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Offset {difference.offset} of mirror {partition.assignment.mirror_topic}-{partition.assignment.partition} does not look like its "
        "source. It is compared once more before anything is concluded.",
    )


def _what_it_means(partition: MirrorPartition, stretch: Stretch, difference: Difference) -> LinkEngineError:
    if difference.kind is DifferenceKind.MARKER:
        return marker_overrun(partition.assignment, difference.offset)
    if difference.kind is DifferenceKind.UNSEEN:
        return foreign_write(partition.assignment, difference.offset)
    if stretch.foreign is not None and stretch.foreign <= difference.offset:
        return foreign_write(partition.assignment, stretch.foreign)
    known = any(offset < difference.offset for offset in stretch.records)  # records before it are the source's still
    return replaced_records(partition.assignment, difference.offset, kept=difference.offset if known else 0)


def beyond_source(partition: MirrorPartition, end: int) -> LinkEngineError:
    """Answer who wrote what the mirror holds beyond the source's end; else it must have been the source's own."""
    stretch = partition.to_prove
    if stretch is not None and stretch.foreign is not None and stretch.foreign >= end:
        return foreign_write(partition.assignment, stretch.foreign)
    if stretch is not None and stretch.only_markers_from(end):
        return marker_overrun(partition.assignment, end)
    return _truncation(partition, end)


def _truncation(partition: MirrorPartition, end: int) -> LinkEngineError:
    name = f"{partition.assignment.source_topic}-{partition.assignment.partition}"
    return TruncationError(
        f"Source {name} ends at offset {end}, before its mirror ({partition.position}): records were lost at the source, "
        "probably by an unclean leader election. Fail over to keep the mirror's records, or create the mirror again.",
        kept=end,
    )
