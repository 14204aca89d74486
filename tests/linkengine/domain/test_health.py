"""The rule of health: each input, and that nothing unknown or not copied is Healthy."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.health import (
    LINK_RULES,
    MIRROR_RULES,
    STEADY_MS,
    Health,
    HealthStatus,
    LinkInputs,
    MirrorInputs,
    Reason,
    Reports,
    cluster_health,
    link_health,
    mirror_health,
    worst,
)
from linkengine.domain.states import BECOMING, LinkState, MirrorState

S, L, H, R = MirrorState, LinkState, Health, Reason
REPORTS = Reports(partitions=3, staleness_ms=500, lag_ms=0)
COPIED = MirrorInputs(state=S.ACTIVE, state_age_ms=3_600_000, link_state=L.ACTIVE, expected=True, reports=REPORTS)
IDLE = replace(COPIED, expected=False)  # not to be copied
LINK = LinkInputs(state=L.ACTIVE)
HEALTHY = HealthStatus(health=H.HEALTHY, reason=R.COPYING)


def reports(**changes: Any) -> dict[str, Any]:
    return {"reports": replace(REPORTS, **changes)}


MIRRORS: tuple[tuple[MirrorInputs, dict[str, Any], Health, Reason], ...] = (
    (COPIED, {}, H.HEALTHY, R.COPYING),
    (COPIED, reports(staleness_ms=14_999), H.HEALTHY, R.COPYING),
    (COPIED, reports(staleness_ms=15_000, silent=1), H.UNKNOWN, R.REPORT_OVERDUE),
    (COPIED, reports(staleness_ms=59_999, silent=1), H.UNKNOWN, R.REPORT_OVERDUE),
    (COPIED, reports(staleness_ms=60_000, silent=1), H.NOT_COPYING, R.SILENT),
    (COPIED, {"engine_error": True, **reports(staleness_ms=5_000)}, H.NOT_COPYING, R.NO_COPY_WORKER),
    (COPIED, {"engine_error": True, **reports(waiting=1)}, H.NOT_COPYING, R.NO_COPY_WORKER),
    (COPIED, {"engine_error": True, **reports(unknown_lags=1)}, H.NOT_COPYING, R.NO_COPY_WORKER),
    (COPIED, {"engine_error": True, "reports": Reports()}, H.NOT_COPYING, R.NO_COPY_WORKER),
    (COPIED, {"engine_error": True, **reports(staleness_ms=4_999)}, H.HEALTHY, R.COPYING),  # the error concerns other mirrors
    (IDLE, {"state": S.PENDING_SETUP, "engine_error": True}, H.NOT_COPYING, R.NO_COPY_WORKER),
    (COPIED, {"link_state": L.FAILED, "expected": False}, H.NOT_COPYING, R.LINK_FAILED),
    (COPIED, {"link_state": L.UNAVAILABLE, "expected": False}, H.NOT_COPYING, R.SOURCE_UNAVAILABLE),
    (COPIED, {"link_state": L.PAUSED, "expected": False}, H.PAUSED, R.PAUSED),
    (COPIED, {"expected": False}, H.UNKNOWN, R.NOT_OBSERVED),
    (COPIED, {"reports": Reports()}, H.UNKNOWN, R.NOT_OBSERVED),
    (COPIED, reports(blocked=1), H.NOT_COPYING, R.BLOCKED),
    (COPIED, reports(stalled=1, lag_ms=61_000), H.NOT_COPYING, R.STALLED),
    (COPIED, reports(waiting=1, lag_ms=None), H.UNKNOWN, R.WAITING),
    (COPIED, reports(waiting=1, lag_ms=15_000), H.UNKNOWN, R.WAITING),
    (COPIED, reports(waiting=1, lag_ms=14_999), H.CHANGING, R.STARTING),
    (COPIED, reports(unknown_lags=1), H.UNKNOWN, R.LAG_UNKNOWN),
    (COPIED, {"state_age_ms": 14_999, **reports(unknown_lags=1)}, H.CHANGING, R.STARTING),
    (COPIED, reports(lag_ms=None), H.CHANGING, R.FIRST_COPY),
    (COPIED, {"objective_ms": 5_000, **reports(lag_ms=5_000)}, H.HEALTHY, R.COPYING),
    (COPIED, {"objective_ms": 5_000, **reports(lag_ms=5_001)}, H.DEGRADED, R.LAG_BEYOND_OBJECTIVE),
    (COPIED, {"objective_ms": 5_000, **reports(lag_ms=None)}, H.DEGRADED, R.LAG_BEYOND_OBJECTIVE),
    (COPIED, reports(lag_ms=900_000), H.HEALTHY, R.COPYING),  # without an objective, lag that is being copied is no fault
    (COPIED, {"alarms": ["RECORDS_LOST"]}, H.DEGRADED, R.ALARM),
    (COPIED, {"errors": ["TIMEOUT_ERROR"]}, H.DEGRADED, R.ERROR),
    (COPIED, {"task_errors": ["AUTHORIZATION_ERROR"]}, H.DEGRADED, R.TASK_ERROR),
    (COPIED, {"deleting": True, "expected": False, "state_age_ms": 1}, H.CHANGING, R.DELETING),
    (COPIED, {"state": S.PENDING_SYNCHRONIZE}, H.CHANGING, R.REVERSING),
    (COPIED, {"state": S.PENDING_STOPPED}, H.CHANGING, R.STOPPING),
    (COPIED, {"state": S.PENDING_STOPPED, **reports(staleness_ms=60_000)}, H.NOT_COPYING, R.SILENT),
    (IDLE, {"state": S.PENDING_STOPPED, "state_age_ms": 299_999}, H.CHANGING, R.STOPPING),
    (IDLE, {"state": S.PENDING_STOPPED, "state_age_ms": 300_000}, H.DEGRADED, R.TRANSITION_LATE),
    *((IDLE, {"state": state, "state_age_ms": 1}, H.CHANGING, R.SETTING_UP) for state in BECOMING),
    *((IDLE, {"state": state, "errors": ["X"]}, H.NOT_COPYING, R.SETUP_FAILING) for state in BECOMING),
    *((IDLE, {"state": state}, H.DEGRADED, R.TRANSITION_LATE) for state in BECOMING),
    (IDLE, {"state": S.FAILED}, H.NOT_COPYING, R.MIRROR_FAILED),
    (IDLE, {"state": S.LINK_FAILED}, H.NOT_COPYING, R.LINK_FAILED),
    (IDLE, {"state": S.SOURCE_UNAVAILABLE}, H.NOT_COPYING, R.SOURCE_UNAVAILABLE),
    (IDLE, {"state": S.PAUSED}, H.PAUSED, R.PAUSED),
    (IDLE, {"state": S.PAUSED, "engine_error": True, **reports(staleness_ms=10**9)}, H.PAUSED, R.PAUSED),
    (IDLE, {"state": S.PAUSED, "alarms": ["RECORDS_DIFFER"]}, H.DEGRADED, R.ALARM),
    (IDLE, {"state": S.STOPPED}, H.STOPPED, R.STOPPED),
    (IDLE, {"state": S.STOPPED, "alarms": ["CONFIGS_REFUSED"]}, H.DEGRADED, R.ALARM),
    (IDLE, {"state": S.STOPPED, "task_errors": ["X"]}, H.STOPPED, R.STOPPED),
)


@pytest.mark.parametrize(("mirror", "changes", "health", "reason"), MIRRORS)
def test_mirror_has_the_health_of_the_first_rule_that_applies(
    mirror: MirrorInputs, changes: dict[str, Any], health: Health, reason: Reason
) -> None:
    found = mirror_health(replace(mirror, **changes))

    assert (found.health, found.reason) == (health, reason)


def test_every_rule_and_every_input_is_in_the_table_of_examples() -> None:
    assert {reason for _, reason, _ in MIRROR_RULES} <= {reason for *_, reason in MIRRORS}
    changed = {name for _, changes, *_ in MIRRORS for name in changes}
    assert changed >= {field for field in MirrorInputs.__dataclass_fields__ if field != "state"} | {"state"}
    in_reports = {name for _, changes, *_ in MIRRORS for name in Reports.__dataclass_fields__ if "reports" in changes
                  and getattr(changes["reports"], name) != getattr(REPORTS, name)}  # fmt: skip
    assert in_reports == set(Reports.__dataclass_fields__) - {"unseen_ms"}  # only determines whether the health is steady


@pytest.mark.parametrize(
    ("link", "health", "reason"),
    [
        (LINK, H.HEALTHY, R.COPYING),
        (LinkInputs(state=L.FAILED), H.NOT_COPYING, R.LINK_FAILED),
        (LinkInputs(state=L.UNAVAILABLE), H.NOT_COPYING, R.SOURCE_UNAVAILABLE),
        (LinkInputs(state=L.PAUSED), H.PAUSED, R.PAUSED),
        (LinkInputs(state=L.ACTIVE, engine_error=True), H.DEGRADED, R.ENGINE_ERROR),
        (LinkInputs(state=L.PAUSED, engine_error=True), H.PAUSED, R.PAUSED),
        (LinkInputs(state=L.ACTIVE, failing_tasks=1), H.DEGRADED, R.TASKS_FAILING),
        (LinkInputs(state=L.ACTIVE, deleting=True), H.CHANGING, R.DELETING),
    ],
)
def test_link_with_healthy_mirrors_has_its_own_health(link: LinkInputs, health: Health, reason: Reason) -> None:
    found = link_health(link, [HEALTHY, HEALTHY])

    assert (found.health, found.reason) == (health, reason)


def test_rules_are_in_order_of_severity() -> None:
    for rules in (MIRROR_RULES, LINK_RULES):
        ranks = [
            HealthStatus(health=rule[0], reason=rule[1]).severity for rule in rules if rule[0] not in {H.STOPPED, H.CHANGING}
        ]
        assert ranks == sorted(ranks)


def test_link_without_mirrors_is_empty() -> None:
    assert link_health(LINK, []).health is H.EMPTY
    assert link_health(LinkInputs(state=L.ACTIVE, holds_mirrors=False), []).reason is R.SOURCE_SIDE


@pytest.mark.parametrize(("reachable", "health"), [(True, H.HEALTHY), (False, H.DEGRADED), (None, H.UNKNOWN)])
def test_cluster_with_a_healthy_link_has_the_health_of_its_last_check(reachable: bool | None, health: Health) -> None:
    assert cluster_health(reachable=reachable, links=[HEALTHY]).health is health


counts = st.integers(0, 3)
ages = st.sampled_from([0, 14_999, 15_000, 59_999, 60_000, 300_000, 10**9])
codes = st.sampled_from([(), ("RECORDS_LOST",), ("X", "Y")])
some_reports = st.builds(
    Reports,
    partitions=counts,
    staleness_ms=ages,
    silent=counts,
    blocked=counts,
    waiting=counts,
    stalled=counts,
    unknown_lags=counts,
    lag_ms=st.none() | ages,
)
some_mirrors = st.builds(
    MirrorInputs,
    state=st.sampled_from(MirrorState),
    state_age_ms=ages,
    link_state=st.sampled_from(LinkState),
    expected=st.booleans(),
    engine_error=st.booleans(),
    reports=some_reports,
    objective_ms=st.none() | ages,
    alarms=codes,
    errors=codes,
    task_errors=codes,
    deleting=st.booleans(),
)
some_links = st.builds(
    LinkInputs, state=st.sampled_from(LinkState), engine_error=st.booleans(), failing_tasks=counts, deleting=st.booleans()
)


def is_copied_and_known(mirror: MirrorInputs) -> bool:
    """Return whether everything is known and all is well, written without the rule."""
    seen = mirror.reports
    problems = (
        seen.blocked,
        seen.waiting,
        seen.stalled,
        seen.unknown_lags,
        mirror.alarms,
        mirror.errors,
        mirror.task_errors,
        mirror.deleting,
    )
    known = seen.partitions > 0 and seen.staleness_ms < (5_000 if mirror.engine_error else 15_000) and seen.lag_ms is not None
    states = (mirror.state, mirror.link_state) == (MirrorState.ACTIVE, LinkState.ACTIVE) and mirror.expected
    return known and states and not any(problems)


@given(some_mirrors)
def test_healthy_needs_everything_to_be_known_and_copied(mirror: MirrorInputs) -> None:
    if mirror_health(mirror).health is H.HEALTHY:
        assert is_copied_and_known(mirror)


@given(some_mirrors)
def test_mirror_that_is_to_be_copied_but_is_not_needs_attention(mirror: MirrorInputs) -> None:
    """Whatever else is known: silence of a minute is never hidden behind another status."""
    silent = replace(mirror, expected=True, reports=replace(mirror.reports, staleness_ms=60_000))

    assert mirror_health(silent).health is H.NOT_COPYING


@given(some_links, st.lists(some_mirrors, max_size=5))
def test_link_is_never_better_than_its_worst_mirror(link: LinkInputs, mirrors: list[MirrorInputs]) -> None:
    statuses = [mirror_health(mirror) for mirror in mirrors]

    found = link_health(link, statuses)

    assert found.severity <= min((status.severity for status in statuses), default=found.severity)
    if found.health is H.HEALTHY:
        assert any(map(is_copied_and_known, mirrors))
        assert link.state is LinkState.ACTIVE
        assert not link.engine_error


def test_worst_of_two_does_not_depend_on_their_order() -> None:
    for first, second in product(Health, repeat=2):
        pair = [HealthStatus(health=health, reason=R.COPYING) for health in (first, second)]
        assert worst(pair, empty=R.NO_LINKS).health is worst(pair[::-1], empty=R.NO_LINKS).health


# --- steady -----------------------------------------------------------------------------------------------------------

AGES = st.sampled_from([0, 500, 4_000, 9_000, 14_000, 30_000, 55_000, 100_000, 295_000, 3_600_000])


@given(
    base=st.sampled_from([case[0] for case in MIRRORS]),
    state_age_ms=AGES,
    staleness_ms=AGES,
    unseen_ms=st.integers(0, 14_999),
    lag_ms=st.none() | AGES,
    objective_ms=st.none() | st.sampled_from([1_000, 20_000, 100_000]),
    waiting=st.integers(0, 1),
    engine_error=st.booleans(),
    later_ms=st.integers(0, STEADY_MS),
)
def test_steady_health_does_not_change_by_time_alone(
    base: MirrorInputs,
    state_age_ms: int,
    staleness_ms: int,
    unseen_ms: int,
    lag_ms: int | None,
    objective_ms: int | None,
    waiting: int,
    engine_error: bool,
    later_ms: int,
) -> None:
    ages = {"staleness_ms": staleness_ms, "unseen_ms": unseen_ms, "lag_ms": lag_ms, "waiting": waiting}
    mirror = replace(base, state_age_ms=state_age_ms, objective_ms=objective_ms, engine_error=engine_error, **reports(**ages))
    aged = replace(
        mirror.reports,
        staleness_ms=staleness_ms + later_ms,
        lag_ms=None if lag_ms is None else lag_ms + later_ms,
        stalled=int(mirror.reports.stalled or (lag_ms or 0) + later_ms >= 60_000 > (lag_ms or 0)),
        unknown_lags=int(unseen_ms + later_ms >= 15_000),
    )

    now = mirror_health(mirror)
    later = mirror_health(replace(mirror, state_age_ms=state_age_ms + later_ms, reports=aged))

    assert not now.steady or (later.health, later.reason) == (now.health, now.reason)


@pytest.mark.parametrize(
    ("changes", "steady"),
    [
        ({}, True),
        (reports(staleness_ms=4_999), True),
        (reports(staleness_ms=5_000), False),
        (reports(unseen_ms=5_000), False),
        (reports(lag_ms=None), True),
        (reports(lag_ms=70_000), False),
        (reports(lag_ms=70_000, stalled=1), True),
        ({"objective_ms": 20_000, **reports(lag_ms=12_000)}, False),
        ({"engine_error": True}, False),
        ({"state_age_ms": 10_000}, False),
        ({"expected": False, "state": S.PAUSED, **reports(lag_ms=70_000, staleness_ms=9_000)}, True),
    ],
)
def test_health_is_steady_unless_an_age_is_near_a_limit(changes: dict[str, Any], steady: bool) -> None:
    assert mirror_health(replace(COPIED, **changes)).steady is steady


def test_link_is_steady_only_if_each_mirror_is() -> None:
    failed = mirror_health(replace(IDLE, state=S.FAILED))
    overdue_soon = mirror_health(replace(COPIED, **reports(staleness_ms=9_000)))

    assert link_health(LINK, [failed, overdue_soon]).steady is False
    assert link_health(LINK, [failed]).steady is True
