"""Compacted topics: when a mirror is compacted itself, and for how long a source keeps tombstones.

A compacted topic accepts no record without a key, but may hold some from before it was compacted, until its log cleaner removes
them. The mirror accepts them as long as its policy is ``delete`` (with unlimited retention it deletes nothing), and treats
them as the source does once it is compacted (``docs/adr/0002-compacted-mirrors.md``). Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from linkengine.domain.configs import ConfigChange, is_compacted

POLICY = "cleanup.policy"
OPEN = "delete"
TOMBSTONES_KEPT = "delete.retention.ms"
_DEFAULT_KEPT = "86400000"  # Kafka's default; used if the link does not read the source's value


def with_compaction_in_time(
    change: ConfigChange, *, wanted: Mapping[str, str], present: Mapping[str, str], keyless: bool, copied: Callable[[], bool]
) -> ConfigChange:
    """Return the change with the cleanup policy that copying allows now.

    ``keyless``: the mirror has refused a record without a key. ``copied`` returns whether the mirror holds everything that its
    source had when the source's policy was read; it is called only if that decides.
    """
    if not is_compacted(wanted) or wanted.get("retention.ms") != "-1":  # with its own retention, ``delete`` removes records
        return change
    if is_compacted(present):
        return replace(change, values={**change.values, POLICY: OPEN}) if keyless else change
    if POLICY in change.values and not copied():
        return replace(change, values={name: value for name, value in change.values.items() if name != POLICY})
    return change


def tombstones_kept_ms(source_configs: Mapping[str, str]) -> int | None:
    """Return for how long a source keeps tombstones at least, None if it is not compacted.

    A reader that takes longer than that between two complete states may miss that a key was deleted.
    """
    return tombstones_would_be_kept_ms(source_configs) if is_compacted(source_configs) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """Former cleaning of a source, by other configs than now: it lasted, or may have lasted, ``until`` then, and the shortest
    time for which it kept tombstones was ``kept_ms``.
    """

    until: datetime
    kept_ms: int


def cleaned_before(
    former: Mapping[str, str],
    present: Mapping[str, str],
    *,
    known: Cleaned | None,
    needed: Callable[[Cleaned], bool],
    now: datetime,
) -> Cleaned | None:
    """Return what to remember after the configs of a source were read again; ``known`` is what was remembered before.

    Between two readings the shorter time of both counts. ``needed`` returns whether ``known`` still matters to a mirror; it is
    called only if that decides.
    """
    times = tombstones_kept_ms(former), tombstones_kept_ms(present)
    if times[0] == times[1]:
        return known
    kept_ms = min(kept for kept in times if kept is not None)
    if known is not None and known.kept_ms < kept_ms and needed(known):
        kept_ms = known.kept_ms
    return Cleaned(until=now, kept_ms=kept_ms)


def kept_since(since: datetime, *, present: Mapping[str, str], known: Cleaned | None) -> int | None:
    """Return for how long a source has kept tombstones at least since then, None if it was not known to be compacted."""
    times = [tombstones_kept_ms(present), known.kept_ms if known is not None and known.until >= since else None]
    return min((kept for kept in times if kept is not None), default=None)


def tombstones_would_be_kept_ms(source_configs: Mapping[str, str]) -> int:
    """Return for how long a source would keep tombstones at least if it were compacted."""
    return int(source_configs.get(TOMBSTONES_KEPT, _DEFAULT_KEPT))
