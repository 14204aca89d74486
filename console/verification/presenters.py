"""View models of verification runs, verified ranges and the migration gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext, gettext_noop, ngettext

from console.languages import translated
from console.verification.rules import GATED, GateProblem, gate_problem
from console.web import numbers
from console.web.badges import VERIFY_BADGES, Badge, Family
from console.web.numbers import Moment, moment
from linkengine.domain.gates import GateCheckName, GateCheckState
from linkengine.domain.messages import loaded
from linkengine.domain.ranges import missing_words

if TYPE_CHECKING:
    from console.models import GateRun, VerifyRun, VerifyWatch
    from console.verification.queries import PartitionCoverage
    from linkengine.domain.ranges import OffsetRange


# --- verification runs and verified ranges ----------------------------------------------------------------------------


SHOWN_DIFFERENCES = 20
_LIVE = frozenset({"QUEUED", "RUNNING"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow:
    """A record that differs between source and mirror."""

    partition: str
    offset: str
    kind: str
    source: str
    mirror: str
    query: str  # of the Records page; "" if the user may not read records


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The newest verification run."""

    badge: Badge
    live: bool
    records: str
    differences: str
    size: str
    duration: str
    not_copied: str  # "" if the mirror was in sync, and if unknown
    requested: Moment | None
    by: str
    error: str
    first: Sequence[DifferenceRow]
    hidden: bool  # True: record contents are not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRow:
    """The verified range of a partition."""

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
    """The verification status of a mirror: a summary and its partitions."""

    sentence: str
    missing: str  # source offsets below the mirror's log start; these are never verified
    last: Moment | None  # time of the last attempt
    error: str  # why the last attempt failed
    rows: Sequence[CoverageRow]
    first: Sequence[DifferenceRow]  # the first difference of each partition
    hidden: bool  # True: record contents are not shown


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
    """Return the verification status of a mirror. ``reads_records``: the user may see record contents."""
    differences = [part.first_difference for part in parts if part.first_difference]
    return CoverageView(
        sentence=f"{_coverage_summary(parts)} {_continuous_summary(enabled=enabled, watched=watched)}",
        missing=translated(missing_words(missing)),
        last=moment(watch.finished_at, now=now) if watch else None,
        error=watch.error_message if watch else "",
        rows=[_coverage_row(part, now=now) for part in parts],
        first=[_difference(row, reads_records=reads_records) for row in differences[:SHOWN_DIFFERENCES]],
        hidden=not reads_records,
    )


def run_view(run: VerifyRun | None, *, now: datetime, reads_records: bool) -> RunView | None:
    """Return the view of a run, None for None. ``reads_records``: the user may see record contents."""
    if run is None:
        return None
    return RunView(
        badge=VERIFY_BADGES["NOTHING" if run.status == "EQUAL" and not run.records_compared else run.status],
        live=run.status in _LIVE,
        records=numbers.count(run.records_compared),
        differences=numbers.count(run.differences),
        size=numbers.size(run.bytes_compared),
        duration=_duration(run, now),
        not_copied=ngettext("%(count)s offset", "%(count)s offsets", run.not_copied) % {"count": numbers.count(run.not_copied)}
        if run.not_copied
        else "",
        requested=moment(run.requested_at, now=now),
        by=run.requested_by,
        error=run.error_message,
        first=[_difference(row, reads_records=reads_records) for row in run.first_differences[:SHOWN_DIFFERENCES]],
        hidden=not reads_records,
    )


def _duration(run: VerifyRun, now: datetime) -> str:
    if run.duration_ms is not None:
        return numbers.duration(run.duration_ms)
    if run.status in _LIVE and run.started_at:
        duration = numbers.duration((now - run.started_at).total_seconds() * 1000)
        return gettext("%(duration)s so far") % {"duration": duration}
    return ""


def _difference(row: dict[str, Any], *, reads_records: bool) -> DifferenceRow:
    return DifferenceRow(
        partition=str(row["partition"]),
        offset=numbers.count(row["offset"]),
        kind=str(row["kind"]),
        source=_value(row.get("source_value") if reads_records else None),
        mirror=_value(row.get("mirror_value") if reads_records else None),
        query=f"?partition={row['partition']}&offset={row['offset']}" if reads_records else "",
    )


def _value(value: object) -> str:
    return numbers.UNKNOWN if value is None else str(value)


def _coverage_summary(parts: Sequence[PartitionCoverage]) -> str:
    unverified = [part.unverified for part in parts]
    known = [count for count in unverified if count is not None]
    if not known or len(known) < len(unverified):
        return gettext("Verified offsets are not known yet.")
    if not any(part.comparable for part in parts):
        return gettext("Nothing to verify: source and mirror have no offsets in common.")
    if sum(known) == 0:
        return gettext("All offsets that source and mirror have in common are verified.")
    text = ngettext(
        "%(count)s offset of the mirror is not verified.", "%(count)s offsets of the mirror are not verified.", sum(known)
    )
    return text % {"count": numbers.count(sum(known))}


def _continuous_summary(*, enabled: bool, watched: bool) -> str:
    if not watched:
        return gettext("In this state new records are not verified automatically.")
    if enabled:
        return gettext("New records are verified continuously.")
    return gettext("New records are not verified automatically (verify.continuous.enable is false).")


