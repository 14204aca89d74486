"""The judge: compares both sides with each other and with the history of the writers. Pure functions, independent of the copy.

Strict topics: every record of the source, as a committed reader sees it, is on the mirror at the same offset with the same key,
value, timestamp and headers, and nothing else is. Compacted topics: the source may lack records for whose key it has a newer
one. The mirror of a storm is never compacted, so it lacks only records that were removed before they were copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from chaos.history import HEADER, Entry, Outcome
from chaos.reading import Record

TopicPartition = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A violation of a guarantee."""

    kind: str  # lost, doubled, moved, …
    detail: str
    topic: str = ""  # "": not about a single record
    partition: int = -1
    offset: int = -1

    def __str__(self) -> str:
        """The finding as a line."""
        if not self.topic:
            return f"{self.kind}: {self.detail}"
        return f"{self.kind}: {self.topic}-{self.partition} at offset {self.offset}: {self.detail}"


def compare(
    topic: str, source: Sequence[Record], mirror: Sequence[Record], *, ends: Mapping[int, int] | None = None
) -> Iterator[Finding]:
    """Compare a strict topic on both sides, up to ``ends`` by partition or completely."""
    there = {record[:2]: record for record in source if ends is None or record.offset < ends[record.partition]}
    here = {record[:2]: record for record in mirror}
    for place in sorted(there.keys() | here.keys()):
        expected, found = there.get(place), here.get(place)
        if expected != found:
            yield _difference(topic, place, expected, found)


def compare_compacted(topic: str, source: Sequence[Record], mirror: Sequence[Record]) -> Iterator[Finding]:
    """Compare a source that is compacted with a mirror that is not."""
    there, here = ({record[:2]: record for record in side} for side in (source, mirror))
    newest = _newest(source)
    for place in sorted(there.keys() | here.keys()):
        expected, found = there.get(place), here.get(place)
        cleaned = expected is None and found is not None and _superseded(found, newest)
        if expected != found and not cleaned:
            yield _difference(topic, place, expected, found)


def check_places(
    topic: str, records: Sequence[Record], history: Mapping[Entry, Outcome], offsets: Mapping[Entry, int]
) -> Iterator[Finding]:
    """Check that each record was sent by its writer, unchanged, and is at the offset that the source returned to the writer."""
    by_name = {entry.name: entry for entry in history}
    for record in records:
        entry = by_name.get(_name(record))
        if entry is None or (record.partition, record.key, record.value) != (entry.partition, entry.key, entry.value):
            kind, detail = "foreign", f"no writer wrote {record}"
        elif offsets.get(entry, record.offset) != record.offset:
            kind, detail = "moved", f"{entry.name!r} was acknowledged at offset {offsets[entry]}"
        else:
            continue
        yield Finding(kind=kind, topic=topic, partition=record.partition, offset=record.offset, detail=detail)


def copied_in_time(
    offsets: Mapping[Entry, int],
    sent_s: Mapping[Entry, float],
    passed: Mapping[TopicPartition, Sequence[tuple[int, float]]],
    kept_s: float,
) -> set[Entry]:
    """Return the records that the mirror's end had passed before the source could compact them, which it does after ``kept_s``.

    ``passed``: ascending ends of the mirrors with the time at which each was first observed.
    """
    found: set[Entry] = set()
    for entry, offset in offsets.items():
        seen = passed.get((entry.topic, entry.partition), ())
        at = bisect_right(seen, offset, key=lambda sample: sample[0])
        if at < len(seen) and seen[at][1] < sent_s[entry] + kept_s:
            found.add(entry)
    return found


def check_kept(topic: str, mirror: Sequence[Record], kept: Collection[Entry]) -> Iterator[Finding]:
    """Check that a mirror that is not compacted has every record that was copied in time, tombstones included."""
    yield from _absent(topic, mirror, kept, "it was on the source when the mirror passed its offset")


def check_promoted(topic: str, mirror: Sequence[Record], acked: Collection[Entry]) -> Iterator[Finding]:
    """Check that a promoted mirror has every record that was acknowledged before the promotion began."""
    yield from _absent(topic, mirror, acked, "it was acknowledged before the promotion began")


