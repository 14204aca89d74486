"""Plan how the offsets of a fetch response reach the mirror. Sans-IO: nothing is fetched or written here.

Theory of operation. The response of a read-committed Fetch is a sequence of batches with ascending offsets, cut off anywhere
at its end. The planner walks over them with a cursor, the next offset that the mirror needs, and handles each batch in one of
three ways:

1. *fill*: no record may appear at these offsets (control batch, aborted transaction, emptied by compaction);
2. *pass*: the batch has the current format and a record at every offset. Its records are not decoded, unless it is merged with
   small neighbours (``coalesce``); only its header is patched before it is sent (``patch``);
3. *decode*: anything else, such as gaps left by compaction, several records with LogAppendTime, an old format, or a batch that
   lies partly outside the wanted range. Its records become dense runs, and the offsets between them become fills.

The result covers each offset from ``next_offset`` to the end of the last whole batch (or to ``high_end``, if that is lower)
exactly once, which is checked before it is returned. It ends earlier, maybe within a batch, when the re-encoded batches reach
MOST_REENCODED bytes or MOST_APPENDS: compressed records may expand a thousandfold; the rest is read again. Transactions follow
KIP-98 and the consumer's interpretation of it: the response lists aborted transactions; a producer counts as aborting from the
first batch that reaches its transaction's first offset until its ABORT marker.

Markers have a checksum, the list has none. If a marker contradicts the list about the data before it in the same response,
committed records would be lost or aborted records copied, so the offsets are read again. The second response is not checked in
this way. A transaction whose marker is not in the response cannot be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from linkengine.batches.coalesce import LEAST_ROW, MergedRow, RawRun, RecordRun, Run, coalesce, merge_row, plain_appends
from linkengine.batches.compression import DecompressedTooLargeError
from linkengine.batches.large import rewrite_large
from linkengine.batches.patch import restamp
from linkengine.batches.records import ControlType, RecordLike, control_type, decode_batch
from linkengine.batches.steps import Append, Fill, Step
from linkengine.batches.view import (
    CONTROL_BIT,
    CURRENT_MAGIC,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NOT_SEEN,
    BatchView,
    OrderCheck,
    UnconfirmedBatchError,
    check_crc,
    iter_batches,
)
from linkengine.domain.states import GapReason

__all__ = [
    "AbortedTransaction",
    "AbortedTransactions",
    "Append",
    "Fill",
    "SegmentPlanner",
    "Step",
    "gap_reason",
    "is_contradictory",
]

MOST_REENCODED = 16 << 20  # approximate bytes of re-encoded batches per plan; the others stay in the receive buffer
MOST_APPENDS = 20_000  # re-encoded batches per plan; a compacted log may have a gap behind every record
_MOST_PENDING = 4 << 20  # bytes of decoded records before they are encoded
COALESCE_BYTES = 1 << 20  # 12 bytes less than the default of Kafka's message.max.bytes


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An entry of a Fetch response's list of aborted transactions: producer id and first offset."""

    producer_id: int
    first_offset: int


class SegmentPlanner:
    """Plans a partition. Stateless between responses: each response lists all aborted transactions that it touches."""

    __slots__ = ()

    def plan(
        self,
        buffer: memoryview,
        *,
        next_offset: int,
        aborted: Sequence[AbortedTransaction] = (),
        high_end: int,
        coalesce_bytes: int = COALESCE_BYTES,
        seen: int | None = None,
    ) -> list[Step]:
        """Return the steps that bring the mirror from ``next_offset`` to the end of the last whole batch, in offset order.

        ``high_end`` is the last stable offset; nothing at or beyond it is planned. Payloads that pass are slices of ``buffer``,
        which must be writable to be patched and must live until they are sent. Raises CorruptBatchError.

        ``seen`` is for a caller that can fetch again: NOT_SEEN for a first response, then the ``base_offset`` of the
        UnconfirmedBatchError that the previous response raised. That error is raised if the response begins with an unexpected
        batch that nothing in it confirms (``OrderCheck``) and that is not at ``seen``; for a first response also if a marker
        contradicts ``aborted``. With None it is never raised.
        """
        plain = None if aborted else plain_appends(buffer, next_offset=next_offset, high_end=high_end)
        if plain is not None:
            return [*plain]
        order = OrderCheck(buffer, first=next_offset, high_end=high_end, seen=seen)
        draft = _Draft(order, next_offset=next_offset, high_end=high_end, coalesce_bytes=coalesce_bytes)
        transactions = AbortedTransactions(aborted, checks=seen == NOT_SEEN)
        position = 0
        while position < len(buffer):
            position = self._plan_some(buffer, position, draft, transactions)
        return draft.finish()

    def _plan_some(self, buffer: memoryview, position: int, draft: _Draft, transactions: AbortedTransactions) -> int:
        """Plan batch by batch up to and including a row of single-record batches; return the position to continue at."""
        ordinary_until = position
        for start, view in iter_batches(buffer, position):
            in_place = start > 0 and view.base_offset == draft.cursor  # the first batch may claim a wrong offset
            if not in_place and not draft.order.admits(start, view, cursor=draft.cursor):
                break
            may_be_row = len(buffer) - start >= LEAST_ROW // 2 * view.size  # otherwise a row is unlikely
            if view.record_count == 1 and may_be_row and start >= ordinary_until and view.base_offset == draft.cursor:
                row = merge_row(
                    buffer,
                    start,
                    high_end=draft.high_end,
                    transactional=not transactions.any,
                    coalesce_bytes=draft.coalesce_bytes,
                )
                if row.next_offset - view.base_offset >= LEAST_ROW:
                    draft.add_row(row)
                    return row.end
                ordinary_until = row.end
            batch = buffer[start : start + view.length + LOG_OVERHEAD]
            try:
                draft.add(view, batch, gap=gap_reason(view, aborted=transactions.contain(view, batch)))
            except DecompressedTooLargeError:
                if not draft.has_progress:
                    raise
                break  # the steps before it are copied first
            if draft.is_full:
                break
        return len(buffer)


