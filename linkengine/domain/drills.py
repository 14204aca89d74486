"""A rehearsed failover: names of the scratch copies and the verdict over what they went through. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkengine.domain.naming import MAX_TOPIC_LENGTH

_NAMED_AT_MOST = 5
MOST_TOPICS = 20  # each is a second copy of its source at the destination


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


def proven_by(held: Mapping[int, int], compared: Mapping[int, int], *, start: str) -> tuple[str, str]:
    """Answer (problem, note) about what a comparison of so many offsets proves of a source that holds so many.

    A partition of which nothing was compared proves nothing, unless there is nothing in it.
    """
    silent = [partition for partition in sorted(held) if held[partition] and not compared.get(partition)]
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
