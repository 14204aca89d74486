"""The pieces in which the log of a partition is read ahead: where each begins and ends, and which is planned next. No I/O.

``read_ahead`` requests the pieces over its connections and explains how they are used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from linkengine.batches.view import BatchView, CorruptBatchError, iter_batches
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.values import SourceOrigin
from linkengine.kafka.requests import FetchedPartition

PIECE_BYTES = 895_000  # with its framing a response fits one buffer (``AHEAD_UNIT``)
SPARE = 1.02  # of the estimated size of a piece, for the error of the estimate


class LogDensity(NamedTuple):
    """How the bytes of a response are distributed over offsets and batches."""

    bytes_per_offset: float
    batch_bytes: int  # of the largest batch


def shape_of(records: memoryview, *, offsets: int) -> LogDensity | None:
    """Return the shape of whole batches that cover ``offsets`` offsets; None if there is no batch or a damaged batch."""
    try:
        views = [view for _, view in iter_batches(records)]
    except CorruptBatchError:
        return None
    return _shape(views, offsets=offsets) if views else None


def _shape(views: Sequence[BatchView], *, offsets: int) -> LogDensity:
    sizes = [view.size for view in views]
    return LogDensity(sum(sizes) / max(1, offsets), max(sizes))


@dataclass(slots=True, eq=False)
class Piece:
    """A part of a log: offsets from ``start`` up to about ``stop``, and the response once it has arrived."""

    start: int
    stop: int
    size: int  # bytes to request
    urgent: bool = False  # fills a gap: pieces that were received already wait for it
    requested: bool = False
    as_head: bool = False  # was the first piece of its partition when requested, so that the reserve has memory for it
    response: FetchedPartition | None = None
    buffer: Buffer | None = None
    first: int | None = None  # base offset of the response's first batch, which contains ``start``
    end: int | None = None  # offset after the response's last batch
    shape: LogDensity | None = None  # of the response
    responded_ms: int = 0  # Unix time of the response, by this machine's clock

    def release(self) -> None:
        """Release the response's buffer."""
        if self.buffer is not None:
            self.buffer.release()
            self.buffer = None


class PartitionPieces:
    """The pieces of a partition, in offset order. Valid for a single attempt at a single leader."""

    __slots__ = ("_attempt", "origin", "partition", "pieces", "shape", "stalled_since")

    def __init__(self, partition: PartitionState, origin: SourceOrigin, shape: LogDensity) -> None:
        self.partition, self.origin = partition, origin
        self.shape = shape  # of the last response, from which later pieces are estimated
        self.pieces: deque[Piece] = deque()
        self.stalled_since: float | None = None  # the partition cannot take responses since then
        self._attempt = partition.attempt

    @property
    def valid(self) -> bool:
        """Whether the partition still reads from the same leader in the same attempt."""
        partition = self.partition
        same = partition.attempt == self._attempt and partition.origin is self.origin
        return same and partition.copying and not partition.examining and partition.unchecked_tail is None

    @property
    def bytes_ahead(self) -> int:
        """Bytes that are requested, or received and not planned yet."""
        return sum(piece.size for piece in self.pieces)

    @property
    def backlog_bytes(self) -> float:
        """Estimated bytes between the position and the end of the source, as last seen."""
        position, end = self.partition.position, self.partition.counters.source_end
        return 0.0 if position is None or end is None else (end - position) * self.shape.bytes_per_offset

    def first_unrequested(self) -> Piece | None:
        """Return the first piece that has not been requested, None if all have been."""
        return next((piece for piece in self.pieces if not piece.requested), None)

    def next_piece(self) -> Piece | None:
        """Add a piece behind the last piece and return it; None if the known end of the source is reached."""
        position, end = self.partition.position, self.partition.counters.source_end
        assert position is not None
        start = max(position, self.pieces[-1].stop) if self.pieces else position
        if end is None or start >= end:
            return None
        piece = self._piece(start, end)
        if piece.stop == end:  # records produced since then are fetched with it
            piece.size = max(piece.size, PIECE_BYTES)
        self.pieces.append(piece)
        return piece

    def head(self) -> Piece | None:
        """Return the piece to plan next, None until its response arrives. Inserts a piece if an estimate left a gap."""
        position = self.partition.position
        assert position is not None
        while len(self.pieces) > 1 and self.pieces[1].start <= position:  # the first piece is not needed, received or not
            self.pieces.popleft().release()
        if not self.pieces:
            return None
        head = self.pieces[0]
        if head.response is None:
            return None
        if head.start > position and (head.first is None or head.first > position):
            self.pieces.appendleft(self._piece(position, head.start if head.first is None else head.first, urgent=True))
            return None
        return head

    def replace_head(self) -> bool:
        """Replace the first piece by a piece that starts at the position; return False if it started there already."""
        head = self.pieces.popleft()
        head.release()
        position = self.partition.position
        assert position is not None
        if head.start == position:
            return False
        self.pieces.appendleft(self._piece(position, max(head.stop, position + 1), urgent=True))
        return True

    def clear(self) -> None:
        """Drop all pieces; responses still to arrive are ignored."""
        for piece in self.pieces:
            piece.release()
        self.pieces.clear()

    def shorten(self) -> bool:
        """Drop the last piece, unless it is the only piece; return whether it held memory."""
        if len(self.pieces) < 2:
            return False
        piece = self.pieces.pop()
        held = piece.buffer is not None
        piece.release()
        return held

    def arrived(self, piece: Piece) -> None:
        """Add pieces for gaps between a received piece and its neighbours, long before they are to be planned."""
        assert piece.response is not None
        try:
            views = [view for _, view in iter_batches(piece.response.records)]
        except CorruptBatchError:  # the planner reports it
            return
        if views:
            piece.first, piece.end = views[0].base_offset, max(view.next_offset for view in views)
            piece.shape = _shape(views, offsets=piece.end - piece.first)
        at = self.pieces.index(piece)
        for left in (at, at - 1):  # the later gap first, which leaves the index of the earlier gap unchanged
            if 0 <= left < len(self.pieces) - 1:
                self._fill_gap(left)

    def _fill_gap(self, left: int) -> None:
        """Insert a piece if a response ends before the first batch of the next and the offsets in between were not requested.

        A response begins with the batch that contains the requested offset, so it may begin before that offset. It begins
        behind it only if compaction has removed the offsets in between.
        """
        end, right = self.pieces[left].end, self.pieces[left + 1]
        first = right.first
        if end is not None and first is not None and end < min(first, right.start):
            self.pieces.insert(left + 1, self._piece(end, first, urgent=True))

    def _piece(self, start: int, end: int, *, urgent: bool = False) -> Piece:
        """Return a piece of about ``PIECE_BYTES``, or of four batches, and request enough for the batch that it ends in."""
        aim = aim_of(self.shape)
        stop = min(end, start + max(1, int(aim / self.shape.bytes_per_offset)))
        size = int((stop - start) * self.shape.bytes_per_offset * SPARE) + self.shape.batch_bytes + 1
        return Piece(start, stop, size, urgent=urgent)


def aim_of(shape: LogDensity) -> float:
    """Return the number of bytes that a piece should contain."""
    return max((PIECE_BYTES - shape.batch_bytes) / SPARE, 4 * shape.batch_bytes)
