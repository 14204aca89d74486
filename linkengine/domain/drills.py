"""A rehearsed failover: names of the scratch copies, where groups would stand, and the verdict over all of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkengine.domain.groupplans import KnownOffset
from linkengine.domain.groups import Committed, OffsetFacts, without_nul
from linkengine.domain.naming import MAX_TOPIC_LENGTH

_NAMED_AT_MOST = 5
BATCH = 20  # topics that are rehearsed together: each is a second copy of its source at the destination
CLAMPED_LISTED = 50  # of one group and topic


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRow:
    """What one scratch copy went through. Unknown is None, never 0."""

    mirror_topic_name: str
    scratch_topic_name: str
    rto_ms: int | None = None
    rpo_ms: int | None = None
    records_not_copied: int | None = None
    records_compared: int | None = None
    differences: int | None = None
    writable: bool = False  # producers were let in, and a record written to every partition was read back
    problem: str = ""
    note: str = ""  # what limits the verdict without spoiling it

    @property
    def passed(self) -> bool:
        """Tell whether a real failover of this topic would have been a good one, as far as records can show it."""
        return self.writable and self.differences == 0 and self.records_compared is not None and not self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """Where a failover would leave a consumer group on a topic. Partitions that are not clamped keep the source's offset."""

    group: str  # its name at the destination
    mirror_topic_name: str
    partitions: int  # in which the group has an offset
    clamped: int  # it had read further there than the scratch copy reached
    offsets_set_back: int  # in all of these together
    unknown: int  # partitions whose end nobody knows
    clamped_offsets: Sequence[Mapping[str, int]]  # partition, source_offset, offset_after; CLAMPED_LISTED at most


def groups_after(
    topic: str, known: Iterable[KnownOffset], *, starts: Mapping[int, int | None], ends: Mapping[int, int | None]
) -> list[GroupRow]:
    """Answer where the groups of a mirror topic would stand, had it ended where its scratch copy did."""
    by_group: dict[str, list[tuple[KnownOffset, int | None]]] = {}
    for one in sorted(known, key=lambda one: (one.group, one.partition)):
        after = _offset_after(one.source, start=starts.get(one.partition), end=ends.get(one.partition))
        by_group.setdefault(one.group, []).append((one, after))
    return [_group_row(topic, group, offsets) for group, offsets in by_group.items()]


def _group_row(topic: str, group: str, offsets: Sequence[tuple[KnownOffset, int | None]]) -> GroupRow:
    clamped = [
        {"partition": one.partition, "source_offset": one.source, "offset_after": after}
        for one, after in offsets
        if after is not None and after < one.source
    ]
    return GroupRow(
        group=without_nul(group),
        mirror_topic_name=topic,
        partitions=len(offsets),
        clamped=len(clamped),
        offsets_set_back=sum(one["source_offset"] - one["offset_after"] for one in clamped),
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
    """Answer (problem, note) about what a comparison of so many records proves of a source that holds so many offsets.

    None in ``held`` is unknown.

    A partition of which no record was compared proves nothing, unless nothing is in it: it is empty, or it was read from its
    beginning, as those in ``whole``, and its offsets are those of markers and aborted records.
    """
    silent = [one for one in sorted(held) if held[one] != 0 and not compared.get(one) and one not in whole]
    if silent:
        named = ", ".join(str(one) for one in silent[:_NAMED_AT_MOST]) + (" and more" if len(silent) > _NAMED_AT_MOST else "")
        problem = (
            f"Nothing was compared in partition {named}: what the source holds there is not in the scratch copy, which began "
            f"at {start}. Rehearse with start earliest, or while records arrive."
        )
        return problem, ""
    return ("", "") if any(held.values()) else ("", "The source is empty: there was nothing to compare.")


def scratch_suffix(drill: int) -> str:
    """End the names of a drill's scratch copies; ``naming.is_internal`` knows it, so that no filter mirrors one."""
    return f".clusterlink-drill-{drill}"


def scratch_name(topic: str, *, drill: int) -> str:
    """Name the scratch copy of ``topic``: valid for Kafka, and no name anybody would choose."""
    suffix = scratch_suffix(drill)
    return f"{topic[: MAX_TOPIC_LENGTH - len(suffix)]}{suffix}"


def repeated(names: Iterable[str], *, drill: int) -> set[str]:
    """Answer the topics whose scratch copies would share a name, because only the beginning of a long name is kept."""
    seen: dict[str, str] = {}
    clashes = set()
    for name in names:
        other = seen.setdefault(scratch_name(name, drill=drill), name)
        if other != name:
            clashes |= {other, name}
    return clashes


def verdict(rows: Sequence[DrillRow]) -> bool:
    """Tell whether the drill passed: there was something to rehearse, and all of it went well."""
    return bool(rows) and all(row.passed for row in rows)
