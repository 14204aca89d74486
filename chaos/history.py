"""The history of the writers: every record they sent, and its outcome. Values and a journal, no I/O."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock

HEADER = "name"
PAD = b"." * 60


class Outcome(StrEnum):
    """Outcome of a record at the source."""

    ACKED = "ACKED"  # it is in the log permanently
    ABORTED = "ABORTED"  # no committed reader may return it
    UNKNOWN = "UNKNOWN"  # the response was lost: it is in the log once or not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A record as its writer sent it; ``number`` counts the records of a writer."""

    writer: str
    number: int
    topic: str
    partition: int
    key: bytes
    deletes: bool = False

    @property
    def name(self) -> bytes:
        """The record's header value, which also identifies a tombstone, which has no value."""
        return f"{self.writer}:{self.number}".encode()

    @property
    def value(self) -> bytes | None:
        """The record's value."""
        return None if self.deletes else self.name + PAD


class Journal:
    """The entries of all writers with their outcomes; thread-safe."""

    def __init__(self) -> None:
        """Create an empty journal."""
        self._lock = Lock()
        self._outcomes: dict[Entry, Outcome] = {}
        self._sent_s: dict[Entry, float] = {}
        self._offsets: dict[Entry, int] = {}

    def note(self, entries: Iterable[Entry], outcome: Outcome) -> None:
        """Record the outcome of entries."""
        with self._lock:
            for entry in entries:
                self._sent_s.setdefault(entry, time.monotonic())
                self._outcomes[entry] = outcome

    def note_acked(self, entry: Entry, offset: int) -> None:
        """Record that an entry is acknowledged, and its offset if the source returned it (not for a retried record)."""
        self.note([entry], Outcome.ACKED)
        if offset >= 0:
            with self._lock:
                self._offsets[entry] = offset

    def of_topic(self, topic: str) -> dict[Entry, Outcome]:
        """Return the outcomes of a topic's records."""
        with self._lock:
            return {entry: outcome for entry, outcome in self._outcomes.items() if entry.topic == topic}

    def sent_s(self, topic: str) -> dict[Entry, float]:
        """Return when, in monotonic seconds, each record of a topic was about to be sent: none is older."""
        with self._lock:
            return {entry: at_s for entry, at_s in self._sent_s.items() if entry.topic == topic}

    def offsets(self, topic: str) -> dict[Entry, int]:
        """Return the offsets of a topic's acknowledged records, as far as the source returned them."""
        with self._lock:
            return {entry: offset for entry, offset in self._offsets.items() if entry.topic == topic}

    def count(self, outcome: Outcome) -> int:
        """Return how many records have an outcome."""
        with self._lock:
            return sum(known is outcome for known in self._outcomes.values())
