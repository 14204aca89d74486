"""A verify run, and how much of a mirror was compared, as the mirror's page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from console.presenters import numbers
from console.presenters.looks import Look
from console.presenters.numbers import Moment, moment
from console.presenters.reasons import VERIFY_LOOKS
from linkengine.domain.coverage import missing_words

if TYPE_CHECKING:
    from console.models import VerifyRun, VerifyWatch
    from console.queries.verification import PartitionCoverage
    from linkengine.domain.ranges import OffsetRange

SHOWN_DIFFERENCES = 20
_LIVE = frozenset({"QUEUED", "RUNNING"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One record that is not equal."""

    partition: str
    offset: str
    kind: str
    source: str
    mirror: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The latest comparison."""

    look: Look
    live: bool
    records: str
    differences: str
    size: str
    duration: str
    not_copied: str  # "" where the mirror had everything, and where nobody looked
    requested: Moment | None
    by: str
    error: str
    first: Sequence[Difference]
    hidden: bool  # whether these are shown without what the records hold


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRow:
    """One partition: verified up to where, of what."""

    partition: int
    verified_to: str
    end: str
    unverified: str
    differences: str
    differs: bool
    share: int | None
    at: Moment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageView:
    """The whole mirror: a sentence, and its partitions."""

    sentence: str
    missing: str  # what the source holds before the mirror's beginning; no comparison looks there
    last: Moment | None  # last attempt to compare a range
    error: str  # why it did not come about
    rows: Sequence[CoverageRow]
    first: Sequence[Difference]  # of each partition
    hidden: bool  # whether these are shown without what the records hold


def coverage_view(
    parts: Sequence[PartitionCoverage],
    watch: VerifyWatch | None,
    *,
    enabled: bool,
    watched: bool = True,
    now: datetime,
    reads_records: bool = False,
    missing: Mapping[int, OffsetRange] = MappingProxyType({}),
) -> CoverageView:
    """Present what was compared; what was not is said as plainly. Contents only for who may read records."""
    found = [one.first_difference for one in parts if one.first_difference]
    return CoverageView(
        sentence=f"{_coverage_words(parts)} {_habit_words(enabled=enabled, watched=watched)}",
        missing=missing_words(missing),
        last=moment(watch.finished_at, now=now) if watch else None,
        error=watch.error_message if watch else "",
        rows=[_coverage_row(one, now=now) for one in parts],
        first=[_difference(one, reads_records=reads_records) for one in found[:SHOWN_DIFFERENCES]],
        hidden=not reads_records,
    )


def run_view(run: VerifyRun | None, *, now: datetime, reads_records: bool) -> RunView | None:
    """Present a run; a run that is under way shows how long it has been. Contents only for who may read records."""
    if run is None:
        return None
    return RunView(
        look=VERIFY_LOOKS["NOTHING" if run.status == "EQUAL" and not run.records_compared else run.status],
        live=run.status in _LIVE,
        records=numbers.count(run.records_compared),
        differences=numbers.count(run.differences),
        size=numbers.size(run.bytes_compared),
        duration=_duration(run, now),
        not_copied=numbers.plural(run.not_copied, "offset") if run.not_copied else "",
        requested=moment(run.requested_at, now=now),
        by=run.requested_by,
        error=run.error_message,
        first=[_difference(one, reads_records=reads_records) for one in run.first_differences[:SHOWN_DIFFERENCES]],
        hidden=not reads_records,
    )


def _duration(run: VerifyRun, now: datetime) -> str:
    if run.duration_ms is not None:
        return numbers.duration(run.duration_ms)
    if run.status in _LIVE and run.started_at:
        return f"{numbers.duration((now - run.started_at).total_seconds() * 1000)} so far"
    return ""


def _difference(one: dict[str, Any], *, reads_records: bool) -> Difference:
    return Difference(
        partition=str(one["partition"]),
        offset=numbers.count(one["offset"]),
        kind=str(one["kind"]),
        source=_value(one.get("source_value") if reads_records else None),
        mirror=_value(one.get("mirror_value") if reads_records else None),
    )


def _value(value: object) -> str:
    return numbers.UNKNOWN if value is None else str(value)


def _coverage_words(parts: Sequence[PartitionCoverage]) -> str:
    unverified = [one.unverified for one in parts]
    known = [one for one in unverified if one is not None]
    if not known or len(known) < len(unverified):
        return "How much is verified is not known yet."
    if not any(one.comparable for one in parts):
        return "Nothing was compared: the source has nothing, or nothing any more, that the mirror holds."
    if sum(known) == 0:
        return "Every offset that both sides hold was compared and is equal."
    return f"{numbers.plural(sum(known), 'offset')} of the mirror {'is' if sum(known) == 1 else 'are'} not verified."


def _habit_words(*, enabled: bool, watched: bool) -> str:
    if not watched:
        return "In this state nothing is compared by itself."
    if enabled:
        return "New records are compared range by range behind the copy."
    return "New records are not compared by themselves (verify.continuous.enable is false)."


def _coverage_row(one: PartitionCoverage, *, now: datetime) -> CoverageRow:
    return CoverageRow(
        partition=one.partition,
        verified_to=numbers.count(one.verified_to),
        end=numbers.count(one.end),
        unverified=numbers.count(one.unverified),
        differences=numbers.count(one.differences),
        differs=one.differences > 0,
        share=numbers.percent_of(one.verified, one.comparable or None),
        at=moment(one.verified_at, now=now),
    )
