"""Failover drills: names of the scratch copies, where consumer groups would resume, and the drill's result. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkengine.domain.groupplans import KnownOffset
from linkengine.domain.groups import Committed, OffsetFacts, without_nul
from linkengine.domain.naming import MAX_TOPIC_LENGTH

_NAMED_AT_MOST = 5
BATCH = 20  # topics drilled at the same time: each is a second copy of its source at the destination
CLAMPED_LISTED = 50  # offsets listed per group and topic


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRow:
    """Result of a scratch copy. Unknown is None, never 0."""

    mirror_topic_name: str
    scratch_topic_name: str
    rto_ms: int | None = None
    rpo_ms: int | None = None
    records_not_copied: int | None = None
    records_compared: int | None = None
    differences: int | None = None
    writable: bool = False  # producers were allowed, and a record written to every partition was read back
    problem: str = ""
    note: str = ""  # a limitation of the result that does not fail it

    @property
    def passed(self) -> bool:
        """Whether a real failover of this topic would have succeeded, as far as records can show."""
        return self.writable and self.differences == 0 and self.records_compared is not None and not self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """Where a consumer group would resume on a topic after a failover. Unclamped partitions keep the source's offset."""

    group: str  # its name at the destination
    mirror_topic_name: str
    partitions: int  # with a committed offset of the group
    clamped: int  # partitions whose committed offset is beyond the scratch copy's end
    offsets_set_back: int  # in all clamped partitions together
    unknown: int  # partitions whose end is unknown
    clamped_offsets: Sequence[Mapping[str, int]]  # partition, source_offset, offset_after; CLAMPED_LISTED at most


def groups_after(
    topic: str, known: Iterable[KnownOffset], *, starts: Mapping[int, int | None], ends: Mapping[int, int | None]
) -> list[GroupRow]:
    """Return where the groups of a mirror topic would resume if the mirror had ended where its scratch copy did."""
    by_group: dict[str, list[tuple[KnownOffset, int | None]]] = {}
    for offset in sorted(known, key=lambda offset: (offset.group, offset.partition)):
        after = _offset_after(offset.source, start=starts.get(offset.partition), end=ends.get(offset.partition))
        by_group.setdefault(offset.group, []).append((offset, after))
    return [_group_row(topic, group, offsets) for group, offsets in by_group.items()]


def _group_row(topic: str, group: str, offsets: Sequence[tuple[KnownOffset, int | None]]) -> GroupRow:
    clamped = [
        {"partition": offset.partition, "source_offset": offset.source, "offset_after": after}
        for offset, after in offsets
        if after is not None and after < offset.source
    ]
    return GroupRow(
        group=without_nul(group),
        mirror_topic_name=topic,
        partitions=len(offsets),
        clamped=len(clamped),
        offsets_set_back=sum(row["source_offset"] - row["offset_after"] for row in clamped),
        unknown=sum(after is None for _, after in offsets),
        clamped_offsets=clamped[:CLAMPED_LISTED],
    )


def _offset_after(source: int, *, start: int | None, end: int | None) -> int | None:
    if end is None:
        return None
    return OffsetFacts(source=Committed(offset=source), mirror_start=start or 0, mirror_end=end).target


def proven_by(
    held: Mapping[int, int | None], compared: Mapping[int, int], *, start: str, whole: Collection[int] = ()
) -> tuple[str, str]:
    """Return (problem, note) about what a comparison proves: ``held`` offsets of the source, ``compared`` records, by
    partition.

    None in ``held`` is unknown.

    A partition without a compared record proves nothing, unless it holds no records: it is empty, or it was read from its
    beginning, as those in ``whole``, and all its offsets are those of markers and aborted records.
    """
    unproven = [number for number in sorted(held) if held[number] != 0 and not compared.get(number) and number not in whole]
    if unproven:
        named = ", ".join(str(number) for number in unproven[:_NAMED_AT_MOST])
        named += " and more" if len(unproven) > _NAMED_AT_MOST else ""
        problem = (
            f"Nothing was compared in partition {named}: the scratch copy, which began at {start}, has no record that the "
            "source holds there. Repeat the drill with start earliest, or while records arrive."
        )
        return problem, ""
    return ("", "") if any(held.values()) else ("", "The source is empty. There was nothing to compare.")


def scratch_suffix(drill: int) -> str:
    """Return the suffix of a drill's scratch copies; ``naming.is_internal`` recognizes it, so that no filter mirrors them."""
    return f".clusterlink-drill-{drill}"


def scratch_name(topic: str, *, drill: int) -> str:
    """Return the name of the scratch copy of ``topic``: valid for Kafka, and unlikely to be chosen by a user."""
    suffix = scratch_suffix(drill)
    return f"{topic[: MAX_TOPIC_LENGTH - len(suffix)]}{suffix}"


def repeated(names: Iterable[str], *, drill: int) -> set[str]:
    """Return the topics whose scratch copies would have the same name, because long names are cut."""
    seen: dict[str, str] = {}
    clashes = set()
    for name in names:
        other = seen.setdefault(scratch_name(name, drill=drill), name)
        if other != name:
            clashes |= {other, name}
    return clashes


def verdict(rows: Sequence[DrillRow]) -> bool:
    """Return whether the drill passed: it has topics, and all of them passed."""
    return bool(rows) and all(row.passed for row in rows)
