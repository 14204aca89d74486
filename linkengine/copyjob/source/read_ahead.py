"""Reads ahead from a distant source broker: several connections fetch later parts of a log at the same time.

Why. One connection carries at most ``bytes in flight / round trip`` per second. A stock broker sets
``socket.send.buffer.bytes`` (102,400) on every connection it accepts, which leaves about 128 KiB in flight: 1.6 MB/s at a round
trip of 80 ms, however much a Fetch requests. More connections carry more, and a partition can use all of them, because a Fetch
may start at any offset: the broker returns whole batches, beginning with the batch that contains the offset.

How. While a partition has a backlog on a distant broker, the fetch session of that broker leaves it out (``fetcher`` reads all
other partitions as usual) and its log is read in *pieces*::

    offsets ──►    position                                             end of the source, as last seen
    pieces         [ 0 ······)[ 1 ······)[ 2 ······)[ 3 ······)
    connections        A          B          C          A

The start of a piece is estimated from the bytes per offset of earlier responses. Responses arrive in any order and are planned
in offset order, each by the code that plans an ordinary response, so what is copied does not depend on an estimate:

* The response to a piece that starts at or before the position and reaches beyond it is planned from the position on
  (``fetch_planner.FetchPlanner.join``). Its leading batches, which an earlier piece contained, are skipped.
* If an estimate left a gap, or a response cannot be joined, a piece that starts exactly at the position is requested. Its
  response is what the session would have received.
* If that does not advance the position either (an error code, a damaged batch, a lost range), the partition is not read ahead
  for ``REST_S``. The session reads it again and decides, as it does for every partition.

All pieces of a partition are read from the same leader in the same leader epoch, which each request names (KIP-320): a broker
that is no longer the leader in this epoch refuses. So the pieces of a run belong to the same log. A new leader ends the run,
and the session continues after the new leader was checked for the end of the old epoch, as always.

Responses are in memory that all source brokers of a worker share (``buffers.AheadMemory``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.buffers import AheadShare, Buffer, in_units
from linkengine.copyjob.pacing import DISTANT_S, LIMITED_S, Throttle
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.source import log_pieces
from linkengine.copyjob.source.extra_connection import ExtraConnection, Received
from linkengine.copyjob.source.fetch_planner import FetchPlanner
from linkengine.copyjob.source.log_pieces import LogDensity, PartitionPieces, Piece, aim_of, shape_of
from linkengine.copyjob.values import SourceOrigin
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.requests import FetchLimits, FetchPosition

MOST_CONNECTIONS = 72  # per source broker, in addition to that of the session
REQUESTS_EACH = 1  # per connection: with a second request behind it a piece would take twice as long, and others wait for it
EXPRESS = 2  # connections kept free for pieces that all later pieces of their partition wait for
CONNECTING = 16  # connections being opened at a time; each takes several round trips in a background thread
FRAMING_BYTES = 1_000  # of a response, in addition to its batches
PIECES_EACH = 4  # pieces of memory per partition that is read ahead: two planned, one received, one arriving
LARGEST_BATCH = 2 << 20  # partitions with larger batches are left to the session
LEAST_PIECES = 4  # a smaller backlog is left to the session, unless connections are open
STALLED_S = 2.0  # a partition that cannot be planned for so long, because its mirror is slow, releases its memory
UNREACHED_S = 10.0  # without any connection the partitions are left to the session
REST_S = 30.0  # a connection unused for so long is closed; a failed partition is left to the session for so long

Subject = tuple[PartitionPieces, Piece]


class ReadAhead:
    """Reads the partitions of a distant source broker that have a backlog."""

    def __init__(
        self,
        services: Services,
        cluster: Cluster,
        broker: int,
        *,
        planner: FetchPlanner,
        left: Callable[[PartitionState], None],
    ) -> None:
        """``left`` is called with a partition that the session has to read again."""
        self._services, self._cluster, self._broker = services, cluster, broker
        self._planner, self._left = planner, left
        self._share: AheadShare | None = None
        self._partitions: dict[PartitionState, PartitionPieces] = {}
        self._failed_at: dict[PartitionState, float] = {}
        self._shapes: dict[PartitionState, LogDensity] = {}
        self._connections: list[ExtraConnection[Subject]] = []
        self._promised = 0  # memory for responses that have not begun to arrive
        self._throttle = Throttle()
        self._grow_at = self._busy_at = self._reached_at = 0.0
        self._round_trip_s = 0.0

    def __contains__(self, partition: PartitionState) -> bool:
        return partition in self._partitions

    @property
    def distant(self) -> bool:
        """Whether the round trip to the broker is long."""
        return self._round_trip_s >= DISTANT_S

    @property
    def connections(self) -> int:
        """The number of extra connections, including those being opened."""
        return len(self._connections)

    def opened(self, round_trip_s: float) -> None:
        """Start with a new connection of the session."""
        self._round_trip_s = round_trip_s

    def note(self, partition: PartitionState, *, requested_from: int, records: memoryview) -> None:
        """Note the shape of a session response, which covers the offsets from ``requested_from`` to the position."""
        if len(records) and partition.position is not None and partition.position > requested_from:
            shape = shape_of(records, offsets=partition.position - requested_from)
            if shape is not None:
                self._shapes[partition] = shape

    def admits(self, partition: PartitionState, now: float) -> bool:
        """Return True if the partition is read ahead from now on, or already."""
        if partition in self._partitions:
            return True
        shape = self._shapes.get(partition)
        if not self.distant or shape is None or partition.origin is None or shape.batch_bytes > LARGEST_BATCH:
            return False
        if partition in self._failed_at:
            if self._failed_at[partition] > now - REST_S:
                return False
            del self._failed_at[partition]
        pieces = PartitionPieces(partition, partition.origin, shape)
        if pieces.backlog_bytes < log_pieces.PIECE_BYTES * (1 if self._connections else LEAST_PIECES) or not self._has_buffer(
            shape
        ):
            return False
        if not self._partitions:
            self._reached_at = now
        self._partitions[partition] = pieces
        return True

    def forget(self, partition: PartitionState) -> None:
        """Stop reading a partition."""
        pieces = self._partitions.pop(partition, None)
        if pieces is not None:
            pieces.clear()
        self._failed_at.pop(partition, None)
        self._shapes.pop(partition, None)

    def pump(self, now: float) -> None:
        """Plan what has arrived, request more, and return partitions without a backlog to the session."""
        for pieces in list(self._partitions.values()):
            self._plan(pieces, now)
        if self._partitions:
            self._busy_at = now
            self._request(now)

    def check(self, now: float) -> None:
        """Close connections that have timed out or are not needed; return partitions without any connection to the session."""
        for connection in list(self._connections):
            connection.check(now)
        if any(connection.open for connection in self._connections):
            self._reached_at = now
        elif self._partitions and now > self._reached_at + UNREACHED_S:
            for pieces in list(self._partitions.values()):
                self._fail(pieces, now)
        if self._share is not None and self._share.exceeded:
            self._release_excess(self._share)
        if self._share is not None and not self._partitions and now > self._busy_at + REST_S:
            self.close()

    def close(self) -> None:
        """Close all connections and return all partitions to the session."""
        for pieces in list(self._partitions.values()):
            self._leave(pieces)
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()
        self._promised = 0
        if self._share is not None:
            self._share.close()
            self._share = None

    def _has_buffer(self, shape: LogDensity) -> bool:
        """Return whether another partition can be read ahead within the memory."""
        self._share = self._share or self._services.ahead.open()
        if self._share is None:
            return False
        most = max(1, self._share.limit // (PIECES_EACH * log_pieces.PIECE_BYTES))
        return len(self._partitions) < most and aim_of(shape) + shape.batch_bytes < self._share.limit / PIECES_EACH

    def _release_excess(self, share: AheadShare) -> None:
        """Drop the last pieces until the share is no longer exceeded; they are requested again later."""
        for pieces in sorted(self._partitions.values(), key=lambda each: -each.bytes_ahead):
            while share.exceeded and len(pieces.pieces) > 1:
                pieces.shorten()

    # --- planning ----------------------------------------------------------------------------------------------------

    def _plan(self, pieces: PartitionPieces, now: float) -> None:
        partition = pieces.partition
        if not pieces.valid:
            self._leave(pieces)
            return
        while partition.may_fetch(now) and pieces.valid:
            pieces.stalled_since = None
            head = pieces.head()
            if head is None:
                if not pieces.pieces and pieces.backlog_bytes < log_pieces.PIECE_BYTES / 4:
                    self._leave(pieces)
                return
            if not self._plan_head(pieces, head):
                self._fail(pieces, now)
                return
        self._note_stall(pieces, now)

    def _note_stall(self, pieces: PartitionPieces, now: float) -> None:
        """Return a partition to the session if its mirror is too slow: it holds memory that others may need."""
        if pieces.stalled_since is None:
            pieces.stalled_since = now
        elif now > pieces.stalled_since + STALLED_S:
            self._leave(pieces)

    def _plan_head(self, pieces: PartitionPieces, head: Piece) -> bool:
        """Plan the first piece or request it again; return False if the partition has to be left to the session."""
        partition, response = pieces.partition, head.response
        assert response is not None
        assert partition.position is not None
        if response.error or response.preferred_replica >= 0:
            return False
        before = partition.position
        if head.end is not None and head.end <= before and head.start < before:  # earlier pieces contained all of it
            pieces.pieces.popleft().release()
            return True
        assert head.buffer is not None
        joined = self._planner.join(partition, response, head.buffer, requested_from=head.start, responded_ms=head.responded_ms)
        if not pieces.valid or partition.position is None:
            return False
        if not joined:
            return pieces.replace_head()
        pieces.pieces.popleft().release()
        if head.shape is not None:
            pieces.shape = self._shapes[partition] = head.shape
        return pieces.shape.batch_bytes <= LARGEST_BATCH

    def _fail(self, pieces: PartitionPieces, now: float) -> None:
        self._failed_at[pieces.partition] = now
        self._leave(pieces)

    def _leave(self, pieces: PartitionPieces) -> None:
        if self._partitions.pop(pieces.partition, None) is not None:
            pieces.clear()
            self._left(pieces.partition)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _request(self, now: float) -> None:
        while now >= max(self._throttle.until, self._services.bandwidth.ready_at):
            chosen = self._next_request()
            if chosen is None:
                return
            pieces, piece = chosen
            head = pieces.pieces[0] is piece
            if not self._has_memory(piece, head=head):
                return
            connection = self._free_connection(now, express=piece.urgent or head)
            if connection is None:
                return
            piece.as_head = head
            self._promised += in_units(piece.size + FRAMING_BYTES)
            piece.requested = True
            position = FetchPosition(
                pieces.partition.assignment.partition, pieces.origin.leader.epoch, piece.start, max_bytes=piece.size
            )
            connection.request(
                by_topic([(pieces.partition, pieces.origin, position)]),
                by_id=pieces.origin.by_id,
                limits=FetchLimits(max_bytes=piece.size, max_wait_ms=0),
                subject=chosen,
                now=now,
            )

    def _has_memory(self, piece: Piece, *, head: bool) -> bool:
        """Return whether there is memory for the response.

        Nothing is requested that would have to wait for memory. Responses of a connection arrive in their order, so the
        response that all others wait for could be behind a response that waits for memory held by the others: a deadlock.
        """
        share, size = self._share, piece.size + FRAMING_BYTES
        return share is not None and share.admits(size, promised=self._promised, head=head)

    def _next_request(self) -> Subject | None:
        """Return the next piece to request: first a gap, then a new piece of the partition with the fewest bytes ahead."""
        ahead: list[tuple[int, PartitionPieces]] = []
        for pieces in self._partitions.values():
            gap = pieces.first_unrequested()
            if gap is not None:
                return pieces, gap
            ahead.append((pieces.bytes_ahead, pieces))
        budget = self._budget()
        if sum(size for size, _ in ahead) >= budget:
            return None
        most = budget / len(ahead) if ahead else 0.0
        for size, pieces in sorted(ahead, key=lambda entry: entry[0]):
            piece = pieces.next_piece() if size < most else None
            if piece is not None:
                return pieces, piece
        return None

    def _budget(self) -> float:
        """Return how many bytes may be requested or received at the same time."""
        budget = 0.0 if self._share is None else float(self._share.limit)
        limit = self._services.bandwidth.bytes_per_s
        return min(budget, max(1.0, limit * LIMITED_S)) if limit else budget

    def _free_connection(self, now: float, *, express: bool) -> ExtraConnection[Subject] | None:
        few = len(self._connections) <= 2 * EXPRESS
        usable = self._connections if express or few else self._connections[EXPRESS:]
        free = [each for each in usable if each.open and each.outstanding < REQUESTS_EACH]
        best = min(free, key=lambda each: each.outstanding, default=None)
        if (best is None or best.outstanding) and now >= self._grow_at:
            self._grow()
        return best

    def _grow(self) -> None:
        opening = sum(not connection.open for connection in self._connections)
        most = min(MOST_CONNECTIONS, EXPRESS + -int(-self._budget() // log_pieces.PIECE_BYTES))
        for _ in range(min(CONNECTING - opening, most - len(self._connections))):
            self._connections.append(ExtraConnection(self._services, self._cluster, self._broker, owner=self))

    # --- events of connections ---------------------------------------------------------------------------------------

    def allocate(self, size: int, subject: Subject) -> Buffer | None:
        """Return a buffer for a piece's response, None while there is none. The piece to plan next may use the reserve."""
        pieces, piece = subject
        head = piece.as_head or (bool(pieces.pieces) and pieces.pieces[0] is piece)
        buffer = None if self._share is None else self._share.take(size, head=head)
        if buffer is not None:
            self._fulfil(piece)
        return buffer

    def received(self, connection: ExtraConnection[Subject], subject: Subject, received: Received, now: float) -> None:
        """Store the response to a piece until it can be planned."""
        pieces, piece = subject
        response = received.response
        self._services.bandwidth.spend(received.size, now)
        self._throttle.update(now, response.throttle_ms)
        if self._partitions.get(pieces.partition) is not pieces or piece not in pieces.pieces:
            return
        if len(response.partitions) != 1:  # a throttled client gets an empty response (KIP-219)
            piece.requested = False
            return
        (part,) = response.partitions
        piece.response, piece.buffer, piece.responded_ms = part, received.buffer, received.responded_ms
        received.buffer.users += 1
        pieces.arrived(piece)
        if pieces.valid:
            self._planner.observe(pieces.partition, part, responded_ms=received.responded_ms)

    def _fulfil(self, piece: Piece) -> None:
        self._promised -= in_units(piece.size + FRAMING_BYTES)

    def near(self) -> None:
        """Return everything to the session: the broker is not distant; its first round trip was long because it was busy."""
        self._round_trip_s = 0.0
        self.close()

    def lost(self, connection: ExtraConnection[Subject], in_flight: Sequence[Subject]) -> None:
        """Request the pieces of a lost connection again, on another connection."""
        for number, (_, piece) in enumerate(in_flight):
            piece.requested = False
            if number or not connection.filling:  # else the first piece has its buffer, and the connection releases it
                self._fulfil(piece)
        if connection in self._connections:
            self._connections.remove(connection)
            connection.close()
        self._grow_at = self._services.clock.monotonic() + 1.0


def by_topic(
    positions: Iterable[tuple[PartitionState, SourceOrigin, FetchPosition]],
) -> Mapping[bytes, list[FetchPosition]]:
    """Return the positions by topic as Fetch names it: by topic id, or by name if the topic has none."""
    found: dict[bytes, list[FetchPosition]] = {}
    for partition, origin, position in positions:
        topic = origin.topic if origin.by_id else partition.assignment.source_topic.encode()
        found.setdefault(topic, []).append(position)
    return found
