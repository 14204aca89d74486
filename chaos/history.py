"""What the writers know: every record they ever sent, and what the source told them of it. Values and one journal, no I/O."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock

HEADER = "name"
PAD = b"." * 60


class Outcome(StrEnum):
    """What the source said."""

    ACKED = "ACKED"  # it is there for good
    ABORTED = "ABORTED"  # nobody may ever read it
    UNKNOWN = "UNKNOWN"  # the answer was lost: it is there once or not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record as its writer sent it; ``number`` counts the records of a writer."""

    writer: str
    number: int
    topic: str
    partition: int
    key: bytes
    deletes: bool = False

    @property
    def name(self) -> bytes:
        """What the record carries in a header, so that a deletion, which has no value, can be told too."""
        return f"{self.writer}:{self.number}".encode()

    @property
    def value(self) -> bytes | None:
        """The record's value."""
        return None if self.deletes else self.name + PAD


class Journal:
    """The entries of all writers with their outcomes; safe to share between threads."""

    def __init__(self) -> None:
        """Nothing has been written yet."""
        self._lock = Lock()
        self._outcomes: dict[Entry, Outcome] = {}
        self._sent_s: dict[Entry, float] = {}
        self._offsets: dict[Entry, int] = {}

    def note(self, entries: Iterable[Entry], outcome: Outcome) -> None:
        """Keep what became of entries."""
        with self._lock:
            for entry in entries:
                self._sent_s.setdefault(entry, time.monotonic())
                self._outcomes[entry] = outcome

    def note_acked(self, entry: Entry, offset: int) -> None:
        """Keep that a record is there for good, and where, as far as the source told (it does not of a repeated one)."""
        self.note([entry], Outcome.ACKED)
        if offset >= 0:
            with self._lock:
                self._offsets[entry] = offset

    def of_topic(self, topic: str) -> dict[Entry, Outcome]:
        """Answer what is known of a topic's records."""
        with self._lock:
            return {entry: outcome for entry, outcome in self._outcomes.items() if entry.topic == topic}

    def sent_s(self, topic: str) -> dict[Entry, float]:
        """Answer when, in monotonic seconds, a topic's records were about to be sent: none of them is older."""
        with self._lock:
            return {entry: at_s for entry, at_s in self._sent_s.items() if entry.topic == topic}

    def offsets(self, topic: str) -> dict[Entry, int]:
        """Answer where a topic's acknowledged records stand, as far as the source told."""
        with self._lock:
            return {entry: offset for entry, offset in self._offsets.items() if entry.topic == topic}

    def count(self, outcome: Outcome) -> int:
        """Answer how many records came out so."""
        with self._lock:
            return sum(one is outcome for one in self._outcomes.values())