def _absent(topic: str, mirror: Sequence[Record], entries: Collection[Entry], why: str) -> Iterator[Finding]:
    names = {_name(record) for record in mirror}
    for entry in entries:
        if entry.topic == topic and entry.name not in names:
            yield _of_entry("lost", entry, why)


def check_history(topic: str, records: Sequence[Record], history: Mapping[Entry, Outcome]) -> Iterator[Finding]:
    """Compare what a committed reader sees of a strict topic with the history of its writers."""
    seen = Counter(_name(record) for record in records)
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
    """Compare a compacted topic with its history: per key, the last acknowledged record, or an unknown record after it, counts.

    Tombstones count as well: the log cleaner keeps them for a day.
    """
    newest = {key: record for (_, key), record in _newest(records).items()}
    known: dict[bytes, list[Entry]] = defaultdict(list)
    for entry in sorted(history, key=lambda entry: entry.number):
        known[entry.key].append(entry)
    for key, entries in known.items():
        acked = [entry for entry in entries if history[entry] is Outcome.ACKED]
        allowed = [entry for entry in entries if not acked or entry.number >= acked[-1].number]
        found = newest.get(key)
        if found is None and acked:
            yield _of_entry("lost", acked[-1], "it is the last of its key")
        elif found is not None and _name(found) not in {entry.name for entry in allowed}:
            yield Finding(kind="stale", topic=topic, partition=found.partition, offset=found.offset, detail=f"{found}")


def check_unchanged(committed: Sequence[Record], uncommitted: Sequence[Record], *, topic: str) -> Iterator[Finding]:
    """Check that committed and uncommitted readers see the same records of a mirror: it has no aborted records."""
    hidden = {record[:2] for record in uncommitted} ^ {record[:2] for record in committed}
    for partition, offset in sorted(hidden):
        yield Finding(
            kind="aborted", topic=topic, partition=partition, offset=offset, detail="only some readers of the mirror see it"
        )


def check_ends(expected: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]) -> Iterator[Finding]:
    """Check that topics end at the expected offsets."""
    for (topic, partition), end in sorted(expected.items()):
        there = found.get((topic, partition))
        if there != end:
            yield Finding(kind="end", topic=topic, partition=partition, offset=end, detail=f"the log ends at {there}")


def _difference(topic: str, place: tuple[int, int], expected: Record | None, found: Record | None) -> Finding:
    kind = "extra" if expected is None else "missing" if found is None else "changed"
    return Finding(kind=kind, topic=topic, partition=place[0], offset=place[1], detail=f"source {expected}, mirror {found}")


def _newest(records: Iterable[Record]) -> dict[tuple[int, bytes | None], Record]:
    return {(record.partition, record.key): record for record in records}  # in order: the last record of a key stays


def _superseded(record: Record, newest: Mapping[tuple[int, bytes | None], Record]) -> bool:
    """Return whether the other side may lack a record because it has a newer record with that key."""
    other = newest.get((record.partition, record.key))
    return other is not None and other.offset > record.offset


def _disorder(topic: str, records: Sequence[Record], by_name: Mapping[bytes, Entry]) -> Iterator[Finding]:
    last: dict[tuple[str, int], int] = {}
    for record in records:
        entry = by_name.get(_name(record))
        if entry is None or entry.partition != record.partition:
            yield Finding(
                kind="foreign",
                topic=topic,
                partition=record.partition,
                offset=record.offset,
                detail=f"no writer wrote {record}",
            )
            continue
        before = last.get((entry.writer, record.partition), 0)
        if entry.number < before:
            yield Finding(
                kind="reordered",
                topic=topic,
                partition=record.partition,
                offset=record.offset,
                detail=f"{entry.name!r} after {before}",
            )
        last[entry.writer, record.partition] = entry.number


def _name(record: Record) -> bytes:
    return next((value for name, value in record.headers if name == HEADER and value), b"")


def _of_entry(kind: str, entry: Entry, detail: str) -> Finding:
    return Finding(kind=kind, topic=entry.topic, partition=entry.partition, offset=-1, detail=f"{entry.name!r}: {detail}")
