"""Whether a link could be failed over now, from stored facts. Pure functions; no cluster is contacted.

A fact that is missing or too old is unknown, and never counts as ready.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from linkengine.domain.health import Health

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
DRILL_VALID_MS = 90 * _DAY_MS  # an older drill says little about now
VERIFIED_VALID_MS = 7 * _DAY_MS
GROUPS_VALID_MS = 15 * _MINUTE_MS
RETENTION_SHARE = 2  # the time lag must be below this fraction of the retention: one half
_SPANS = ((_DAY_MS, "d"), (60 * _MINUTE_MS, "h"), (_MINUTE_MS, "min"), (1000, "s"))


class ReadyState(StrEnum):
    """State of a fact, and of all facts together: the worst of them."""

    READY = "READY"
    UNKNOWN = "UNKNOWN"
    NOT_READY = "NOT_READY"


class ReadyFact(StrEnum):
    """What readiness depends on."""

    HEALTH = "HEALTH"
    DRILL = "DRILL"
    VERIFICATION = "VERIFICATION"
    RIGHTS = "RIGHTS"
    GROUPS = "GROUPS"
    RETENTION = "RETENTION"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """Stored facts about a link and its mirrors that are not stopped. Ages are in milliseconds; None is unknown."""

    mirrors: int
    health: Health = Health.UNKNOWN  # of the link and these mirrors
    drill_passed: bool | None = None  # the last finished drill; None: there is none
    drill_age_ms: int | None = None
    not_drilled: int = 0  # mirrors that the last drill did not include
    differing: int = 0  # mirrors with records that differ
    never_compared: int = 0  # mirrors of which no range was compared
    compared_age_ms: int | None = None  # of the mirror whose last comparison is the oldest
    source_reached: bool = False  # the link has reached its source at least once
    missing_rights: int = 0  # errors that say so: of the link, its tasks and its mirrors
    groups_synced: bool = False  # consumer offset sync is on
    groups: int = 0  # consumer groups to sync
    groups_failing: int = 0
    groups_age_ms: int | None = None  # since the last run without an error
    lag_ms: int | None = None  # time lag of the worst partition
    retention_ms: int | None = None  # the shortest of the source topics; -1: unlimited


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFound:
    """A fact with its state and its part of the sentence."""

    fact: ReadyFact
    state: ReadyState
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The readiness of a link in one sentence, and the facts behind it."""

    state: ReadyState
    sentence: str
    facts: tuple[FactFound, ...] = ()


_READY, _UNKNOWN, _NOT = ReadyState.READY, ReadyState.UNKNOWN, ReadyState.NOT_READY
_Found = tuple[ReadyState, str]


def readiness(stored: StoredFacts) -> Readiness:
    """Return whether the link could be failed over now, as far as the stored facts show."""
    if not stored.mirrors:
        return Readiness(state=_UNKNOWN, sentence="There is no mirror topic to fail over.")
    facts = tuple(FactFound(fact=fact, state=found[0], text=found[1]) for fact, found in _found(stored))
    states = {fact.state for fact in facts}
    state = next(state for state in (_NOT, _UNKNOWN, _READY) if state in states)
    topics = _count(stored.mirrors, "mirror topic")
    lead = {
        _READY: f"Ready to fail over {topics}",
        _UNKNOWN: f"Readiness to fail over {topics} is unknown",
        _NOT: f"Not ready to fail over {topics}",
    }[state]
    return Readiness(state=state, sentence=f"{lead}: {'; '.join(fact.text for fact in facts)}.", facts=facts)


def _found(stored: StoredFacts) -> list[tuple[ReadyFact, _Found]]:
    checks: tuple[tuple[ReadyFact, Callable[[StoredFacts], _Found]], ...] = (
        (ReadyFact.HEALTH, _health),
        (ReadyFact.DRILL, _drill),
        (ReadyFact.VERIFICATION, _verification),
        (ReadyFact.RIGHTS, _rights),
        (ReadyFact.GROUPS, _groups),
        (ReadyFact.RETENTION, _retention),
    )
    return [(fact, check(stored)) for fact, check in checks]