def _coverage_row(part: PartitionCoverage, *, now: datetime) -> CoverageRow:
    return CoverageRow(
        partition=part.partition,
        verified_to=numbers.count(part.verified_to),
        end=numbers.count(part.end),
        unverified=numbers.count(part.unverified),
        differences=numbers.count(part.differences),
        differs=part.differences > 0,
        share=numbers.percent_of(part.verified, part.comparable or None),
        at=moment(part.verified_at, now=now),
    )


# --- the migration gate -----------------------------------------------------------------------------------------------


GATE_BADGES: Mapping[str, Badge] = MappingProxyType(
    {
        "RUNNING": Badge(
            code="RUNNING",
            label=gettext_noop("Checking"),
            icon="arrow-repeat",
            family=Family.BUSY,
            meaning=gettext_noop("All records are being compared. The other checks follow."),
        ),
        "GREEN": Badge(
            code="GREEN",
            label=gettext_noop("Passed"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("All checks passed. The topic can be promoted."),
            next_step=gettext_noop("Stop the producers on the source, then promote."),
        ),
        "RED": Badge(
            code="RED",
            label=gettext_noop("Failed"),
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning=gettext_noop(
                "At least one check failed. After a promotion, data or settings would be missing or different."
            ),
            next_step=gettext_noop("Fix the failed checks and run the checks again, or override the gate with a reason."),
        ),
        "OVERRIDDEN": Badge(
            code="OVERRIDDEN",
            label=gettext_noop("Overridden"),
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning=gettext_noop("A user overrode the gate without passed checks."),
        ),
        GateProblem.TOO_OLD: Badge(
            code=GateProblem.TOO_OLD,
            label=gettext_noop("Expired"),
            icon="clock-history",
            family=Family.WARN,
            meaning=gettext_noop("The last results are too old. The gate is closed again."),
            next_step=gettext_noop("Run the checks again."),
        ),
        GateProblem.REFUTED: Badge(
            code=GateProblem.REFUTED,
            label=gettext_noop("Invalidated"),
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning=gettext_noop(
                "Since the last run, different, lost or missed deleted records were found. The gate is closed again."
            ),
            next_step=gettext_noop("Fix the cause and run the checks again, or override the gate with a reason."),
        ),
        GateProblem.OUTLIVED: Badge(
            code=GateProblem.OUTLIVED,
            label=gettext_noop("Obsolete"),
            icon="clock-history",
            family=Family.WARN,
            meaning=gettext_noop(
                "Since the last run, the topic became a mirror again or moved to another source. The gate is closed."
            ),
            next_step=gettext_noop("Run the checks again."),
        ),
    }
)
_CHECK_BADGES: Mapping[GateCheckState, tuple[str, str, Family]] = MappingProxyType(
    {
        GateCheckState.PASSED: ("check-circle-fill", gettext_noop("passed"), Family.OK),
        GateCheckState.FAILED: ("x-octagon-fill", gettext_noop("failed"), Family.BAD),
        GateCheckState.NOT_APPLICABLE: ("info-circle", gettext_noop("not applicable"), Family.IDLE),
    }
)
_NAMES: Mapping[GateCheckName, str] = MappingProxyType(
    {
        GateCheckName.DATA_VERIFIED: gettext_noop("Data verified"),
        GateCheckName.NOTHING_LOST: gettext_noop("No losses"),
        GateCheckName.NO_LAG: gettext_noop("No lag"),
        GateCheckName.CONFIGS_EQUAL: gettext_noop("Partitions and configs in sync"),
        GateCheckName.GROUPS_SYNCED: gettext_noop("Consumer offsets synced"),
        GateCheckName.ACLS_SYNCED: gettext_noop("ACLs synced"),
        GateCheckName.CANARY_READ: gettext_noop("Readable by a consumer"),
    }
)
if set(_NAMES) != set(GateCheckName) or set(_CHECK_BADGES) != set(GateCheckState):
    raise AssertionError("each check needs a label")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """A check of the gate."""

    name: str
    icon: str
    word: str
    family: Family
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """The newest run of the gate."""

    badge: Badge
    live: bool
    at: Moment | None
    by: str
    reason: str
    checks: Sequence[CheckView]


def gate_view(run: GateRun | None, *, now: datetime) -> GateView | None:
    """Return the view of a run, None for None. An outdated result is shown as such while the mirror can still be promoted."""
    if run is None:
        return None
    problem = gate_problem(run, now=now) if run.mirror.state in GATED else None
    return GateView(
        badge=GATE_BADGES[problem or run.status],
        live=run.status == "RUNNING",
        at=moment(run.finished_at or run.requested_at, now=now),
        by=run.requested_by,
        reason=run.reason,
        checks=[_check(row) for row in run.checks],
    )


def _check(row: Mapping[str, Any]) -> CheckView:
    icon, word, family = _CHECK_BADGES[GateCheckState(row["state"])]
    return CheckView(
        name=gettext(_NAMES[GateCheckName(row["name"])]),
        icon=icon,
        word=gettext(word),
        family=family,
        detail=translated(loaded(row["message"])),
    )
