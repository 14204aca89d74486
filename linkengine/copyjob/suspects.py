"""Partitions that are told to have more and of which nothing comes: each is asked for alone, in turn with everybody. No I/O."""

from __future__ import annotations

from linkengine.copyjob.session import Place, Reading, ReadSession


class Suspects:
    """Whom to ask for alone next. Never twice in a row: there may be hundreds, and the others' records wait meanwhile."""

    __slots__ = ("_alone", "_row")

    def __init__(self) -> None:
        self._row: dict[Place, None] = {}  # whoever has waited longest is the first
        self._alone = False  # the last request was for one alone

    def __bool__(self) -> bool:
        return bool(self._row)

    def note(self, session: ReadSession) -> None:
        """Nobody has news: note who should have some, because its source's end is further on."""
        for place, reading in session.entries.items():
            end = reading.one.account.source_end
            if end is not None and end > reading.position.offset and reading.current and session.asked(place):
                self._row[place] = None

    def take(self, session: ReadSession) -> tuple[Place, Reading] | None:
        """Answer whom to ask for alone now; None where it is everybody's turn."""
        self._alone = not self._alone and bool(self._row)
        while self._alone and self._row:
            place = next(iter(self._row))
            del self._row[place]
            reading = session.entries.get(place)
            if reading is not None and reading.current:
                return place, reading
        self._alone = False
        return None

    def clear(self) -> None:
        """The connection is gone, and what was told on it."""
        self._row.clear()
        self._alone = False