_HEALTH: dict[Health, _Found] = {
    Health.HEALTHY: (_READY, "all mirror topics are healthy"),
    Health.NOT_COPYING: (_NOT, "a mirror topic is not copied"),
    Health.DEGRADED: (_NOT, "the link or a mirror topic is degraded"),
    Health.PAUSED: (_NOT, "the link or a mirror topic is paused"),
    Health.CHANGING: (_UNKNOWN, "a transition is in progress"),
}


def _health(stored: StoredFacts) -> _Found:
    return _HEALTH.get(stored.health, (_UNKNOWN, "the health of the link is unknown"))


def _drill(stored: StoredFacts) -> _Found:
    if stored.drill_passed is None:
        return _UNKNOWN, "no failover drill has finished"
    age = _age(stored.drill_age_ms)
    if not stored.drill_passed:
        return _NOT, f"the last failover drill failed {age}"
    if not _is_recent(stored.drill_age_ms, DRILL_VALID_MS):
        return _UNKNOWN, f"the last failover drill passed {age}, too long ago to count"
    if stored.not_drilled:
        return _UNKNOWN, f"the last failover drill passed {age} without {_count(stored.not_drilled, 'mirror topic')}"
    return _READY, f"the last failover drill passed {age}"


def _verification(stored: StoredFacts) -> _Found:
    if stored.differing:
        return _NOT, f"records of {_count(stored.differing, 'mirror topic')} differ from the source"
    if stored.never_compared:
        return _UNKNOWN, f"{_count(stored.never_compared, 'mirror topic')} never verified"
    age = _age(stored.compared_age_ms)
    if not _is_recent(stored.compared_age_ms, VERIFIED_VALID_MS):
        return _UNKNOWN, f"a mirror topic was last verified {age}"
    return _READY, f"records of all mirror topics verified without a difference, least recently {age}"


def _rights(stored: StoredFacts) -> _Found:
    if stored.missing_rights:
        return _NOT, f"rights are missing ({_count(stored.missing_rights, 'error')})"
    if not stored.source_reached:
        return _UNKNOWN, "rights are unknown because the source was never reached"
    return _READY, "no missing right is known"


def _groups(stored: StoredFacts) -> _Found:
    if not stored.groups_synced:
        return _READY, "consumer offsets are not synced, as configured"
    if stored.groups_failing:
        return _NOT, f"{_count(stored.groups_failing, 'consumer group')} not synced because of errors"
    if not _is_recent(stored.groups_age_ms, GROUPS_VALID_MS):
        return _UNKNOWN, f"consumer groups were last synced {_age(stored.groups_age_ms)}"
    return _READY, f"{_count(stored.groups, 'consumer group')} synced {_age(stored.groups_age_ms)}"


def _retention(stored: StoredFacts) -> _Found:
    if stored.lag_ms is None:
        return _UNKNOWN, "the time lag is unknown"
    lag = f"time lag {_span(stored.lag_ms)}"
    if stored.retention_ms is None:
        return _UNKNOWN, f"{lag}, and the retention of the source is unknown"
    if stored.retention_ms < 0:
        return _READY, f"{lag} with unlimited retention at the source"
    if stored.lag_ms * RETENTION_SHARE >= stored.retention_ms:
        return _NOT, f"{lag}, and the source may delete records after {_span(stored.retention_ms)}, before they are copied"
    return _READY, f"{lag} with {_span(stored.retention_ms)} of retention at the source"


def _is_recent(age_ms: int | None, most_ms: int) -> bool:
    """Return False for an unknown age, and for a time ahead of the clock."""
    return age_ms is not None and 0 <= age_ms <= most_ms


def _age(age_ms: int | None) -> str:
    return "at an unknown time" if age_ms is None or age_ms < 0 else f"{_span(age_ms)} ago"


def _span(span_ms: int) -> str:
    for length_ms, unit in _SPANS:
        if span_ms >= length_ms:
            return f"{span_ms // length_ms} {unit}"
    return f"{span_ms} ms" if span_ms else "0 s"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
