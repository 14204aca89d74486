"""Health of mirror topics, links, clusters and environments: one rule over values that were observed.

The API state describes what a mirror or a link *should* do. It stays ACTIVE while no copy worker runs, one partition is silent
or records differ. Health describes what *is* copied. ``MIRROR_RULES`` and ``LINK_RULES`` are the rule: the first row that
applies determines the result, and the rows are in order of severity.

HEALTHY needs evidence. It is the last row of the mirrors' table and applies only if a copy worker reported on every partition
within ``UNKNOWN_AFTER_MS`` and nothing is wrong. If no row applies, health is UNKNOWN. The health of a link is that of its
worst mirror or its own, whichever is worse; clusters and environments take the worst of their links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from linkengine.domain.states import BECOMING, LinkState, MirrorState

UNKNOWN_AFTER_MS = 15_000  # copy workers report twice a second; a rebalance takes a few seconds at worst
NOT_COPYING_AFTER_MS = 60_000
ENGINE_SILENT_MS = 5_000  # of a link with an engine error: a partition without a report for so long is not copied
TRANSITION_LATE_MS = 300_000  # a transition that no copy worker reports on
STEADY_MS = 10_000  # how long a steady health lasts without a change: longer than pages show it without another reading


class Health(StrEnum):
    """Health, worst first."""

    NOT_COPYING = "NOT_COPYING"
    UNKNOWN = "UNKNOWN"
    DEGRADED = "DEGRADED"
    CHANGING = "CHANGING"  # a requested transition is in progress
    PAUSED = "PAUSED"  # by a user
    HEALTHY = "HEALTHY"
    STOPPED = "STOPPED"  # by a user; does not count in the health of a link whose other mirrors are copied
    EMPTY = "EMPTY"  # no mirror topics


NEEDS_ATTENTION = frozenset({Health.NOT_COPYING, Health.UNKNOWN, Health.DEGRADED})
SEVERITY = {health: rank for rank, health in enumerate(Health)}  # sort key: 0 is the worst


class Reason(StrEnum):
    """Reasons for a health; ``console.web.health_presenters`` has a sentence and the next step for each."""

    MIRROR_FAILED = "MIRROR_FAILED"
    LINK_FAILED = "LINK_FAILED"
    SOURCE_UNAVAILABLE = "SOURCE_UNAVAILABLE"
    NO_COPY_WORKER = "NO_COPY_WORKER"
    ENGINE_ERROR = "ENGINE_ERROR"
    SILENT = "SILENT"
    BLOCKED = "BLOCKED"
    STALLED = "STALLED"
    SETUP_FAILING = "SETUP_FAILING"
    REPORT_OVERDUE = "REPORT_OVERDUE"
    WAITING = "WAITING"
    LAG_UNKNOWN = "LAG_UNKNOWN"
    NOT_OBSERVED = "NOT_OBSERVED"
    ALARM = "ALARM"
    ERROR = "ERROR"
    TASK_ERROR = "TASK_ERROR"
    LAG_BEYOND_OBJECTIVE = "LAG_BEYOND_OBJECTIVE"
    TRANSITION_LATE = "TRANSITION_LATE"
    TASKS_FAILING = "TASKS_FAILING"
    CLUSTER_UNREACHABLE = "CLUSTER_UNREACHABLE"
    CLUSTER_NOT_CHECKED = "CLUSTER_NOT_CHECKED"
    DELETING = "DELETING"
    SETTING_UP = "SETTING_UP"
    STOPPING = "STOPPING"
    REVERSING = "REVERSING"
    STARTING = "STARTING"
    FIRST_COPY = "FIRST_COPY"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    COPYING = "COPYING"
    NO_MIRRORS = "NO_MIRRORS"
    SOURCE_SIDE = "SOURCE_SIDE"
    NO_LINKS = "NO_LINKS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Reports of copy workers on the partitions of a mirror; ``staleness_ms`` and ``lag_ms`` are of the worst partition."""

    partitions: int = 0
    staleness_ms: int = 0  # age of the least recent report; without a report, time since the partition is to be copied
    unseen_ms: int = 0  # age of the least recent reading of the source's end; the lag is unknown after ``UNKNOWN_AFTER_MS``
    silent: int = 0  # partitions whose report is older than ``UNKNOWN_AFTER_MS``
    blocked: int = 0  # partitions whose last report is of a failure: a cluster is unreachable, or it rejects the link
    waiting: int = 0  # partitions that wait for a copy worker or for a lease
    stalled: int = 0  # partitions that have been behind for ``NOT_COPYING_AFTER_MS`` while no record is copied
    unknown_lags: int = 0
    lag_ms: int | None = None  # None: unknown, as in a first copy


