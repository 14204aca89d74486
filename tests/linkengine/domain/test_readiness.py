"""Failover readiness from stored facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from linkengine.domain.failover import ReadyFact, ReadyState, StoredFacts, readiness
from linkengine.domain.health import Health

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
READY, UNKNOWN, NOT = ReadyState.READY, ReadyState.UNKNOWN, ReadyState.NOT_READY
ALL_WELL = StoredFacts(
    mirrors=12,
    health=Health.HEALTHY,
    drill_passed=True,
    drill_age_ms=3 * DAY,
    compared_age_ms=5 * MINUTE,
    source_reached=True,
    groups_synced=True,
    groups=4,
    groups_age_ms=20_000,
    lag_ms=2_000,
    retention_ms=7 * DAY,
)

CHANGES: list[tuple[dict[str, Any], ReadyFact, ReadyState, str]] = [
    ({"health": Health.NOT_COPYING}, ReadyFact.HEALTH, NOT, "a mirror topic is not copied"),
    ({"health": Health.DEGRADED}, ReadyFact.HEALTH, NOT, "is degraded"),
    ({"health": Health.PAUSED}, ReadyFact.HEALTH, NOT, "is paused"),
    ({"health": Health.CHANGING}, ReadyFact.HEALTH, UNKNOWN, "a transition is in progress"),
    ({"health": Health.UNKNOWN}, ReadyFact.HEALTH, UNKNOWN, "the health of the link is unknown"),
    ({"drill_passed": None}, ReadyFact.DRILL, UNKNOWN, "no failover drill has finished"),
    ({"drill_passed": False}, ReadyFact.DRILL, NOT, "the last failover drill failed 3 d ago"),
    ({"drill_age_ms": 91 * DAY}, ReadyFact.DRILL, UNKNOWN, "passed 91 d ago, too long ago"),
    ({"drill_age_ms": None}, ReadyFact.DRILL, UNKNOWN, "passed at an unknown time"),
    ({"drill_age_ms": -1}, ReadyFact.DRILL, UNKNOWN, "passed at an unknown time"),
    ({"not_drilled": 1}, ReadyFact.DRILL, UNKNOWN, "without 1 mirror topic"),
    ({"differing": 2}, ReadyFact.VERIFICATION, NOT, "records of 2 mirror topics differ"),
    ({"differing": 1, "never_compared": 1}, ReadyFact.VERIFICATION, NOT, "records of 1 mirror topic differ"),
    ({"never_compared": 3}, ReadyFact.VERIFICATION, UNKNOWN, "3 mirror topics never verified"),
    ({"partly_verified": 1}, ReadyFact.VERIFICATION, UNKNOWN, "1 mirror topic verified only in part"),
    ({"partly_verified": 1, "differing": 2}, ReadyFact.VERIFICATION, NOT, "records of 2 mirror topics differ"),
    ({"compared_age_ms": 8 * DAY}, ReadyFact.VERIFICATION, UNKNOWN, "last verified 8 d ago"),
    ({"compared_age_ms": None}, ReadyFact.VERIFICATION, UNKNOWN, "last verified at an unknown time"),
    ({"missing_rights": 1}, ReadyFact.RIGHTS, NOT, "rights are missing (1 error)"),
    ({"source_reached": False}, ReadyFact.RIGHTS, UNKNOWN, "rights are unknown"),
    ({"groups_synced": False}, ReadyFact.GROUPS, READY, "consumer offsets are not synced, as configured"),
    ({"groups_failing": 1}, ReadyFact.GROUPS, NOT, "1 consumer group not synced because of errors"),
    ({"groups_age_ms": None}, ReadyFact.GROUPS, UNKNOWN, "last synced at an unknown time"),
    ({"groups_age_ms": HOUR}, ReadyFact.GROUPS, UNKNOWN, "last synced 1 h ago"),
    ({"lag_ms": None}, ReadyFact.RETENTION, UNKNOWN, "the time lag is unknown"),
    ({"lag_ms": 0}, ReadyFact.RETENTION, READY, "time lag 0 s with 7 d of retention"),
    ({"retention_ms": None}, ReadyFact.RETENTION, UNKNOWN, "the retention of the source is unknown"),
    ({"retention_ms": -1}, ReadyFact.RETENTION, READY, "unlimited retention"),
    ({"retention_ms": -1, "size_limited": 1}, ReadyFact.RETENTION, READY, "time lag 2 s with retention by size only"),
    ({"size_limited": 2, "beyond_size": 1}, ReadyFact.RETENTION, NOT, "the lag of 1 mirror topic is not below half"),
    ({"size_limited": 2, "unknown_size": 2}, ReadyFact.RETENTION, UNKNOWN, "the lag of 2 mirror topics in bytes is unknown"),
    ({"lag_ms": 4 * DAY, "size_limited": 1, "unknown_size": 1}, ReadyFact.RETENTION, NOT, "may delete records after 7 d"),
    ({"lag_ms": 4 * DAY}, ReadyFact.RETENTION, NOT, "may delete records after 7 d"),
    ({"lag_ms": HOUR, "retention_ms": 2 * HOUR}, ReadyFact.RETENTION, NOT, "may delete records after 2 h"),
    ({"lag_ms": HOUR, "retention_ms": 3 * HOUR}, ReadyFact.RETENTION, READY, "3 h of retention"),
]


def test_readiness_joins_all_facts_in_a_single_sentence() -> None:
    found = readiness(ALL_WELL)

    assert found.state is READY
    assert found.sentence == (
        "Ready to fail over 12 mirror topics: all mirror topics are healthy; the last failover drill passed 3 d ago; records "
        "of all mirror topics verified without a difference, least recently 5 min ago; no missing right is known; 4 consumer "
        "groups synced 20 s ago; time lag 2 s with 7 d of retention at the source."
    )


@pytest.mark.parametrize(("change", "fact", "state", "text"), CHANGES)
def test_readiness_follows_from_the_only_fact_that_is_not_ready(
    change: dict[str, Any], fact: ReadyFact, state: ReadyState, text: str
) -> None:
    found = readiness(replace(ALL_WELL, **change))

    assert found.state is state
    assert text in found.sentence
    assert {row.fact: row.state for row in found.facts} == dict.fromkeys(ReadyFact, READY) | {fact: state}


def test_a_problem_counts_more_than_an_unknown_fact() -> None:
    found = readiness(replace(ALL_WELL, drill_passed=None, differing=1))

    assert found.state is NOT
    assert found.sentence.startswith("Not ready to fail over 12 mirror topics: ")


def test_nothing_known_is_never_ready() -> None:
    found = readiness(StoredFacts(mirrors=1))

    assert found.state is UNKNOWN
    assert found.sentence.startswith("Readiness to fail over 1 mirror topic is unknown: ")


def test_link_without_mirrors_has_nothing_to_fail_over() -> None:
    found = readiness(replace(ALL_WELL, mirrors=0))

    assert (found.state, found.sentence, found.facts) == (UNKNOWN, "There is no mirror topic to fail over.", ())