def gap_reason(view: BatchView, *, aborted: bool) -> GapReason | None:
    """Return why consumers see no record of a batch; None if they see its records."""
    if view.attributes & CONTROL_BIT:
        return GapReason.TRANSACTION_MARKER
    if view.record_count == 0:  # kept by the log cleaner for the producer state
        return GapReason.COMPACTED
    return GapReason.ABORTED if aborted else None


class AbortedTransactions:
    """The producers with an aborted transaction in progress at the current batch.

    ``checks``: raise UnconfirmedBatchError at a marker that contradicts the list. All batches must be below the last stable
    offset, or they may belong to transactions that were aborted after the list was made.
    """

    __slots__ = ("_aborting", "_checks", "_committing", "_waiting")

    def __init__(self, aborted: Sequence[AbortedTransaction], *, checks: bool = False) -> None:
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)  # the next is last
        self._aborting: set[int] = set()
        self._committing: set[int] = set()  # producers whose data since their last marker is not aborted according to the list
        self._checks = checks

    @property
    def any(self) -> bool:
        """True if aborted data may follow."""
        return bool(self._waiting or self._aborting)

    def contain(self, view: BatchView, batch: memoryview) -> bool:
        """Return whether the batch is aborted data. Must be called for every batch, in order."""
        while self._waiting and self._waiting[-1].first_offset < view.next_offset:
            self._aborting.add(self._waiting.pop().producer_id)
        if not view.is_transactional:
            return False
        if view.is_control:
            self._end(view, batch)
            return False
        if view.producer_id in self._aborting:
            return True
        if self._checks and view.record_count > 0:  # the cleaner keeps empty batches for the producer state
            self._committing.add(view.producer_id)
        return False

    def _end(self, view: BatchView, batch: memoryview) -> None:
        """Handle a marker; its type matters only after data of its producer."""
        aborting, committing = view.producer_id in self._aborting, view.producer_id in self._committing
        if not (aborting or committing):
            return
        kind = control_type(view, batch)
        contradicts = (aborting and kind is ControlType.COMMIT) or (committing and kind is ControlType.ABORT)
        if self._checks and contradicts:
            raise UnconfirmedBatchError(view.base_offset)
        self._committing.discard(view.producer_id)
        if kind is ControlType.ABORT:
            self._aborting.discard(view.producer_id)


def is_contradictory(buffer: memoryview, aborted: Sequence[AbortedTransaction]) -> bool:
    """Return whether a marker in a read-committed response contradicts the response's list of aborted transactions."""
    transactions = AbortedTransactions(aborted, checks=True)
    try:
        for start, view in iter_batches(buffer):
            transactions.contain(view, buffer[start : start + view.size])
    except UnconfirmedBatchError:
        return True
    return False


def _passed_view(view: BatchView, batch: memoryview) -> BatchView | None:
    """Return the header with which a batch can pass; None if its records must be decoded.

    A batch with LogAppendTime is restamped, which only works for a single record.
    """
    if view.magic != CURRENT_MAGIC or view.record_count != view.last_offset_delta + 1:
        return None
    return restamp(view, batch) if view.attributes & LOG_APPEND_TIME_BIT else view


