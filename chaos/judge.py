"""The judge: compares what both sides hold with each other and with what the writers know. Pure; knows no copier.

Strict topics: every record of the source, as a reader of committed data sees it, stands on the mirror at the same offset with
the same key, value, timestamp and headers, and nothing else does. Compacted topics: the source may lack what it holds a newer
record of the same key for; the mirror of a storm is never cleaned, so it lacks only what was cleaned before it was copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from chaos.history import HEADER, Entry, Outcome
from chaos.reading import Record

Place = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that must never be."""

    kind: str  # lost, doubled, moved, …
    detail: str
    topic: str = ""  # "": it is not about one record
    partition: int = -1
    offset: int = -1

    def __str__(self) -> str:
        """One line for people."""
        if not self.topic:
            return f"{self.kind}: {self.detail}"
        return f"{self.kind}: {self.topic}-{self.partition} at offset {self.offset}: {self.detail}"


def compare(
    topic: str, source: Sequence[Record], mirror: Sequence[Record], *, ends: Mapping[int, int] | None = None
) -> Iterator[Finding]:
    """Compare two strict sides up to ``ends`` by partition, by default whole."""
    there = {one[:2]: one for one in source if ends is None or one.offset < ends[one.partition]}
    here = {one[:2]: one for one in mirror}
    for place in sorted(there.keys() | here.keys()):
        expected, found = there.get(place), here.get(place)
        if expected != found:
            yield _difference(topic, place, expected, found)


def compare_compacted(topic: str, source: Sequence[Record], mirror: Sequence[Record]) -> Iterator[Finding]:
    """Compare a source that is cleaned with a mirror that is not."""
    there, here = ({one[:2]: one for one in side} for side in (source, mirror))
    newest = _newest(source)
    for place in sorted(there.keys() | here.keys()):
        expected, found = there.get(place), here.get(place)
        cleaned = expected is None and found is not None and _superseded(found, newest)
        if expected != found and not cleaned:
            yield _difference(topic, place, expected, found)


def check_places(
    topic: str, records: Sequence[Record], history: Mapping[Entry, Outcome], offsets: Mapping[Entry, int]
) -> Iterator[Finding]:
    """Check that each record is one its writer sent, as it was sent, where the source told the writer that it stands."""
    by_name = {entry.name: entry for entry in history}
    for one in records:
        entry = by_name.get(_name(one))
        if entry is None or (one.partition, one.key, one.value) != (entry.partition, entry.key, entry.value):
            kind, detail = "foreign", f"no writer wrote {one}"
        elif offsets.get(entry, one.offset) != one.offset:
            kind, detail = "moved", f"{entry.name!r} was acknowledged at offset {offsets[entry]}"
        else:
            continue
        yield Finding(kind=kind, topic=topic, partition=one.partition, offset=one.offset, detail=detail)


def copied_in_time(
    offsets: Mapping[Entry, int],
    sent_s: Mapping[Entry, float],
    passed: Mapping[Place, Sequence[tuple[int, float]]],
    kept_s: float,
) -> set[Entry]:
    """Answer the records that the mirror's end had passed before the source could clean them, which it does after ``kept_s``.

    ``passed``: ends of the mirrors with the time at which each was seen first, growing.
    """
    found: set[Entry] = set()
    for entry, offset in offsets.items():
        seen = passed.get((entry.topic, entry.partition), ())
        at = bisect_right(seen, offset, key=lambda one: one[0])
        if at < len(seen) and seen[at][1] < sent_s[entry] + kept_s:
            found.add(entry)
    return found


def check_kept(topic: str, mirror: Sequence[Record], kept: Collection[Entry]) -> Iterator[Finding]:
    """Check that a mirror without a cleaner holds every record that was copied in time, deletions too."""
    names = {_name(one) for one in mirror}
    for entry in kept:
        if entry.topic == topic and entry.name not in names:
            yield _of_entry("lost", entry, "it was there to be copied when the mirror went past it")


