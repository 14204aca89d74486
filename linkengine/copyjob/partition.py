"""One mirror partition during one hold: what it waits for, what it may do next, what became of it. No I/O.

Life of a partition::

    WAITING ──grant──► RESUMING ──tail──► COPYING ──error──► RESUMING …
       ▲                  │                  │
       └── lease lost ────┴──────────────────┤
                                             └──────order, move───► STOPPING ──nothing in flight──► ENDED

Each resume begins a new *attempt*; answers to earlier requests are ignored: the tail that was read after them counts what they
did. Steps are sent strictly in offset order; a fill starts when all before it is acknowledged; nothing follows it unverified.
Nor does anything follow the first append of an attempt, or after a pause, before its answer: a leader that remembers no
sequence of ours (new log, expired producer) takes any, so what comes behind a refused batch would take its place.
"""

from __future__ import annotations

from collections import deque

from linkengine.batches.patch import patch_for_append
from linkengine.batches.steps import Append, Fill, Step
from linkengine.copyjob.account import Account
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.doubts import Doubt, LooseAppends, doubt_of
from linkengine.copyjob.pieces import Chunk, FillInFlight, Origin, Overtaken, Stage, Trouble
from linkengine.copyjob.proving import Stretch
from linkengine.copyjob.retry import Backoff
from linkengine.copyjob.sourcepast import SourcePast
from linkengine.copyjob.tails import LostMarker, Tail
from linkengine.copyjob.writer import Writer
from linkengine.domain.errors import LinkEngineError, TruncationError
from linkengine.domain.leases import Grant
from linkengine.domain.plans import PartitionAssignment, PartitionPhase
from linkengine.domain.states import GapReason
from linkengine.kafka.transactions import TransactionalProducer

LEAST_SHARE = 1e-6  # nothing is merged any more
OVERLAP_S = 1.0  # beyond a lease's length: a renewal that was on its way when ours was asked for
CHUNKS_AHEAD = 2  # one being written, one waiting: the source never idles while the destination works


