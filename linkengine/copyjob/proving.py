"""Whether a mirror's end is the source's: compares the last stretch of both, record by record. Blocking; runs beside the loop.

Epochs and sequences keep everything right that its writers know of. Three things they cannot know: a gap fill that was written
late, when its owner was taken for dead, and pushed what follows aside; records that the source lost and replaced between the
last report of a copier and its sudden death; a stranger's records in a mirror that nobody was watching. Each shows in the last
records of the mirror, so an owner that was not told by its predecessor where it left off looks at them before it goes on.

Compaction removes what it likes, on each replica when it likes: an offset that shows nothing on one side proves nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from linkengine.batches.compression import InflatedTooFarError
from linkengine.batches.control import ControlType, control_type
from linkengine.batches.decoding import decode_batch
from linkengine.batches.large import hash_fields, hash_large, read_large
from linkengine.batches.planning import AbortedTransaction, AbortedTransactions, SegmentPlanner
from linkengine.batches.steps import Append, Fill
from linkengine.batches.view import CURRENT_MAGIC, BatchView, iter_batches
from linkengine.copyjob.pieces import Origin
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.domain.states import GapReason
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, list_offsets
from linkengine.kafka.policies import is_compacted
from linkengine.kafka.reading import FEW_BYTES, read_committed, read_with_aborted

# Offsets to look back until a record is met: the last batch, then more; 1,000 markers go into one request (``filling.py``).
LOOK_BACK = (1, 32, 1_100)
MOST_OFFSETS = 50_000  # of a stretch: one batch may hold millions of records, and each that is compared takes memory
Content = tuple[int | None, bytes]  # timestamp if it can be relied on, and a hash of the rest: the records may be large
Place = tuple[str, bytes, int]  # topic, its id, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What a mirror holds from ``start`` to its ``end``."""

    start: int
    end: int
    records: Mapping[int, Content]
    markers: frozenset[int]  # of our own: offsets that should hold no record
    foreign: int | None = None  # offset of the first batch that another producer wrote
    their_markers: frozenset[int] = frozenset()
    aborted: frozenset[int] = frozenset()  # records that nobody sees, and that take offsets; never ours
    closed: bool = False  # it ends with the fence of a stop: fills abort, fences commit

    def only_markers_from(self, offset: int) -> bool:
        """Tell whether nothing but our markers stands there and beyond."""
        return all(at in self.markers for at in range(offset, self.end))


class DifferenceKind(StrEnum):
    """How two logs disagree."""

    MARKER = "MARKER"  # our marker stands where the source has a record
    RECORD = "RECORD"  # the mirror has a record, the source another one or none that anybody may see
    UNSEEN = "UNSEEN"  # somebody else's marker or aborted record stands where the source has a record


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first offset at which the stretch is not the source's."""

    offset: int
    kind: DifferenceKind


def read_stretch(
    connection: Connection,
    *,
    topic: Place,
    leader_epoch: int,
    bounds: tuple[int, int],
    producer_id: int,
    local_start: Callable[[], int],
) -> Stretch:
    """Read the mirror's last records and what follows them; ``bounds`` are its start and end, all of it replicated.

    ``local_start`` is asked where an answer is empty: below it that means that remote storage is slow (KIP-405), and a look
    that finds less than the one before would prove nothing. Raises TIMEOUT_ERROR then.
    """
    first, end = bounds
    stretch = Stretch(start=end, end=end, records={}, markers=frozenset())
    for back in LOOK_BACK:
        looked_at = (max(first, end - back), end)
        found = _mirror_batches(connection, topic=topic, leader_epoch=leader_epoch, bounds=looked_at, local_start=local_start)
        stretch = _gathered(found, first=max(first, end - MOST_OFFSETS), bounds=looked_at, producer_id=producer_id)
        if stretch.records or looked_at[0] == first:
            break
    return stretch


