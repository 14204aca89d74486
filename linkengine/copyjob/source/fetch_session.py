"""The client's state of a fetch session with a source broker (KIP-227), so that idle partitions cost nothing. No I/O.

A session begins with a full request that names every partition. Later requests are incremental: they name partitions with a
new position, new partitions, and partitions to forget; the broker reads all others at their last position. Its responses leave
out partitions without changes, and it serves those first that have waited longest.

``entries`` is the client's copy of what the broker reads. A response for a partition is used only if the partition still needs
the requested offset (``Reading.current``). A broker can drop the session (restart, cache full, request lost) or create none:
then the next request is full again, built from ``entries``.

Java's counterpart is ``org.apache.kafka.clients.FetchSessionHandler``.

A session response may return nothing for a partition whose source ends beyond the position. A Fetch for this partition alone,
alternating with the session (``SingleFetches``), shows whether the end of its log is empty (compacted) or the response was only
full of other partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from linkengine.copyjob.partition_state import PartitionState
from linkengine.kafka.protocol import KafkaCode
from linkengine.kafka.requests import NO_SESSION, FetchPosition, SessionStep

Place = tuple[bytes, int]  # topic (id or name) as Fetch names it, partition
LAST_EPOCH = (1 << 31) - 1
UNKNOWN_SESSION = frozenset(
    {KafkaCode.FETCH_SESSION_ID_NOT_FOUND, KafkaCode.INVALID_FETCH_SESSION_EPOCH, KafkaCode.FETCH_SESSION_TOPIC_ID_ERROR}
)


class Reading(NamedTuple):
    """A partition with the position and the attempt that a request names."""

    partition: PartitionState
    attempt: int
    position: FetchPosition

    @property
    def current(self) -> bool:
        """Whether the partition is still copied in the same attempt at the requested position."""
        partition = self.partition
        return partition.attempt == self.attempt and partition.position == self.position.offset and partition.copying

    @property
    def topic_name(self) -> bytes:
        """The topic as Fetch names it without topic ids."""
        return self.partition.assignment.source_topic.encode()


class Request(NamedTuple):
    """The content of the next Fetch."""

    step: SessionStep
    by_id: bool
    positions: dict[bytes, list[FetchPosition]]
    forgotten: dict[bytes, list[int]]


class FetchInFlight(NamedTuple):
    """A Fetch request in flight."""

    correlation: int
    version: int
    sent_at: float
    deadline: float
    max_bytes: int
    probe: tuple[Place, Reading] | None  # the only partition of a request outside the session


class ReadSession:
    """The session of a connection."""

    __slots__ = ("_changes", "_epoch", "_forgotten", "_id", "_named", "_places", "_unconfirmed", "entries")

    def __init__(self) -> None:
        self.entries: dict[Place, Reading] = {}
        self._changes: dict[Place, None] = {}
        self._unconfirmed: dict[Place, None] = {}  # named by requests since the last response with content
        self._forgotten: dict[Place, Reading] = {}
        self._id = self._epoch = 0
        self._named: set[Place] = set()  # topics without an id: if there is any, all topics are requested by name
        self._places: dict[Place, Place] = {}  # by topic name, as requested

    def want(self, place: Place, reading: Reading, *, by_id: bool = True) -> None:
        """Add a partition, or change its position."""
        self.entries.pop(place, None)  # to the end of the order: full requests are served from the front
        self.entries[place] = reading
        self._changes[place] = None
        if self._forgotten.pop(place, None) is not None:
            self._epoch = 0  # a response since may have named its high watermark, which was ignored; a session names it once
        if not by_id and place not in self._named:
            self._named.add(place)
            self._epoch = 0  # names and ids do not mix in one session

    def drop(self, place: Place) -> None:
        """Remove a partition."""
        reading = self.entries.pop(place, None)
        if reading is not None:
            self._changes.pop(place, None)
            self._forgotten[place] = reading

    def named(self, place: Place) -> Reading | None:
        """Return the entry for a topic that a response names by name, None if there is none."""
        return self.entries.get(self._places.get(place, place))

    def was_requested(self, place: Place) -> bool:
        """Return whether the last request included the partition's current entry."""
        return place not in self._changes

    def was_complete(self, place: Place) -> bool:
        """Return whether the last response with content was based on the partition's current entry."""
        return place not in self._changes and place not in self._unconfirmed

    def request(self) -> Request:
        """Return the next request, and count it as sent."""
        full, by_id = self._epoch == 0, not self._named
        chosen: Iterable[Place] = self.entries if full else self._changes
        positions: dict[bytes, list[FetchPosition]] = {}
        for place in chosen:
            reading = self.entries[place]
            positions.setdefault(place[0] if by_id else self._by_name(place, reading), []).append(reading.position)
        forgotten: dict[bytes, list[int]] = {}
        for place, reading in () if full else self._forgotten.items():
            topic = place[0] if by_id else reading.topic_name
            if by_id or self.named((topic, place[1])) is None:  # else the topic has an id now and is read under another key
                forgotten.setdefault(topic, []).append(place[1])
        self._unconfirmed |= self._changes
        self._changes.clear()
        self._forgotten.clear()
        return Request(SessionStep(self._id, self._epoch), by_id, positions, forgotten)

    def probe(self, place: Place, reading: Reading) -> Request:
        """Return a request for a single partition outside the session."""
        by_id = place not in self._named
        topic = place[0] if by_id else self._by_name(place, reading)
        return Request(NO_SESSION, by_id, {topic: [reading.position]}, {})

    def _by_name(self, place: Place, reading: Reading) -> bytes:
        self._places[reading.topic_name, place[1]] = place
        return reading.topic_name

    def responded(self, session: int, *, complete: bool = True) -> None:
        """Continue in the session that the response names; 0: there is none, so the next request is full.

        ``complete``: False for the empty response to a throttled client (KIP-219), which the broker gives without reading.
        """
        if complete:
            self._unconfirmed.clear()
        if session != self._id or session == 0:
            self._id, self._epoch = session, 0
        self._epoch = 0 if session == 0 else self._epoch % LAST_EPOCH + 1

    def restart(self) -> None:
        """Make the next request full, which also closes the old session; the entries stay."""
        self._epoch = 0

    def forget_all(self) -> None:
        """Remove everything: the connection is closed, and the session ended with it."""
        self.entries.clear()
        self._changes.clear()
        self._unconfirmed.clear()
        self._forgotten.clear()
        self._named.clear()
        self._places.clear()
        self._id = self._epoch = 0


class SingleFetches:
    """A queue of partitions to fetch alone, at most every second request: other partitions' records wait while that is done."""

    __slots__ = ("_alone", "_queue")

    def __init__(self) -> None:
        self._queue: dict[Place, None] = {}  # in the order of their waiting times, the longest first
        self._alone = False  # the last request was for a single partition

    def __bool__(self) -> bool:
        return bool(self._queue)

    def note(self, session: ReadSession) -> None:
        """Queue the partitions whose source ends beyond the requested position, after a session response without records."""
        for place, reading in session.entries.items():
            end = reading.partition.counters.source_end
            if end is not None and end > reading.position.offset and reading.current and session.was_requested(place):
                self._queue[place] = None

    def take(self, session: ReadSession) -> tuple[Place, Reading] | None:
        """Return the partition to fetch alone now, None if the session is to be used."""
        self._alone = not self._alone and bool(self._queue)
        while self._alone and self._queue:
            place = next(iter(self._queue))
            del self._queue[place]
            reading = session.entries.get(place)
            if reading is not None and reading.current:
                return place, reading
        self._alone = False
        return None

    def clear(self) -> None:
        """Empty the queue after the connection was lost."""
        self._queue.clear()
        self._alone = False