def check_history(topic: str, records: Sequence[Record], history: Mapping[Entry, Outcome]) -> Iterator[Finding]:
    """Compare what a reader of committed data sees with what the writers know of a strict topic."""
    seen = Counter(_name(one) for one in records)
    by_name = {entry.name: entry for entry in history}
    for entry, outcome in history.items():
        times = seen[entry.name]
        if outcome is Outcome.ACKED and not times:
            yield _of_entry("lost", entry, "it was acknowledged to its writer")
        elif outcome is Outcome.ABORTED and times:
            yield _of_entry("aborted", entry, "its transaction was aborted, and readers see it")
        elif times > 1:
            yield _of_entry("doubled", entry, f"readers see it {times} times")
    yield from _disorder(topic, records, by_name)


def check_newest(topic: str, records: Sequence[Record], history: Mapping[Entry, Outcome]) -> Iterator[Finding]:
    """Compare a compacted topic with its writers: per key the last acknowledged record counts, or an unknown after it.

    Deletions count as well: a cleaner keeps them for a day.
    """
    newest = {key: one for (_, key), one in _newest(records).items()}
    known: dict[bytes, list[Entry]] = defaultdict(list)
    for entry in sorted(history, key=lambda one: one.number):
        known[entry.key].append(entry)
    for key, entries in known.items():
        acked = [entry for entry in entries if history[entry] is Outcome.ACKED]
        allowed = [one for one in entries if not acked or one.number >= acked[-1].number]
        found = newest.get(key)
        if found is None and acked:
            yield _of_entry("lost", acked[-1], "it is the last of its key")
        elif found is not None and _name(found) not in {one.name for one in allowed}:
            yield Finding(kind="stale", topic=topic, partition=found.partition, offset=found.offset, detail=f"{found}")


def check_unchanged(committed: Sequence[Record], uncommitted: Sequence[Record], *, topic: str) -> Iterator[Finding]:
    """Check that a mirror shows every reader the same: nothing aborted is in it."""
    hidden = {one[:2]: one for one in uncommitted}.keys() ^ {one[:2]: one for one in committed}.keys()
    for partition, offset in sorted(hidden):
        yield Finding(
            kind="aborted", topic=topic, partition=partition, offset=offset, detail="only some readers of the mirror see it"
        )


def check_ends(expected: Mapping[Place, int], found: Mapping[Place, int]) -> Iterator[Finding]:
    """Check that topics end where they must."""
    for (topic, partition), end in sorted(expected.items()):
        there = found.get((topic, partition))
        if there != end:
            yield Finding(kind="end", topic=topic, partition=partition, offset=end, detail=f"the log ends at {there}")


def _difference(topic: str, place: tuple[int, int], expected: Record | None, found: Record | None) -> Finding:
    kind = "extra" if expected is None else "missing" if found is None else "changed"
    return Finding(kind=kind, topic=topic, partition=place[0], offset=place[1], detail=f"source {expected}, mirror {found}")


def _newest(records: Iterable[Record]) -> dict[tuple[int, bytes | None], Record]:
    return {(one.partition, one.key): one for one in records}  # in order: the last one stays


def _superseded(record: Record, newest: Mapping[tuple[int, bytes | None], Record]) -> bool:
    """Tell whether the other side may lack a record: it holds a newer one of that key."""
    other = newest.get((record.partition, record.key))
    return other is not None and other.offset > record.offset


def _disorder(topic: str, records: Sequence[Record], by_name: Mapping[bytes, Entry]) -> Iterator[Finding]:
    last: dict[tuple[str, int], int] = {}
    for one in records:
        entry = by_name.get(_name(one))
        if entry is None or entry.partition != one.partition:
            yield Finding(
                kind="foreign", topic=topic, partition=one.partition, offset=one.offset, detail=f"no writer wrote {one}"
            )
            continue
        before = last.get((entry.writer, one.partition), 0)
        if entry.number < before:
            yield Finding(
                kind="reordered",
                topic=topic,
                partition=one.partition,
                offset=one.offset,
                detail=f"{entry.name!r} after {before}",
            )
        last[entry.writer, one.partition] = entry.number


def _name(record: Record) -> bytes:
    return next((value for name, value in record.headers if name == HEADER and value), b"")


def _of_entry(kind: str, entry: Entry, detail: str) -> Finding:
    return Finding(kind=kind, topic=entry.topic, partition=entry.partition, offset=-1, detail=f"{entry.name!r}: {detail}")