def _mirror_batches(
    connection: Connection, *, topic: Place, leader_epoch: int, bounds: tuple[int, int], local_start: Callable[[], int]
) -> Iterator[tuple[BatchView, memoryview, bool]]:
    """Yield batches, and whether they are aborted data: applications leave some in a topic that a reversal made a mirror."""
    position, end = bounds
    while position < end:
        error, entries, records = read_with_aborted(
            connection, topic=topic, leader_epoch=leader_epoch, offset=position, max_bytes=FEW_BYTES
        )
        if error:
            raise BrokerError(error, f"The end of mirror {topic[0]}-{topic[2]} cannot be read")
        before, aborted = position, AbortedTransactions([AbortedTransaction(*entry) for entry in entries])
        for at, view in iter_batches(records):
            position = max(position, view.next_offset)
            batch = records[at : at + view.size]
            yield view, batch, aborted.contain(view, batch)
        if position == before and position < local_start():
            raise _slow_storage(f"mirror {topic[0]}-{topic[2]}", what="the source's records are")
        if position == before:
            return  # compaction has removed the rest


def _gathered(
    batches: Iterator[tuple[BatchView, memoryview, bool]], *, first: int, bounds: tuple[int, int], producer_id: int
) -> Stretch:
    """Take in whole batches, from the offset ``first`` on: many records alike do not look right by chance."""
    start, end = bounds
    records: dict[int, Content] = {}
    markers: set[int] = set()
    theirs: set[int] = set()
    given_up: set[int] = set()
    foreign: int | None = None
    closed = False
    for view, batch, aborted in batches:
        ours = view.producer_id == producer_id
        closed = ours and view.is_control and control_type(view, batch) is ControlType.COMMIT
        if not ours and foreign is None:
            foreign = view.base_offset
        start = min(start, max(first, view.base_offset))
        if view.is_control or aborted:
            hidden = given_up if aborted else markers if ours else theirs
            hidden |= set(range(max(first, view.base_offset), min(end, view.next_offset)))
        else:
            contents = _contents(view, batch, start=first)
            found = {record.offset: record.content(timestamps=not view.log_append_time) for record in contents}
            start = min(start, next(iter(found), end))  # an old wrapper has its last record's offset
            records |= found
    return Stretch(
        start=start,
        end=end,
        records=records,
        markers=frozenset(markers),
        foreign=foreign,
        their_markers=frozenset(theirs),
        aborted=frozenset(given_up),
        closed=closed,
    )


def first_difference(
    connection: Connection,
    *,
    topic: Place,
    leader_epoch: int,
    bounds: tuple[int, int],
    stretch: Stretch,
    compacted: Callable[[], bool],
    local_start: int = 0,
) -> Difference | None:
    """Compare a mirror's stretch with its source; ``bounds`` are the source's log start and last stable offset.

    Before ``local_start`` the source reads from remote storage, where an empty answer means nothing (KIP-405). ``compacted`` is
    asked where our marker stands in the place of a record with a key: a replica that is not compacted yet may still show it.
    """
    position, end = max(bounds[0], stretch.start), min(bounds[1], stretch.end)
    while position < end:
        error, aborted, records = read_committed(
            connection, topic=topic, leader_epoch=leader_epoch, offset=position, max_bytes=FEW_BYTES
        )
        if error:
            raise BrokerError(error, f"Source {topic[0]}-{topic[2]} cannot be read for a check")
        steps = SegmentPlanner().plan(
            memoryview(bytearray(records)),  # planning gives records of LogAppendTime their times, in place
            next_offset=position,
            aborted=[AbortedTransaction(*entry) for entry in aborted],
            high_end=end,
        )
        if not steps and position < local_start:
            raise _slow_storage(f"source {topic[0]}-{topic[2]}", what="its mirror is")
        if not steps:
            return None  # compaction has removed the rest
        for step in steps:
            found = _difference_in(step, stretch, compacted) if isinstance(step, Append) else _record_in(step, stretch)
            if found is not None:
                return found
        position = steps[-1].end
    return None


def _slow_storage(of: str, *, what: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR, f"Remote storage of {of} is slow to bring what {what} compared with. Retrying."
    )


def _difference_in(step: Append, stretch: Stretch, compacted: Callable[[], bool]) -> Difference | None:
    _, view = next(iter_batches(step.payload))
    for record in _contents(view, step.payload, start=step.start):
        hidden = _hidden_by(record, stretch, compacted)
        if hidden is not None:
            return Difference(offset=record.offset, kind=hidden)
        known = stretch.records.get(record.offset)
        if known is not None and known != record.content(timestamps=known[0] is not None):
            return Difference(offset=record.offset, kind=DifferenceKind.RECORD)
    return None