class _Draft:
    """The unfinished plan: its steps, the runs not yet converted to steps, and the cursor."""

    __slots__ = (
        "_appends", "_next_offset", "_pending", "_reencoded", "_runs", "_steps", "coalesce_bytes", "cursor", "high_end", "order"
    )  # fmt: skip

    def __init__(self, order: OrderCheck, *, next_offset: int, high_end: int, coalesce_bytes: int) -> None:
        self.order = order
        self._appends = self._reencoded = self._pending = 0
        self._next_offset = self.cursor = next_offset
        self.high_end = high_end
        self.coalesce_bytes = coalesce_bytes
        self._steps: list[Step] = []
        self._runs: list[Run] = []

    @property
    def has_progress(self) -> bool:
        """True if the plan covers at least one offset."""
        return self.cursor > self._next_offset

    @property
    def is_full(self) -> bool:
        """True if the re-encoded batches reach the limit of a plan."""
        return self._reencoded >= MOST_REENCODED or self._appends >= MOST_APPENDS

    def add_row(self, row: MergedRow) -> None:
        """Add a merged row that begins at the cursor."""
        self._flush()
        self._steps.extend(row.appends)
        self.cursor = row.next_offset

    def add(self, view: BatchView, batch: memoryview, *, gap: GapReason | None) -> None:
        """Add the next whole batch; ``gap`` is the reason if it has no visible record."""
        end = view.next_offset
        if end <= self.cursor:
            return
        if view.magic == CURRENT_MAGIC:  # a wrapper of an older format does not show where it begins
            self._fill_to(view.base_offset, GapReason.COMPACTED)
        if self.cursor >= self.high_end:
            return
        if gap is not None:  # passed and decoded batches are checked later; a fill would drop the batch unchecked
            check_crc(view, batch)
            self._fill_to(end, gap)
            return
        passed = _passed_view(view, batch) if self.cursor == view.base_offset and end <= self.high_end else None
        if passed is not None:
            self._runs.append(RawRun(passed, batch))
            self.cursor = end
        elif self._decode(view, batch):
            self._fill_to(end, GapReason.COMPACTED)

    def finish(self) -> list[Step]:
        """Return the plan after checking that it covers its offsets exactly once."""
        self._flush()
        position = self._next_offset
        for step in self._steps:
            if step.start != position or step.end <= position:
                raise AssertionError(f"plan has a gap or an overlap at offset {position}: {step}")
            position = step.end
        if position != self.cursor or position > max(self.high_end, self._next_offset):
            raise AssertionError(f"plan ends at offset {position}, expected {self.cursor}, limit {self.high_end}")
        return self._steps

    def _decode(self, view: BatchView, batch: memoryview) -> bool:
        """Re-encode the records of a batch; return False if the plan is full before the last record."""
        try:
            records = decode_batch(view, batch)
        except DecompressedTooLargeError:
            if view.magic != CURRENT_MAGIC:
                raise
            return self._rewrite(view, batch)
        for run, weight in _dense_runs(_between(records, self.cursor, self.high_end)):
            if self.is_full:
                return False
            self._fill_to(run[0].offset, GapReason.COMPACTED)
            self._runs.append(RecordRun(run, view.codec, weight, view.size))
            self.cursor = run[-1].offset + 1
            self._pending += weight
            if self._pending >= _MOST_PENDING:
                self._flush()
        return True

    def _rewrite(self, view: BatchView, batch: memoryview) -> bool:
        """Re-encode records that exceed the memory limit; return False if the plan is full before the last record."""
        limit = max(self.coalesce_bytes, view.size)
        for append in rewrite_large(view, batch, start=self.cursor, end=self.high_end, limit=limit):
            self._fill_to(append.start, GapReason.COMPACTED)
            self._flush()
            self._steps.append(append)
            self.cursor = append.end
            self._reencoded += len(append.payload)
            self._appends += 1
            if self.is_full:
                return False
        return True

    def _fill_to(self, end: int, reason: GapReason) -> None:
        end = min(end, self.high_end)
        if end <= self.cursor:
            return
        self._flush()
        last = self._steps[-1] if self._steps else None
        if isinstance(last, Fill) and last.reason is reason:
            self._steps[-1] = Fill(last.start, end, reason)
        else:
            self._steps.append(Fill(self.cursor, end, reason))
        self.cursor = end

    def _flush(self) -> None:
        if not self._runs:
            return
        decoded = self._pending > 0
        for append in coalesce(self._runs, coalesce_bytes=self.coalesce_bytes):
            self._steps.append(append)
            if decoded:
                self._reencoded += len(append.payload)
                self._appends += 1
        self._runs, self._pending = [], 0


def _between(records: Iterable[RecordLike], start: int, end: int) -> Iterator[RecordLike]:
    for record in records:
        if record.offset >= end:
            return
        if record.offset >= start:
            yield record


def _dense_runs(records: Iterable[RecordLike]) -> Iterator[tuple[list[RecordLike], int]]:
    """Yield runs of consecutive offsets, cut also where they take much memory; each run with its weight."""
    run: list[RecordLike] = []
    weight = 0
    for record in records:
        if run and (record.offset != run[-1].offset + 1 or weight >= _MOST_PENDING):
            yield run, weight
            run, weight = [], 0
        run.append(record)
        weight += _weight(record)
    if run:
        yield run, weight


def _weight(record: RecordLike) -> int:
    """Return the approximate uncompressed bytes of a record; headers count by number."""
    return 32 + len(record.key or b"") + len(record.value or b"") + 64 * len(record.headers)
