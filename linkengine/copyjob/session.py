"""What one source broker has been told to read for us: a fetch session (KIP-227), so that idle partitions cost nothing. No I/O.

A session begins with a request that names every partition. From then on requests name changes only: a partition with a new
position, a new one, one to forget; the broker reads all the others where they were. It leaves partitions without news out of
its answers, and reads those first that have waited longest. ``entries`` is what the broker would read now, in our words;
whatever comes back for a partition is used only if it is still what the partition wants.

A broker may know the session no longer (restart, too many sessions, a request lost) or make none at all: the next request is
a full one then, and nothing is lost, because ``entries`` is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from linkengine.copyjob.partition import MirrorPartition
from linkengine.kafka.codes import KafkaCode
from linkengine.kafka.fetch import NO_SESSION, FetchPosition, SessionStep

Place = tuple[bytes, int]  # topic as Fetch names it, partition
LAST_EPOCH = (1 << 31) - 1
UNKNOWN_SESSION = frozenset(
    {KafkaCode.FETCH_SESSION_ID_NOT_FOUND, KafkaCode.INVALID_FETCH_SESSION_EPOCH, KafkaCode.FETCH_SESSION_TOPIC_ID_ERROR}
)


class Reading(NamedTuple):
    """One partition as the broker was asked to read it."""

    one: MirrorPartition
    attempt: int
    position: FetchPosition

    @property
    def current(self) -> bool:
        """Whether the partition still wants what was asked for."""
        partition = self.one
        return partition.attempt == self.attempt and partition.position == self.position.offset and partition.copying

    @property
    def topic_name(self) -> bytes:
        """How Fetch names the topic where it is not asked for by its id."""
        return self.one.assignment.source_topic.encode()


class Request(NamedTuple):
    """What the next Fetch says."""

    step: SessionStep
    by_id: bool
    positions: dict[bytes, list[FetchPosition]]
    forgotten: dict[bytes, list[int]]


class Asked(NamedTuple):
    """A request without an answer."""

    correlation: int
    version: int
    sent_at: float
    deadline: float
    max_bytes: int
    probe: tuple[Place, Reading] | None  # asked alone, outside the session


class ReadSession:
    """The session of one connection."""

    __slots__ = ("_changes", "_epoch", "_forgotten", "_id", "_named", "_places", "_unheard", "entries")

    def __init__(self) -> None:
        self.entries: dict[Place, Reading] = {}
        self._changes: dict[Place, None] = {}
        self._unheard: dict[Place, None] = {}  # named by requests since the last answer that told something
        self._forgotten: dict[Place, Reading] = {}
        self._id = self._epoch = 0
        self._named: set[Place] = set()  # places whose topic has no id: one of them, and all are asked for by name
        self._places: dict[Place, Place] = {}  # by the name that was asked for

    def want(self, place: Place, reading: Reading, *, by_id: bool = True) -> None:
        """Read a partition at another position, or from now on."""
        self.entries.pop(place, None)  # to the end of the row: full requests are served from the front
        self.entries[place] = reading
        self._changes[place] = None
        self._forgotten.pop(place, None)
        if not by_id and place not in self._named:
            self._named.add(place)
            self._epoch = 0  # names and ids do not mix in one session

    def drop(self, place: Place) -> None:
        """Read a partition no more."""
        reading = self.entries.pop(place, None)
        if reading is not None:
            self._changes.pop(place, None)
            self._forgotten[place] = reading

    def named(self, place: Place) -> Reading | None:
        """Answer what is read where an answer names a topic that was not asked for by its id; None where nothing is."""
        return self.entries.get(self._places.get(place, place))

    def asked(self, place: Place) -> bool:
        """Whether the broker knows what is wanted of a partition; what was said since the last request it does not."""
        return place not in self._changes

    def heard(self, place: Place) -> bool:
        """Whether the last answer was given by a broker that knew what is wanted of a partition."""
        return place not in self._changes and place not in self._unheard

    def request(self) -> Request:
        """Answer what to ask next, and take it for asked."""
        full, by_id = self._epoch == 0, not self._named
        chosen: Iterable[Place] = self.entries if full else self._changes
        positions: dict[bytes, list[FetchPosition]] = {}
        for place in chosen:
            reading = self.entries[place]
            positions.setdefault(place[0] if by_id else self._by_name(place, reading), []).append(reading.position)
        forgotten: dict[bytes, list[int]] = {}
        for place, reading in () if full else self._forgotten.items():
            topic = place[0] if by_id else reading.topic_name
            if by_id or self.named((topic, place[1])) is None:  # else the topic has got its id: read under another key
                forgotten.setdefault(topic, []).append(place[1])
        self._unheard |= self._changes
        self._changes.clear()
        self._forgotten.clear()
        return Request(SessionStep(self._id, self._epoch), by_id, positions, forgotten)

    def probe(self, place: Place, reading: Reading) -> Request:
        """Answer how to ask for one partition alone, outside the session."""
        by_id = place not in self._named
        topic = place[0] if by_id else self._by_name(place, reading)
        return Request(NO_SESSION, by_id, {topic: [reading.position]}, {})

    def _by_name(self, place: Place, reading: Reading) -> bytes:
        self._places[reading.topic_name, place[1]] = place
        return reading.topic_name

    def answered(self, session: int, *, told: bool = True) -> None:
        """Go on in the session that the answer names; 0: there is none, so that the next request is a full one."""
        if told:
            self._unheard.clear()
        if session != self._id or session == 0:
            self._id, self._epoch = session, 0
        self._epoch = 0 if session == 0 else self._epoch % LAST_EPOCH + 1

    def restart(self) -> None:
        """Begin anew with the next request, which also closes the old session; the entries stay."""
        self._epoch = 0

    def forget_all(self) -> None:
        """The connection is gone: the broker reads nothing for us."""
        self.entries.clear()
        self._changes.clear()
        self._unheard.clear()
        self._forgotten.clear()
        self._named.clear()
        self._places.clear()
        self._id = self._epoch = 0