class _Hashed(NamedTuple):
    """A record of which only a hash of key, value and headers is kept."""

    offset: int
    timestamp: int
    has_key: bool
    hash: bytes

    def content(self, *, timestamps: bool) -> Content:
        return self.timestamp if timestamps else None, self.hash


def _contents(view: BatchView, batch: memoryview, *, start: int) -> Iterator[_Hashed]:
    """Yield a batch's records from the offset ``start`` on; one at a time is in memory, of a large one only pieces."""
    try:
        records = decode_batch(view, batch)
    except InflatedTooFarError:
        if view.magic != CURRENT_MAGIC:
            raise
        yield from (
            _Hashed(record.offset, record.timestamp, *hash_large(record))
            for record in read_large(view, batch)
            if record.offset >= start
        )
        return
    for record in records:
        if record.offset >= start:
            yield _Hashed(
                record.offset, record.timestamp, record.key is not None, hash_fields(record.key, record.value, record.headers)
            )


def _hidden_by(record: _Hashed, stretch: Stretch, compacted: Callable[[], bool]) -> DifferenceKind | None:
    """Tell what stands in the mirror in the place of a source's record and shows nothing to anybody, if that proves anything.

    A marker may be a fill of ours for what one replica's cleaner had removed; under another producer id where a coordinator
    has given us a new one since. Aborted records are never ours.
    """
    if record.offset in stretch.aborted:
        return DifferenceKind.UNSEEN
    kind = DifferenceKind.MARKER if record.offset in stretch.markers else None
    kind = DifferenceKind.UNSEEN if record.offset in stretch.their_markers else kind
    return None if kind is None or (record.has_key and compacted()) else kind


def _record_in(gap: Fill, stretch: Stretch) -> Difference | None:
    """Compaction takes records on each replica when it likes; markers and aborted data are at their offsets on all of them."""
    if gap.reason not in (GapReason.TRANSACTION_MARKER, GapReason.ABORTED):
        return None
    found = min((offset for offset in stretch.records if gap.start <= offset < gap.end), default=None)
    return None if found is None else Difference(offset=found, kind=DifferenceKind.RECORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A mirror's stretch and where its source is read."""

    assignment: PartitionAssignment
    origin: Origin
    stretch: Stretch


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a comparison; ``complete``: nothing of the stretch lies beyond what the source shows."""

    difference: Difference | None
    complete: bool


def compare_all(cluster: Cluster, broker: int, questions: Sequence[Question]) -> dict[str, Answer | LinkEngineError]:
    """Compare stretches with their source, which ``broker`` leads; answers by key. One connection for all of them."""
    places = [(question.assignment.source_topic, question.assignment.partition) for question in questions]
    starts = list_offsets(cluster, broker, places, timestamp=EARLIEST)
    ends = list_offsets(cluster, broker, places, timestamp=LATEST, read_committed=True)
    local = list_offsets(cluster, broker, places, timestamp=EARLIEST_LOCAL)
    connection = cluster.open(broker)
    answers: dict[str, Answer | LinkEngineError] = {}
    try:
        for place, question in zip(places, questions, strict=True):
            (start_error, start), (end_error, end) = starts.get(place, (3, -1)), ends.get(place, (3, -1))
            try:
                if start_error or end_error:
                    raise BrokerError(start_error or end_error, f"Source {place[0]}-{place[1]} cannot be read for a check")
                answers[question.assignment.key] = _compared(
                    cluster, connection, question, bounds=(start, end), local_start=local[place][1]
                )
            except LinkEngineError as error:
                answers[question.assignment.key] = error
    finally:
        connection.close()
    return answers


def _compared(
    cluster: Cluster, connection: Connection, question: Question, *, bounds: tuple[int, int], local_start: int
) -> Answer:
    topic_id = question.origin.topic if question.origin.by_id else bytes(16)
    topic, leader = (question.assignment.source_topic, topic_id, question.assignment.partition), question.origin.leader
    found = first_difference(
        connection,
        topic=topic,
        leader_epoch=leader.epoch,
        bounds=bounds,
        stretch=question.stretch,
        compacted=cache(lambda: is_compacted(cluster, leader.broker, topic[0])),
        local_start=local_start,
    )
    return Answer(difference=found, complete=bounds[1] >= question.stretch.end)