NO_REPORTS = Reports()


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorInputs:
    """Observed values that determine the health of a mirror topic."""

    state: MirrorState
    state_age_ms: int  # since the mirror and its link are in their states
    link_state: LinkState
    expected: bool  # the engine orders copy workers to copy it
    engine_error: bool = False  # the link reports that some of its partitions, or all, cannot be copied
    reports: Reports = NO_REPORTS
    objective_ms: int | None = None  # link config link.rpo.objective.ms
    alarms: Sequence[str] = ()  # codes of transition errors that stay until a user ends them
    errors: Sequence[str] = ()  # codes of other errors; not of conditions that a transition waits for
    task_errors: Sequence[str] = ()  # codes of errors of recurring tasks that name the mirror
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInputs:
    """Observed values that determine a link's own health, without that of its mirrors."""

    state: LinkState
    engine_error: bool = False  # some of its partitions, or all, cannot be copied
    failing_tasks: int = 0
    deleting: bool = False
    holds_mirrors: bool = True  # False: link of mode SOURCE, whose mirrors belong to the link on the other side


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthStatus:
    """Health with its reason. ``codes``, ``partitions`` and ``age_ms`` are details of the reason.

    ``steady``: time alone does not change health and reason within ``STEADY_MS``; only another report, error or request does.
    """

    health: Health
    reason: Reason
    codes: tuple[str, ...] = ()
    partitions: int = 0
    age_ms: int | None = None
    steady: bool = field(default=True, compare=False)

    @property
    def severity(self) -> int:
        """Return the sort key: 0 is the worst."""
        return SEVERITY[self.health]

    @property
    def needs_attention(self) -> bool:
        """Return True if a user should act on it."""
        return self.health in NEEDS_ATTENTION


# --- the rule ---------------------------------------------------------------------------------------------------------


def _is_wanted(mirror: MirrorInputs) -> bool:
    """Return whether the mirror is to be copied now or after its setup, by its state and what users requested."""
    copied = mirror.expected or mirror.state in BECOMING | {MirrorState.ACTIVE, MirrorState.PENDING_SYNCHRONIZE}
    return copied and mirror.link_state is not LinkState.PAUSED and not mirror.deleting


def _has_no_worker(mirror: MirrorInputs) -> bool:
    """Return whether an engine error of the link concerns the mirror: not if all its partitions are reported as copied."""
    reports = mirror.reports
    copied = (
        reports.partitions > 0 and not (reports.waiting or reports.unknown_lags) and reports.staleness_ms < ENGINE_SILENT_MS
    )
    return _is_wanted(mirror) and mirror.engine_error and not (mirror.expected and copied)


def _is_starting(mirror: MirrorInputs) -> bool:
    return mirror.state_age_ms < UNKNOWN_AFTER_MS


def _waits_too_long(mirror: MirrorInputs) -> bool:
    lag_ms = mirror.reports.lag_ms
    return mirror.reports.waiting > 0 and not _is_starting(mirror) and (lag_ms is None or lag_ms >= UNKNOWN_AFTER_MS)


def _is_late(mirror: MirrorInputs) -> bool:
    changing = mirror.state in BECOMING or mirror.state is MirrorState.PENDING_STOPPED or mirror.deleting
    return changing and not mirror.expected and mirror.state_age_ms >= TRANSITION_LATE_MS


def _is_beyond_objective(mirror: MirrorInputs) -> bool:
    """Return whether the objective is missed. An unknown age is that of a first copy, which has never met it."""
    objective, lag_ms = mirror.objective_ms, mirror.reports.lag_ms
    return mirror.expected and objective is not None and not _is_starting(mirror) and (lag_ms is None or lag_ms > objective)


