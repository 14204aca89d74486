"""State machine of a mirror partition in a copy worker: lease, resume, appends, gap fills, end. No I/O.

::

    WAITING ──lease granted──► RESUMING ──log end read──► COPYING ──error──► RESUMING …
       ▲                          │                          │
       └── lease lost ────────────┴──────────────────────────┤
                                                             └──stop, fail, move──► STOPPING ──nothing in flight──► ENDED

Every resume starts a new *attempt*. Responses to requests of earlier attempts are ignored, because the log end that is read
after them includes whatever they wrote.

Order within an attempt, which keeps mirror offsets equal to source offsets:

* Steps (appends and gap fills) are sent strictly in offset order.
* A fill is sent only when all appends before it are acknowledged: a marker append is not conditional. The next step is sent
  only when the log end after the markers is verified.
* The first append of an attempt, or after a pause, is sent alone. A leader without producer state for this producer id (new
  log, expired producer) accepts any sequence number, so a second append in flight would take the offset of a refused first.

A *hold* is the time from a granted lease until it is released or lost; it can have several attempts. A *copy run* lasts as
long as the ``PartitionState`` object: it has several holds if the lease is lost and granted to this worker again. Its reports
have its ``copy_run_id``, and the counters count since it began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from linkengine.batches.patch import patch_for_append
from linkengine.batches.steps import Append, Fill, Step
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.pacing import Backoff
from linkengine.copyjob.partition_counters import PartitionCounters
from linkengine.copyjob.producer_state import LateAppends, OwnProducerState, Unacknowledged, unacknowledged_of
from linkengine.copyjob.values import (
    Chunk,
    FillInFlight,
    LogEnd,
    LogEndQuery,
    LogTail,
    LostMarker,
    Overtaken,
    ReadPosition,
    SourceOrigin,
    Stage,
    Trouble,
)
from linkengine.domain.errors import LinkEngineError, TruncationError
from linkengine.domain.plans import PartitionAssignment, PartitionPhase
from linkengine.domain.producers import TransactionalProducer
from linkengine.domain.states import GapReason
from linkengine.domain.workers import FIRST_GENERATION, Grant

LEAST_SHARE = 1e-6  # at this share of ``coalesce_bytes`` batches are no longer merged
OVERLAP_S = 1.0  # added to a lease's length: the previous owner's renewal may have been in flight when it was acquired
CHUNKS_AHEAD = 2  # one chunk being written and one waiting, so that fetching and writing overlap


class PartitionState:
    """State of a partition and the rules for what may be sent next; called by the source side and the destination side."""

    def __init__(self, assignment: PartitionAssignment, *, copy_run_id: str) -> None:
        self.assignment = assignment
        self.key, self.copy_run_id = assignment.key, copy_run_id
        self.stage = Stage.WAITING
        self.grant: Grant | None = None
        self.may_send_markers: bool | None = None  # True: the lease records that this owner may send markers; False: requested
        self.producer_state = OwnProducerState(assignment.producer_id)
        self.counters = PartitionCounters()
        self.attempt = 0
        self._producer_known = False  # the leader acknowledged an append of this attempt, and no pause followed
        self.failure: Trouble | None = None
        self.release_trouble: Trouble | None = None  # why this worker released the partition although it is still assigned
        self.source_trouble: Trouble | None = None
        self.mirror_trouble: Trouble | None = None
        # source side
        self.origin: SourceOrigin | None = None
        self.read_position = ReadPosition(assignment.source_seen)
        self.unchecked_tail: LogTail | None = None  # the mirror's last records, while a tail check is pending
        self.position: int | None = None  # next source offset to fetch
        self.examining, self.source_retry_at = False, 0.0  # examining: a background check of the source is running
        self.source_backoff = Backoff()
        # destination side
        self.log_end: LogEnd | None = None
        self.sent_end: int | None = None  # offset after everything that this hold has sent
        self.overtaken: Overtaken | None = None  # offsets with other records than those that were sent, by a response
        self.chunks: deque[Chunk] = deque()
        self.in_flight: deque[Append] = deque()
        self.fill: FillInFlight | None = None
        self._unverified: FillInFlight | None = None  # a fill whose response was lost; the next log end shows if it was written
        self.unacknowledged: Unacknowledged | None = None  # unacknowledged appends and fills of this hold
        self.lost_marker: LostMarker | None = None
        self.late_appends = LateAppends()
        self._markers_from = 0.0  # monotonic seconds; until then the previous owner may write. 0: no wait is needed
        self.transactions: TransactionalProducer | None = None  # where gaps are filled by transactions
        self.mirror_retry_at, self.mirror_backoff = 0.0, Backoff()
        self.refused_at: int | None = None  # base offset of a batch that the destination refused
        self.coalesce_share = 1.0  # of the tuning's coalesce_bytes; smaller where the destination accepts small batches only

    # --- lease -------------------------------------------------------------------------------------------------------

    def start_hold(self, grant: Grant) -> None:
        """Start a hold: the mirror's log end is read next."""
        self.grant, self.may_send_markers = grant, None
        self.read_position.inherit(grant.seen if grant.clean else None)
        self.stage, self.mirror_retry_at = Stage.RESUMING, 0.0

    def end_hold(self) -> list[Chunk]:
        """Reset what depends on the lost lease; return the chunks whose buffers can be released."""
        self.grant, self.stage = None, Stage.WAITING  # lost_marker stays: the next resume has to wait for it
        self.producer_state.end_hold()
        dropped, self.sent_end, self.unacknowledged = self._new_attempt(), None, None
        return dropped

    # --- destination side --------------------------------------------------------------------------------------------

    def interrupt(self, *, retry_at: float) -> list[Chunk]:
        """Resume at ``retry_at`` after an error of the destination side; return the chunks whose buffers can be released."""
        self.stage = Stage.RESUMING if self.copying else self.stage
        self.mirror_retry_at = max(self.mirror_retry_at, retry_at)
        return self._new_attempt()

    def shrink_batches(self) -> bool:
        """Merge fewer source batches from now on; return False if they are no longer merged at all."""
        self.coalesce_share /= 4
        return self.coalesce_share > LEAST_SHARE

    def resumed(self, log_end: LogEnd, *, now_ms: int) -> None:
        """Continue copying at the mirror's log end; raise FencedError if a newer owner or a stop has fenced this owner."""
        grant = self.grant
        assert grant is not None
        self.transactions = log_end.transactions
        if log_end.transactions is not None:
            self.producer_state.bind(log_end.transactions.producer_id, log_end.transactions.epoch)
        if self.producer_state.adopted:
            self.producer_state.readopt(log_end.producer)
        else:
            self.producer_state.adopt(
                log_end.producer, generation=grant.generation, clean=grant.clean, empty=log_end.start == log_end.end
            )
            # the previous owner may not have noticed that it lost the lease (Redis lost it, or its clock jumped)
            self._markers_from = grant.valid_until + OVERLAP_S if self.producer_state.unclean else 0.0
        if self.lost_marker is not None and self._unverified is not None and log_end.end < self._unverified.end:
            self.producer_state.raise_next()
        self.log_end, self.lost_marker, self.unacknowledged = log_end, None, None
        self._settle_unverified(log_end.end, now_ms=now_ms)
        self.unchecked_tail = log_end.tail
        self.position = self.sent_end = log_end.end
        self.counters.observed_mirror(
            start=log_end.start, end=log_end.end, previous_end=self.read_position.seen[1] if self.read_position.seen else None
        )
        if self.refused_at is None or log_end.end > self.refused_at:  # else only a successful append clears the error
            self.mirror_trouble = None
        self.stage = Stage.COPYING

    def next_step(self) -> Step | None:
        """Return the step to send next, None while a response has to arrive first or nothing is planned."""
        if self.stage is not Stage.COPYING or not self.chunks or self.fill is not None:
            return None
        step = self.chunks[0].steps[0]
        must_wait = self.in_flight and (isinstance(step, Fill) or not self._producer_known)
        return None if must_wait else step

    def send_append(self, step: Append) -> Chunk | None:
        """Patch the batch for sending and count it as sent; return its chunk if this was the chunk's last step."""
        epoch, sequence = self.producer_state.append(step.count)
        self.counters.sending(step)
        patch_for_append(
            step.payload, producer_id=self.producer_state.producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        self.in_flight.append(step)
        self.sent_end = step.end
        return self._step_done()

    def acknowledged(self, step: Append) -> None:
        """Count the oldest unacknowledged batch as appended at its base offset."""
        first = self.in_flight.popleft()
        assert first is step, "responses arrive in the order of the requests"
        self.counters.appended(step)
        if self.late_appends:
            self.late_appends.acknowledged(self.in_flight, producer=self.producer_state)
        self.mirror_trouble, self._producer_known = None, bool(self.in_flight or self.chunks)
        self.mirror_backoff.reset()

    def may_fill(self, now: float) -> bool:
        """Return whether markers may be sent: appends are conditional by their sequence, markers only by the lease."""
        return now >= self._markers_from

    def must_read_again(self, now: float) -> bool:
        """Return True once after the wait for the previous owner, which may have written: read the log end again."""
        waited = 0.0 < self._markers_from <= now
        self._markers_from = 0.0 if waited else self._markers_from
        return waited

    def send_fill(self, step: Fill, *, most: int, late_until: float = 0.0) -> FillInFlight:
        """Return the markers to send now: at most ``most``, or 1 if the marker has to raise the producer epoch."""
        if self.late_appends:  # an unacknowledged append may still be written late; after a raised epoch it is refused
            self.producer_state.raise_next()
        epoch = self.producer_state.marker_epoch()
        count = 1 if self.producer_state.must_raise else min(most, step.end - step.start)
        self.fill = FillInFlight(step.start, count, epoch, step.reason, late_until)
        self.sent_end = step.start + count
        return self.fill

    def responded(self, fill: FillInFlight) -> None:
        """Note the response to these markers: they were written or refused, so none can be written later."""
        fill.late_until = 0.0
        if self._unverified is fill and self.lost_marker is not None:
            self.lost_marker = LostMarker(broker=self.lost_marker.broker, until=0.0)

    def filled(self, *, now_ms: int) -> Chunk | None:
        """Count the markers in flight as verified in the log; return the chunk if this was its last step."""
        fill, self.fill = self.fill, None
        assert fill is not None
        step = self.chunks[0].steps[0]
        assert isinstance(step, Fill)
        self.producer_state.marker_written(fill.epoch)
        if self.transactions is None:  # only the transaction coordinator raises its producer epoch
            self.late_appends.clear()
        self.counters.filled(fill.start, fill.end, step.reason, now_ms=now_ms)
        self.mirror_backoff.reset()
        if fill.end < step.end:
            self.chunks[0].steps[0] = Fill(fill.end, step.end, step.reason)
            return None
        return self._step_done()

    # --- source side -------------------------------------------------------------------------------------------------

    def may_fetch(self, now: float) -> bool:
        """Return whether the next records of the source should be fetched now."""
        return (
            self.stage is Stage.COPYING
            and self.origin is not None
            and not self.examining
            and self.unchecked_tail is None
            and len(self.chunks) < CHUNKS_AHEAD
            and self.source_retry_at <= now
        )

    def source_responded(self, *, start: int, end: int, high_watermark: int, now_ms: int) -> None:
        """Record a successful Fetch; ``end`` is the leader's last stable offset."""
        self.counters.observed_source(start=start, end=end, high_watermark=high_watermark, now_ms=now_ms)
        self.read_position.proven, self.source_trouble = True, None

    def planned(self, steps: Sequence[Step], buffer: Buffer) -> None:
        """Queue the steps of a fetched range; they begin at the position."""
        self.chunks.append(Chunk(steps, buffer))
        self.position = steps[-1].end

    def leave_origin(self) -> None:
        """Drop the source leader, so that it is located again; record up to which offset it was read in its epoch."""
        self.read_position.leave(self.origin, end=max(self.position or 0, self.counters.mirror_end or 0))
        self.origin = None

    def proven(self, origin: SourceOrigin) -> None:
        """Finish the tail check: the mirror's last records equal those of this leader."""
        self.read_position.inherit((origin.leader.epoch, self.sent_end or 0))
        self.unchecked_tail = None

    # --- endings -----------------------------------------------------------------------------------------------------

    def fail(self, error: LinkEngineError) -> list[Chunk]:
        """Stop permanently with an error; return the chunks whose buffers can be released."""
        kept = error.kept if isinstance(error, TruncationError) else None
        self.failure = Trouble(PartitionPhase.FAILED, error.code, error.message, source_kept=kept)
        return self.stop()

    def stop(self) -> list[Chunk]:
        """Send nothing more, wait for requests in flight; return the chunks whose buffers can be released."""
        if self.stage is not Stage.ENDED:
            self.stage = Stage.STOPPING
        return [] if self.fill is not None else self._drop_chunks()  # the fill's step is needed when its response arrives

    def end(self) -> list[Chunk]:
        """Stop waiting for responses; later responses are ignored. Return the chunks whose buffers can be released."""
        self.stage, self.attempt = Stage.ENDED, self.attempt + 1
        return self._drop_chunks()

    @property
    def copying(self) -> bool:
        """Whether the stage is COPYING: the mirror's log end is known."""
        return self.stage is Stage.COPYING

    @property
    def is_drained(self) -> bool:
        """Whether no request is in flight. A late Produce of an earlier attempt is conditional, hence harmless."""
        return not self.in_flight and self.fill is None

    @property
    def handed_over(self) -> tuple[int, int] | None:
        """The (epoch, end) to pass to the next owner (``ReadPosition``); None after unacknowledged sends or a pending check."""
        unsure = self.unchecked_tail is not None or self.unacknowledged is not None
        return None if unsure else self.read_position.handed_over(self.origin, end=self.sent_end)

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight or planned, so that the mirror's log end must not move."""
        return self.stage is Stage.COPYING and self.is_drained and not self.chunks

    def _settle_unverified(self, end: int, *, now_ms: int) -> None:
        """Count the markers of a fill without a response that are in the log."""
        fill, self._unverified = self._unverified, None
        if fill is not None and end > fill.start:
            self.counters.filled(fill.start, min(end, fill.start + fill.count), GapReason(fill.reason), now_ms=now_ms)

    def _step_done(self) -> Chunk | None:
        chunk = self.chunks[0]
        chunk.steps.popleft()
        return None if chunk.steps else self.chunks.popleft()

    def _new_attempt(self) -> list[Chunk]:
        self.read_position.end_attempt(self.origin, end=self.sent_end)
        self.attempt, self.position = self.attempt + 1, None
        self._producer_known = self.examining = False
        self.unacknowledged = self.unacknowledged or unacknowledged_of(
            self.in_flight,
            fill_start=self.fill.start if self.fill is not None else None,
            producer=self.producer_state,
            counts=self.transactions is None,
        )
        self.late_appends.add(self.in_flight, producer=self.producer_state)
        self.in_flight.clear()
        # markers without a response may still be written; a transaction is settled by the resume
        if self.fill is not None and self.log_end is not None and (self.fill.late_until or self.transactions is not None):
            self.lost_marker = LostMarker(broker=self.log_end.leader.broker, until=self.fill.late_until)
        self._unverified, self.fill = self.fill or self._unverified, None
        return self._drop_chunks()

    def _drop_chunks(self) -> list[Chunk]:
        dropped, self.chunks = list(self.chunks), deque()
        return dropped


# --- rules of resuming ---------------------------------------------------------------------------------------------------
# Which part of a mirror's log is read before it resumes, and when writing is safe after a change of owner.
#
# Data and markers need different care. An append of a previous owner is refused by the leader if it arrives late: its
# sequence or epoch no longer fits. A marker is not conditional, so a late marker lands wherever the log ends then. An owner
# whose predecessor did not release the lease cleanly therefore waits until that lease must have expired, and raises the
# producer epoch with its first marker, which fences the predecessor.


# While older records are appended, the leader may remove the producer's state at any time: it keeps the state for
# ``producer.id.expiration.ms`` (a day by default; an hour allows for smaller values) after the newest record's timestamp.
REMEMBERED_MS = 3_600_000


def log_end_query(partition: PartitionState) -> LogEndQuery:
    """Return what to read of a mirror's tail; an end that no owner has confirmed gets a tail check (``tail_check``)."""
    first_attempt, inherited = not partition.producer_state.adopted, _inherited(partition)
    expected_end = partition.sent_end if not first_attempt else inherited[1] if inherited else None
    return LogEndQuery(
        assignment=partition.assignment,
        # a first generation is read twice: Redis may have lost the lease record while another worker writes
        clean=first_attempt
        and partition.grant is not None
        and partition.grant.clean
        and partition.grant.generation > FIRST_GENERATION,
        lost_marker=partition.lost_marker,
        transactions=None if first_attempt or partition.lost_marker else partition.transactions,
        expected_end=expected_end,
        previous_end=_previous_end(partition) if first_attempt and expected_end is None else expected_end,
        check_tail=expected_end is None or partition.unchecked_tail is not None,
        overtaken=partition.overtaken,
        unacknowledged=None if first_attempt else partition.unacknowledged,
    )


def has_no_late_markers(partition: PartitionState, grant: Grant) -> bool:
    """Return whether no marker of an earlier owner can still be written; its late data is refused in any case.

    Markers may be in flight after an owner that crashed, or after Redis lost the lease record. Only this owner's first marker,
    which raises the epoch, fences them.
    """
    fenced = partition.producer_state.adopted and not partition.producer_state.must_raise
    in_flight = partition.producer_state.memory_lost or (grant.markers_announced and not grant.clean)
    return fenced or not in_flight


def must_wait_like_marker(partition: PartitionState, step: Append, *, now_ms: Callable[[], int]) -> bool:
    """Return whether an append waits until the previous owner's lease has certainly expired, as markers do.

    Two owners are distinguished by the leader's producer state. Without it (none, or expired between two batches, which counts
    from the timestamps of the records) the leader would accept the same batch from both.
    """
    if partition.may_fill(0.0):  # no previous owner has to be waited for
        return False
    return partition.producer_state.epoch < 0 or step.max_timestamp < now_ms() - REMEMBERED_MS


def _inherited(partition: PartitionState) -> tuple[int, int] | None:
    """Return (source epoch, end) of the previous owner if both can be relied on.

    That is after a clean release at most ``SEEN_TRUSTED_MS`` ago, if the source's leader still has the epoch that was read. A
    leader with an older epoch may be that of a cluster restored from a snapshot, and hold other records since. After a
    longer time even the same epoch proves nothing: a restored cluster counts its epochs again.
    """
    seen = partition.grant.trusted_seen if partition.grant is not None and partition.grant.clean else None
    same = seen is not None and partition.origin is not None and partition.origin.leader.epoch == seen[0]
    return seen if same else None


def _previous_end(partition: PartitionState) -> int | None:
    """Return the mirror's end at the clean release of the previous owner, regardless of the source leader it read from.

    None if the lease record may be outdated: without an earlier report on these topics (``source_seen``), or with one beyond
    that end. The record keeps the end of an earlier owner if a mirror is stopped while Redis is unavailable, or if Redis is
    restored from a backup. Compared with such an end, a log that starts behind it would look like a foreign write.
    """
    grant, reported = partition.grant, partition.assignment.source_seen
    seen = grant.seen if grant is not None and grant.clean else None
    return seen[1] if seen is not None and reported is not None and reported[1] <= seen[1] else None
