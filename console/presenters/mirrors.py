"""A mirror topic as rows and tables show it: one row of a list, one row per partition, its gaps and its history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from console.models.mirrors import UNSEEN, is_fresh
from console.presenters import numbers
from console.presenters.looks import Look
from console.presenters.notes import ErrorNote, error_note
from console.presenters.numbers import Moment, moment
from console.presenters.reasons import GAP_LOOKS, PHASE_LABELS
from console.presenters.states import mirror_look
from linkengine.domain.moments import utc_words
from linkengine.domain.startspec import EARLIEST, LATEST, start_time_ms
from linkengine.domain.states import COPYING, GapReason, MirrorState

if TYPE_CHECKING:
    from console.models import GapRange, MirrorPartition, MirrorTopic, StateTransition
    from console.queries.mirrors import MirrorSummary

SHOWN_RANGES = 20  # gap ranges listed per reason; the rest is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRow:
    """One line of a mirror list."""

    key: int
    name: str
    path: str  # below the link's page
    source_topic: str
    look: Look
    lag: str
    lag_time: str
    partitions: str
    rate: str
    since: Moment | None
    errors: int
    note: ErrorNote | None
    writable: bool
    deleting: bool


def mirror_path(name: str) -> str:
    """Answer the path of a mirror's page below its link; a topic called ``new`` must not hide the page that adds one."""
    return f"mirrors/{name}/-/" if name == "new" else f"mirrors/{name}/"


def mirror_row(summary: MirrorSummary, *, now: datetime) -> MirrorRow:
    """Present one mirror of a list."""
    mirror = summary.mirror
    return MirrorRow(
        key=mirror.pk,
        name=mirror.name,
        path=mirror_path(mirror.name),
        source_topic=mirror.source_topic,
        look=mirror_look(mirror.state, mirror.stop_reason),
        lag=numbers.count(summary.max_lag),
        lag_time=numbers.lag_time(summary.lag_ms),
        partitions=numbers.count(mirror.num_partitions or None),
        rate=numbers.byte_rate(summary.bytes_per_s),
        since=moment(mirror.state_since, now=now),
        errors=summary.errors,
        note=mirror_note(mirror, troubled=summary.errors > 0, now=now),
        writable=mirror.state == MirrorState.STOPPED,
        deleting=mirror.deletion_requested_at is not None,
    )


def mirror_note(mirror: MirrorTopic, *, troubled: bool, now: datetime) -> ErrorNote | None:
    """Present why a mirror has failed, or why its set-up does not get on; ``troubled``: it has errors."""
    trouble = mirror.setup_trouble if troubled and not mirror.error_code else None
    if trouble is not None:
        return error_note(trouble.code, trouble.message, now=now, since=trouble.since)
    return error_note(mirror.error_code, mirror.error_message, now=now, since=mirror.error_since)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One line of a mirror's partitions table.

    ``share`` is how much of the source's range is there, in percent; None where nobody knows how far that goes now.
    """

    partition: int
    source_start: str
    source_end: str
    mirror_start: str
    mirror_end: str
    lag: str
    behind: bool
    share: int | None
    last_fetch: str
    rate: str
    phase: str
    observed: Moment | None
    note: ErrorNote | None


def partition_row(row: MirrorPartition, *, now: datetime) -> PartitionRow:
    """Present one partition; unknown offsets are dashes."""
    end = None if row.lag is None else row.source_end
    start = row.mirror_start
    goal = None if end is None or start is None else end + (row.held_back or 0) - start
    there = None if row.mirror_end is None or start is None else row.mirror_end - start
    heard = is_fresh(row.observed_at, now=now, within=UNSEEN)  # what a copier said before it fell silent is not so now
    return PartitionRow(
        partition=row.partition,
        source_start=numbers.count(row.source_start),
        source_end=numbers.count(row.source_end),
        mirror_start=numbers.count(row.mirror_start),
        mirror_end=numbers.count(row.mirror_end),
        lag=numbers.count(row.lag),
        behind=bool(row.lag),
        share=numbers.percent_of(there, goal),
        last_fetch=numbers.count(row.last_source_fetch_offset),
        rate=numbers.byte_rate(row.bytes_per_s if heard else None),
        phase=PHASE_LABELS.get(row.phase, row.phase) if heard else numbers.UNKNOWN,
        observed=moment(row.observed_at, now=now),
        note=error_note(row.error_code, row.error_message, now=now),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GapGroup:
    """All filled offsets of one reason, with the first ranges."""

    look: Look
    offsets: str
    counted: str  # the same with its noun
    ranges: Sequence[str]
    more: int  # ranges that are not listed
    lost: bool


def gap_groups(gaps: Iterable[GapRange]) -> list[GapGroup]:
    """Present the gap ledger by reason, lost records first."""
    by_reason: dict[GapReason, list[GapRange]] = defaultdict(list)
    for gap in gaps:
        by_reason[GapReason(gap.reason)].append(gap)
    order = sorted(by_reason, key=lambda reason: (reason is not GapReason.LOST, list(GapReason).index(reason)))
    return [_gap_group(reason, by_reason[reason]) for reason in order]


def _gap_group(reason: GapReason, gaps: Sequence[GapRange]) -> GapGroup:
    filled = sum(gap.filled for gap in gaps)
    return GapGroup(
        look=GAP_LOOKS[reason],
        offsets=numbers.count(filled),
        counted=numbers.plural(filled, "offset"),
        ranges=[_range_text(gap) for gap in gaps[:SHOWN_RANGES]],
        more=max(0, len(gaps) - SHOWN_RANGES),
        lost=reason is GapReason.LOST,
    )


def _range_text(gap: GapRange) -> str:
    last = gap.end - 1
    span = f"{gap.start:,}" if last == gap.start else f"{gap.start:,} to {last:,}"
    some = "" if gap.filled == gap.end - gap.start else f" ({gap.filled:,} of them)"
    return f"partition {gap.partition}: {span}{some}{_times(gap)}"


def _times(gap: GapRange) -> str:
    """Say when lost records were written, as far as the records around them tell."""
    ends = [(word, ms) for word, ms in (("after", gap.before_ms), ("before", gap.after_ms)) if ms is not None]
    words = " and ".join(f"{word} {utc_words(ms)}" for word, ms in ends)
    return f", written {words}" if words else ""


def start_words(spec: str) -> str:
    """Say where a mirror began."""
    if spec == EARLIEST:
        return "Oldest record of the source"
    if spec == LATEST:
        return "End of the source when it was created"
    return f"Records from {utc_words(start_time_ms(spec) or 0)} on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a mirror's life."""

    look: Look
    event: str
    by: str
    at: Moment | None
    detail: str


def steps(transitions: Iterable[StateTransition], *, now: datetime) -> list[Step]:
    """Present the timeline of a mirror, newest first; a stop is called after the event that began it."""
    return [
        Step(
            look=mirror_look(one.to_state, one.event), event=one.event, by=one.by, at=moment(one.at, now=now), detail=one.detail
        )
        for one in transitions
    ]


def newest_observation(partitions: Iterable[MirrorPartition]) -> datetime | None:
    """Answer when anything was last heard of these partitions."""
    return max((row.observed_at for row in partitions if row.observed_at), default=None)


def is_copying(mirror: MirrorTopic) -> bool:
    """Tell whether news of this mirror is to be expected: it is set up, and somebody should be copying."""
    return MirrorState(mirror.state) in COPYING and mirror.num_partitions > 0