_N, _U, _D, _C = Health.NOT_COPYING, Health.UNKNOWN, Health.DEGRADED, Health.CHANGING
_S = MirrorState
MirrorRule = tuple[Health, Reason, Callable[[MirrorInputs], bool]]
MIRROR_RULES: tuple[MirrorRule, ...] = (
    (_N, Reason.MIRROR_FAILED, lambda m: m.state is _S.FAILED),
    (_N, Reason.LINK_FAILED, lambda m: m.state is _S.LINK_FAILED or (_is_wanted(m) and m.link_state is LinkState.FAILED)),
    (
        _N,
        Reason.SOURCE_UNAVAILABLE,
        lambda m: m.state is _S.SOURCE_UNAVAILABLE or (_is_wanted(m) and m.link_state is LinkState.UNAVAILABLE),
    ),
    (_N, Reason.NO_COPY_WORKER, _has_no_worker),
    (_N, Reason.SILENT, lambda m: m.expected and m.reports.staleness_ms >= NOT_COPYING_AFTER_MS),
    (_N, Reason.BLOCKED, lambda m: m.expected and m.reports.blocked > 0),
    (_N, Reason.STALLED, lambda m: m.expected and m.reports.stalled > 0),
    (_N, Reason.SETUP_FAILING, lambda m: m.state in BECOMING and len(m.errors) > 0),
    (_U, Reason.REPORT_OVERDUE, lambda m: m.expected and m.reports.staleness_ms >= UNKNOWN_AFTER_MS),
    (_U, Reason.WAITING, lambda m: m.expected and _waits_too_long(m)),
    (_U, Reason.LAG_UNKNOWN, lambda m: m.expected and m.reports.unknown_lags > 0 and not _is_starting(m)),
    (_D, Reason.ALARM, lambda m: len(m.alarms) > 0),
    (_D, Reason.ERROR, lambda m: len(m.errors) > 0),
    (_D, Reason.TASK_ERROR, lambda m: len(m.task_errors) > 0 and m.state is not _S.STOPPED),
    (_D, Reason.LAG_BEYOND_OBJECTIVE, _is_beyond_objective),
    (_D, Reason.TRANSITION_LATE, _is_late),
    (_C, Reason.DELETING, lambda m: m.deleting),
    (_C, Reason.SETTING_UP, lambda m: m.state in BECOMING),
    (_C, Reason.STOPPING, lambda m: m.state is _S.PENDING_STOPPED),
    (_C, Reason.REVERSING, lambda m: m.state is _S.PENDING_SYNCHRONIZE),
    (
        Health.PAUSED,
        Reason.PAUSED,
        lambda m: m.state is _S.PAUSED or (m.state is _S.ACTIVE and m.link_state is LinkState.PAUSED),
    ),
    (Health.STOPPED, Reason.STOPPED, lambda m: m.state is _S.STOPPED),
    (_C, Reason.STARTING, lambda m: m.expected and (m.reports.unknown_lags > 0 or m.reports.waiting > 0)),
    (_C, Reason.FIRST_COPY, lambda m: m.expected and m.reports.partitions > 0 and m.reports.lag_ms is None),
    (
        Health.HEALTHY,
        Reason.COPYING,
        lambda m: m.expected and m.state is _S.ACTIVE and m.link_state is LinkState.ACTIVE and m.reports.partitions > 0,
    ),
)
LINK_RULES: tuple[tuple[Health, Reason, Callable[[LinkInputs], bool]], ...] = (
    (_N, Reason.LINK_FAILED, lambda link: link.state is LinkState.FAILED),
    (_N, Reason.SOURCE_UNAVAILABLE, lambda link: link.state is LinkState.UNAVAILABLE),
    (_D, Reason.ENGINE_ERROR, lambda link: link.state is LinkState.ACTIVE and link.engine_error),
    (_D, Reason.TASKS_FAILING, lambda link: link.failing_tasks > 0),
    (_C, Reason.DELETING, lambda link: link.deleting),
    (Health.PAUSED, Reason.PAUSED, lambda link: link.state is LinkState.PAUSED),
)


def mirror_health(mirror: MirrorInputs) -> HealthStatus:
    """Return the health of a mirror topic."""
    for health, reason, applies in MIRROR_RULES:
        if applies(mirror):
            return _status(mirror, health, reason)
    return HealthStatus(health=Health.UNKNOWN, reason=Reason.NOT_OBSERVED, steady=_is_steady(mirror))


_LIMITS_MS = (UNKNOWN_AFTER_MS, NOT_COPYING_AFTER_MS, TRANSITION_LATE_MS)