class MirrorPartition:
    """State and rules of one partition; the two sides of the loop call it."""

    def __init__(self, assignment: PartitionAssignment, *, hold_id: str) -> None:
        self.assignment = assignment
        self.key, self.hold_id = assignment.key, hold_id
        self.stage = Stage.WAITING
        self.grant: Grant | None = None
        self.armed: bool | None = None  # the lease knows that we may send markers; False: it is being told
        self.writer = Writer(assignment.producer_id)
        self.account = Account()
        self.attempt, self._remembered = 0, False  # by the leader: an append of this attempt, lately
        self.failure: Trouble | None = None
        self.parting: Trouble | None = None  # why it was let go of before its time
        self.source_trouble: Trouble | None = None
        self.mirror_trouble: Trouble | None = None
        # source side
        self.origin: Origin | None = None
        self.past = SourcePast(assignment.source_seen)
        self.to_prove: Stretch | None = None  # of the mirror, to be compared with the source before anything follows it
        self.position: int | None = None  # next source offset to fetch
        self.examining, self.source_retry_at = False, 0.0  # examining: its source's extent is being looked at
        self.source_backoff = Backoff()
        # mirror side
        self.tail: Tail | None = None
        self.sent_end: int | None = None  # end of everything this hold ever sent
        self.overtaken: Overtaken | None = None  # offsets at which something stands that is not what was sent
        self.chunks: deque[Chunk] = deque()
        self.unanswered: deque[Append] = deque()
        self.fill: FillInFlight | None = None
        self._unverified: FillInFlight | None = None  # its answer was lost: the mirror's end tells what became of it
        self.doubt: Doubt | None = None  # what was sent in this hold and never answered
        self.lost_marker: LostMarker | None = None
        self.loose_appends, self._alone_from = LooseAppends(), 0.0
        self.transactions: TransactionalProducer | None = None  # where gaps are filled by transactions
        self.mirror_retry_at, self.mirror_backoff = 0.0, Backoff()
        self.refused_at: int | None = None  # offset of a batch that the mirror's broker did not take
        self.coalesce_share = 1.0  # of the tuning's coalesce_bytes; smaller where the mirror takes small batches only

    # --- lease -------------------------------------------------------------------------------------------------------

    def granted(self, grant: Grant) -> None:
        """The lease is ours: read the mirror's end next."""
        self.grant, self.armed = grant, None
        self.past.inherit(grant.seen if grant.clean else None)
        self.stage, self.mirror_retry_at = Stage.RESUMING, 0.0

    def dispossessed(self) -> list[Chunk]:
        """Forget all that depends on the lease, which is gone; answer the chunks to let go."""
        self.grant, self.stage = None, Stage.WAITING  # a lost marker stays lost: whoever gets the lease next outwaits it
        self.writer.drop()
        dropped, self.sent_end, self.doubt = self._new_attempt(), None, None
        return dropped

    # --- mirror side -------------------------------------------------------------------------------------------------

    def interrupt(self, *, retry_at: float) -> list[Chunk]:
        """Something went wrong on the mirror's side: resume at ``retry_at``; answer the chunks to let go."""
        self.stage = Stage.RESUMING if self.copying else self.stage
        self.mirror_retry_at = max(self.mirror_retry_at, retry_at)
        return self._new_attempt()

    def shrink_batches(self) -> bool:
        """Merge less from now on; answer whether that can help."""
        self.coalesce_share /= 4
        return self.coalesce_share > LEAST_SHARE

    def resumed(self, tail: Tail, *, now_ms: int) -> None:
        """Go on from the mirror's end; raise FencedError where a newer owner has been there."""
        grant = self.grant
        assert grant is not None
        self.transactions = tail.transactions
        if tail.transactions is not None:
            self.writer.bind(tail.transactions.producer_id, tail.transactions.epoch)
        if self.writer.adopted:
            self.writer.readopt(tail.producer)
        else:
            self.writer.adopt(tail.producer, generation=grant.generation, clean=grant.clean, empty=tail.start == tail.end)
            # who had the lease before us may believe in it still (Redis lost it, or its clock jumped): outwait that
            self._alone_from = grant.valid_until + OVERLAP_S if self.writer.unclean else 0.0
        if self.lost_marker is not None and self._unverified is not None and tail.end < self._unverified.end:
            self.writer.raise_next()
        self.tail, self.lost_marker, self.doubt = tail, None, None
        self._settle_unverified(tail.end, now_ms=now_ms)
        self.to_prove = tail.stretch
        self.position = self.sent_end = tail.end
        self.account.observed_mirror(start=tail.start, end=tail.end, left_at=self.past.seen[1] if self.past.seen else None)
        if self.refused_at is None or tail.end > self.refused_at:  # else only an append shows that it is taken now
            self.mirror_trouble = None
        self.stage = Stage.COPYING

    def next_step(self) -> Step | None:
        """Answer the step to send next, None while something has to be awaited."""
        if self.stage is not Stage.COPYING or not self.chunks or self.fill is not None:
            return None
        step = self.chunks[0].steps[0]
        alone = self.unanswered and (isinstance(step, Fill) or not self._remembered)
        return None if alone else step

    def send_append(self, step: Append) -> Chunk | None:
        """Patch the batch for sending and count it as sent; answer its chunk if it was the last step in it."""
        epoch, sequence = self.writer.append(step.count)
        self.account.sending(step)
        patch_for_append(step.payload, producer_id=self.writer.producer_id, producer_epoch=epoch, base_sequence=sequence)
        self.unanswered.append(step)
        self.sent_end = step.end
        return self._step_done()

    def acknowledged(self, step: Append) -> None:
        """The oldest unanswered batch was appended at its place."""
        first = self.unanswered.popleft()
        assert first is step, "answers come in the order of requests"
        self.account.appended(step)
        if self.loose_appends:
            self.loose_appends.acknowledged(self.unanswered, writer=self.writer)
        self.mirror_trouble, self._remembered = None, bool(self.unanswered or self.chunks)
        self.mirror_backoff.reset()

    def may_fill(self, now: float) -> bool:
        """Whether markers may be sent: an append is conditional by its sequence, a marker by nothing but the lease."""
        return now >= self._alone_from

    def must_look_again(self, now: float) -> bool:
        """Whether a wait before the first marker is over: who wrote meanwhile has moved the end. Answers True once."""
        waited = 0.0 < self._alone_from <= now
        self._alone_from = 0.0 if waited else self._alone_from
        return waited

    def send_fill(self, step: Fill, *, most: int, late_until: float = 0.0) -> FillInFlight:
        """Answer what to write now of a fill; its first marker goes alone where it has to raise the epoch."""
        if self.loose_appends:  # a gap where the source had a record, of which late data must not come behind this marker
            self.writer.raise_next()
        epoch = self.writer.marker_epoch()
        count = 1 if self.writer.must_raise else min(most, step.end - step.start)
        self.fill = FillInFlight(step.start, count, epoch, step.reason, late_until)
        self.sent_end = step.start + count
        return self.fill

    def answered(self, fill: FillInFlight) -> None:
        """The broker has answered these markers: none of them can be written late any more."""
        fill.late_until = 0.0
        if self._unverified is fill and self.lost_marker is not None:
            self.lost_marker = LostMarker(broker=self.lost_marker.broker, until=0.0)

    def filled(self, *, now_ms: int) -> Chunk | None:
        """The markers in flight are in the log, verified; answer the chunk if that was its last step."""
        fill, self.fill = self.fill, None
        assert fill is not None
        step = self.chunks[0].steps[0]
        assert isinstance(step, Fill)
        self.writer.marked(fill.epoch)
        if self.transactions is None:  # a coordinator's epoch is not ours to raise
            self.loose_appends.clear()
        self.account.filled(fill.start, fill.end, step.reason, now_ms=now_ms)
        self.mirror_backoff.reset()
        if fill.end < step.end:
            self.chunks[0].steps[0] = Fill(fill.end, step.end, step.reason)
            return None
        return self._step_done()

    # --- source side -------------------------------------------------------------------------------------------------

    def may_fetch(self, now: float) -> bool:
        """Whether another stretch of the source is wanted."""
        return (
            self.stage is Stage.COPYING
            and self.origin is not None
            and not self.examining
            and self.to_prove is None
            and len(self.chunks) < CHUNKS_AHEAD
            and self.source_retry_at <= now
        )

    def source_answered(self, *, start: int, end: int, high_watermark: int, now_ms: int) -> None:
        """The source's leader served us; ``end`` is its last stable offset."""
        self.account.observed_source(start=start, end=end, high_watermark=high_watermark, now_ms=now_ms)
        self.past.proven, self.source_trouble = True, None

    def planned(self, steps: list[Step], buffer: Buffer) -> None:
        """Take in the next stretch."""
        self.chunks.append(Chunk(steps, buffer))
        self.position = steps[-1].end

    def leave_origin(self) -> None:
        """The leader has to be found again; remember what was read from this one."""
        self.past.leave(self.origin, end=max(self.position or 0, self.account.mirror_end or 0))
        self.origin = None

    def proven(self, origin: Origin) -> None:
        """The mirror's end is what this leader has."""
        self.past.inherit((origin.leader.epoch, self.sent_end or 0))
        self.to_prove = None

    # --- endings -----------------------------------------------------------------------------------------------------

    def fail(self, error: LinkEngineError) -> list[Chunk]:
        """Stop for good; answer the chunks to let go."""
        kept = error.kept if isinstance(error, TruncationError) else None
        self.failure = Trouble(PartitionPhase.FAILED, error.code, error.message, source_kept=kept)
        return self.stop()

    def stop(self) -> list[Chunk]:
        """Send nothing more; what is in flight is still awaited. Answer the chunks to let go."""
        if self.stage is not Stage.ENDED:
            self.stage = Stage.STOPPING
        return [] if self.fill is not None else self._drop_chunks()  # its step is needed when the answer comes

    def end(self) -> list[Chunk]:
        """Await nothing any more: an answer that comes now is ignored. Answer the chunks to let go."""
        self.stage, self.attempt = Stage.ENDED, self.attempt + 1
        return self._drop_chunks()

    @property
    def copying(self) -> bool:
        """Whether the mirror's end is known."""
        return self.stage is Stage.COPYING

    @property
    def quiet(self) -> bool:
        """Whether nothing of ours can reach the mirror any more (a late Produce is conditional, hence harmless)."""
        return not self.unanswered and self.fill is None

    @property
    def handed_over(self) -> tuple[int, int] | None:
        """What the next owner may rely on (``SourcePast``); what was sent and refused was not reached."""
        unsure = self.to_prove is not None or self.doubt is not None
        return None if unsure else self.past.handed_over(self.origin, end=self.sent_end)

    @property
    def idle(self) -> bool:
        """Whether the mirror's end should stay where it is."""
        return self.stage is Stage.COPYING and self.quiet and not self.chunks

    def _settle_unverified(self, end: int, *, now_ms: int) -> None:
        """Count the markers of a lost answer that are in the log after all."""
        fill, self._unverified = self._unverified, None
        if fill is not None and end > fill.start:
            self.account.filled(fill.start, min(end, fill.start + fill.count), GapReason(fill.reason), now_ms=now_ms)

    def _step_done(self) -> Chunk | None:
        chunk = self.chunks[0]
        chunk.steps.popleft()
        return None if chunk.steps else self.chunks.popleft()

    def _new_attempt(self) -> list[Chunk]:
        self.past.end_attempt(self.origin, end=self.sent_end)
        self.attempt, self.position = self.attempt + 1, None
        self._remembered = self.examining = False
        self.doubt = self.doubt or doubt_of(self.unanswered, self.fill, writer=self.writer, counts=self.transactions is None)
        self.loose_appends.add(self.unanswered, writer=self.writer)
        self.unanswered.clear()
        # whatever ended the attempt: markers without an answer may still be written (a transaction is settled by the resume)
        if self.fill is not None and self.tail is not None and (self.fill.late_until or self.transactions is not None):
            self.lost_marker = LostMarker(broker=self.tail.leader.broker, until=self.fill.late_until)
        self._unverified, self.fill = self.fill or self._unverified, None
        return self._drop_chunks()

    def _drop_chunks(self) -> list[Chunk]:
        dropped, self.chunks = list(self.chunks), deque()
        return dropped
