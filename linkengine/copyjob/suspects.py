"""Partitions that should have more records but return none: each is fetched alone, alternating with the session. No I/O.

The source's last observed end is beyond the position, yet a session response returned nothing. A Fetch for this partition alone
shows whether the end of its log is empty (compacted) or the response was only full of other partitions.
"""

from __future__ import annotations

from linkengine.copyjob.session import Place, Reading, ReadSession


class Suspects:
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
            end = reading.one.account.source_end
            if end is not None and end > reading.position.offset and reading.current and session.asked(place):
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