def _is_steady(mirror: MirrorInputs) -> bool:
    """Return whether no age that ``MIRROR_RULES`` compare reaches a limit within ``STEADY_MS``; False in doubt."""
    limits = _LIMITS_MS if mirror.objective_ms is None else (*_LIMITS_MS, mirror.objective_ms)
    if not mirror.expected:
        return not _reaches(mirror.state_age_ms, limits)
    if mirror.engine_error:
        return False  # ENGINE_SILENT_MS is shorter than ``STEADY_MS``
    reports, lag_ms = mirror.reports, mirror.reports.lag_ms or 0
    if lag_ms >= NOT_COPYING_AFTER_MS - STEADY_MS and not reports.stalled:
        return False  # stalled as soon as the rate is 0, which it is after some seconds without a report
    ages = (mirror.state_age_ms, reports.staleness_ms, reports.unseen_ms, lag_ms)
    return not any(_reaches(age, limits) for age in ages)


def _reaches(age_ms: int, limits_ms: Iterable[int]) -> bool:
    return any(limit - STEADY_MS <= age_ms <= limit for limit in limits_ms)


def link_health(link: LinkInputs, mirrors: Iterable[HealthStatus]) -> HealthStatus:
    """Return the health of a link: that of its worst mirror, or its own if that is as bad or worse."""
    own = next((HealthStatus(health=health, reason=reason) for health, reason, applies in LINK_RULES if applies(link)), None)
    empty = Reason.NO_MIRRORS if link.holds_mirrors else Reason.SOURCE_SIDE
    statuses = [*([own] if own else []), *mirrors]
    return replace(worst(statuses, empty=empty), steady=all(status.steady for status in statuses))


def cluster_health(*, reachable: bool | None, links: Iterable[HealthStatus]) -> HealthStatus:
    """Return the health of a cluster: the worst of its links and of its last check; ``reachable`` is None without a check."""
    own = {
        False: [HealthStatus(health=Health.DEGRADED, reason=Reason.CLUSTER_UNREACHABLE)],
        None: [HealthStatus(health=Health.UNKNOWN, reason=Reason.CLUSTER_NOT_CHECKED)],
        True: [],
    }[reachable]
    return worst([*own, *links], empty=Reason.NO_LINKS)


def worst(statuses: Iterable[HealthStatus], *, empty: Reason) -> HealthStatus:
    """Return the worst status, the first of equal statuses; EMPTY if there is none."""
    return min(statuses, key=lambda status: status.severity, default=HealthStatus(health=Health.EMPTY, reason=empty))


_CODES: dict[Reason, Callable[[MirrorInputs], Sequence[str]]] = {
    Reason.ALARM: lambda m: m.alarms,
    Reason.ERROR: lambda m: m.errors,
    Reason.MIRROR_FAILED: lambda m: m.errors,
    Reason.SETUP_FAILING: lambda m: m.errors,
    Reason.TASK_ERROR: lambda m: m.task_errors,
}
_PARTITIONS: dict[Reason, Callable[[Reports], int]] = {
    Reason.SILENT: lambda reports: reports.silent,
    Reason.REPORT_OVERDUE: lambda reports: reports.silent,
    Reason.BLOCKED: lambda reports: reports.blocked,
    Reason.STALLED: lambda reports: reports.stalled,
    Reason.WAITING: lambda reports: reports.waiting,
    Reason.LAG_UNKNOWN: lambda reports: reports.unknown_lags,
}
_AGES: dict[Reason, Callable[[MirrorInputs], int | None]] = {
    Reason.SILENT: lambda m: m.reports.staleness_ms,
    Reason.REPORT_OVERDUE: lambda m: m.reports.staleness_ms,
    Reason.STALLED: lambda m: m.reports.lag_ms,
    Reason.LAG_BEYOND_OBJECTIVE: lambda m: m.reports.lag_ms,
    Reason.TRANSITION_LATE: lambda m: m.state_age_ms,
}


def _status(mirror: MirrorInputs, health: Health, reason: Reason) -> HealthStatus:
    codes, partitions, age = _CODES.get(reason), _PARTITIONS.get(reason), _AGES.get(reason)
    return HealthStatus(
        health=health,
        reason=reason,
        codes=tuple(codes(mirror)) if codes else (),
        partitions=partitions(mirror.reports) if partitions else 0,
        age_ms=age(mirror) if age else None,
        steady=_is_steady(mirror),
    )
