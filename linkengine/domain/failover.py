"""Failover: whether a link is ready for it, failover drills, and the cost of a stop. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from linkengine.domain.groups import Committed, KnownOffset, OffsetFacts, without_nul
from linkengine.domain.health import Health
from linkengine.domain.messages import TranslatableText, gettext_lazy, gettext_noop, join_messages, ngettext_lazy
from linkengine.domain.names import MAX_TOPIC_LENGTH, SCRATCH_MARK
from linkengine.domain.states import StopReason

# --- readiness -----------------------------------------------------------------------------------------------------------
# Derived from stored facts; no cluster is contacted. A fact that is missing or too old is unknown, and never counts as ready.


_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
DRILL_VALID_MS = 90 * _DAY_MS  # an older drill says little about now
VERIFIED_VALID_MS = 7 * _DAY_MS
GROUPS_VALID_MS = 15 * _MINUTE_MS
RETENTION_SHARE = 2  # the lag must be below this fraction of the retention, by time and by size: one half
# The texts are also those of the console's durations.
_SPANS = ((_DAY_MS, "%(number)s d"), (60 * _MINUTE_MS, "%(number)s h"), (_MINUTE_MS, "%(number)s min"), (1000, "%(number)s s"))


class ReadyState(StrEnum):
    """State of a fact, and of all facts together: the worst of them."""

    READY = "READY"
    UNKNOWN = "UNKNOWN"
    NOT_READY = "NOT_READY"


class ReadyFact(StrEnum):
    """Fact on which readiness depends."""

    HEALTH = "HEALTH"
    DRILL = "DRILL"
    VERIFICATION = "VERIFICATION"
    RIGHTS = "RIGHTS"
    GROUPS = "GROUPS"
    RETENTION = "RETENTION"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """Stored facts about a link and the mirrors that a failover would stop. Ages are in milliseconds; None is unknown."""

    mirrors: int
    health: Health = Health.UNKNOWN  # of the link and these mirrors
    drill_passed: bool | None = None  # the last finished drill; None: there is none
    drill_age_ms: int | None = None
    not_drilled: int = 0  # mirrors that the last drill did not include
    differing: int = 0  # mirrors with records that differ
    never_compared: int = 0  # mirrors of which no range was compared
    partly_verified: int = 0  # mirrors of which more offsets are not verified than a run compares, or an unknown number
    compared_age_ms: int | None = None  # of the mirror whose last comparison is the oldest
    source_reached: bool = False  # the link has reached its source at least once
    missing_rights: int = 0  # errors that say so: of the link, its tasks and its mirrors
    groups_synced: bool = False  # consumer offset sync is on
    groups: int = 0  # consumer groups to sync
    groups_failing: int = 0
    groups_age_ms: int | None = None  # since the last run without an error
    lag_ms: int | None = None  # time lag of the worst partition
    retention_ms: int | None = None  # the shortest of the source topics; -1: unlimited
    size_limited: int = 0  # mirrors whose source topic has a known retention.bytes
    beyond_size: int = 0  # of these, those with a partition whose lag is not below half of it
    unknown_size: int = 0  # of these, those whose lag in bytes is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFound:
    """A fact with its state and its part of the sentence."""

    fact: ReadyFact
    state: ReadyState
    text: TranslatableText


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The readiness of a link in one sentence, and the facts behind it."""

    state: ReadyState
    sentence: TranslatableText
    facts: tuple[FactFound, ...] = ()


_READY, _UNKNOWN, _NOT = ReadyState.READY, ReadyState.UNKNOWN, ReadyState.NOT_READY
_Found = tuple[ReadyState, TranslatableText]


def readiness(stored: StoredFacts) -> Readiness:
    """Return whether the link could be failed over now, as far as the stored facts show."""
    if not stored.mirrors:
        return Readiness(state=_UNKNOWN, sentence=gettext_lazy("There is no mirror topic to fail over."))
    facts = tuple(FactFound(fact=fact, state=found[0], text=found[1]) for fact, found in _found(stored))
    states = {fact.state for fact in facts}
    state = next(state for state in (_NOT, _UNKNOWN, _READY) if state in states)
    return Readiness(state=state, sentence=_sentence(state, stored.mirrors, facts), facts=facts)


def _sentence(state: ReadyState, mirrors: int, facts: Sequence[FactFound]) -> TranslatableText:
    found = join_messages("; ", (fact.text for fact in facts))
    if state is _READY:
        return ngettext_lazy(
            "Ready to fail over %(count)s mirror topic: %(facts)s.",
            "Ready to fail over %(count)s mirror topics: %(facts)s.",
            mirrors,
            facts=found,
        )
    if state is _UNKNOWN:
        return ngettext_lazy(
            "Readiness to fail over %(count)s mirror topic is unknown: %(facts)s.",
            "Readiness to fail over %(count)s mirror topics is unknown: %(facts)s.",
            mirrors,
            facts=found,
        )
    return ngettext_lazy(
        "Not ready to fail over %(count)s mirror topic: %(facts)s.",
        "Not ready to fail over %(count)s mirror topics: %(facts)s.",
        mirrors,
        facts=found,
    )


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
    Health.HEALTHY: (_READY, gettext_lazy("all mirror topics are healthy")),
    Health.NOT_COPYING: (_NOT, gettext_lazy("a mirror topic is not copied")),
    Health.DEGRADED: (_NOT, gettext_lazy("the link or a mirror topic is degraded")),
    Health.PAUSED: (_NOT, gettext_lazy("the link or a mirror topic is paused")),
    Health.CHANGING: (_UNKNOWN, gettext_lazy("a transition is in progress")),
}


def _health(stored: StoredFacts) -> _Found:
    return _HEALTH.get(stored.health, (_UNKNOWN, gettext_lazy("the health of the link is unknown")))


def _drill(stored: StoredFacts) -> _Found:
    if stored.drill_passed is None:
        return _UNKNOWN, gettext_lazy("no failover drill has finished")
    age = _age(stored.drill_age_ms)
    if not stored.drill_passed:
        return _NOT, gettext_lazy("the last failover drill failed %(age)s", age=age)
    if not _is_recent(stored.drill_age_ms, DRILL_VALID_MS):
        return _UNKNOWN, gettext_lazy("the last failover drill passed %(age)s, too long ago to count", age=age)
    if stored.not_drilled:
        return _UNKNOWN, ngettext_lazy(
            "the last failover drill passed %(age)s without %(count)s mirror topic",
            "the last failover drill passed %(age)s without %(count)s mirror topics",
            stored.not_drilled,
            age=age,
        )
    return _READY, gettext_lazy("the last failover drill passed %(age)s", age=age)


def _verification(stored: StoredFacts) -> _Found:
    if stored.differing:
        return _NOT, ngettext_lazy(
            "records of %(count)s mirror topic differ from the source",
            "records of %(count)s mirror topics differ from the source",
            stored.differing,
        )
    if stored.never_compared:
        return _UNKNOWN, ngettext_lazy(
            "%(count)s mirror topic never verified", "%(count)s mirror topics never verified", stored.never_compared
        )
    if stored.partly_verified:
        return _UNKNOWN, ngettext_lazy(
            "%(count)s mirror topic verified only in part",
            "%(count)s mirror topics verified only in part",
            stored.partly_verified,
        )
    age = _age(stored.compared_age_ms)
    if not _is_recent(stored.compared_age_ms, VERIFIED_VALID_MS):
        return _UNKNOWN, gettext_lazy("a mirror topic was last verified %(age)s", age=age)
    return _READY, gettext_lazy("records of all mirror topics verified without a difference, least recently %(age)s", age=age)


def _rights(stored: StoredFacts) -> _Found:
    if stored.missing_rights:
        return _NOT, ngettext_lazy(
            "rights are missing (%(count)s error)", "rights are missing (%(count)s errors)", stored.missing_rights
        )
    if not stored.source_reached:
        return _UNKNOWN, gettext_lazy("rights are unknown because the source was never reached")
    return _READY, gettext_lazy("no missing right is known")


def _groups(stored: StoredFacts) -> _Found:
    if not stored.groups_synced:
        return _READY, gettext_lazy("consumer offsets are not synced, as configured")
    if stored.groups_failing:
        return _NOT, ngettext_lazy(
            "%(count)s consumer group not synced because of errors",
            "%(count)s consumer groups not synced because of errors",
            stored.groups_failing,
        )
    age = _age(stored.groups_age_ms)
    if not _is_recent(stored.groups_age_ms, GROUPS_VALID_MS):
        return _UNKNOWN, gettext_lazy("consumer groups were last synced %(age)s", age=age)
    return _READY, ngettext_lazy(
        "%(count)s consumer group synced %(age)s", "%(count)s consumer groups synced %(age)s", stored.groups, age=age
    )


def _retention(stored: StoredFacts) -> _Found:
    if stored.beyond_size:
        return _NOT, ngettext_lazy(
            "the lag of %(count)s mirror topic is not below half of the source's retention.bytes, and the source may delete "
            "records before they are copied",
            "the lag of %(count)s mirror topics is not below half of the source's retention.bytes, and the source may delete "
            "records before they are copied",
            stored.beyond_size,
        )
    by_time = _retention_by_time(stored)
    if by_time[0] is _READY and stored.unknown_size:
        return _UNKNOWN, ngettext_lazy(
            "the lag of %(count)s mirror topic in bytes is unknown, and its source has a retention.bytes",
            "the lag of %(count)s mirror topics in bytes is unknown, and their sources have a retention.bytes",
            stored.unknown_size,
        )
    return by_time


_UNLIMITED = gettext_noop("time lag %(lag)s with unlimited retention at the source")
_BY_SIZE = gettext_noop("time lag %(lag)s with retention by size only at the source")


def _retention_by_time(stored: StoredFacts) -> _Found:
    if stored.lag_ms is None:
        return _UNKNOWN, gettext_lazy("the time lag is unknown")
    lag = _span(stored.lag_ms)
    if stored.retention_ms is None:
        return _UNKNOWN, gettext_lazy("time lag %(lag)s, and the retention of the source is unknown", lag=lag)
    if stored.retention_ms < 0:
        return _READY, gettext_lazy(_BY_SIZE if stored.size_limited else _UNLIMITED, lag=lag)
    retention = _span(stored.retention_ms)
    if stored.lag_ms * RETENTION_SHARE >= stored.retention_ms:
        return _NOT, gettext_lazy(
            "time lag %(lag)s, and the source may delete records after %(retention)s, before they are copied",
            lag=lag,
            retention=retention,
        )
    return _READY, gettext_lazy("time lag %(lag)s with %(retention)s of retention at the source", lag=lag, retention=retention)


def _is_recent(age_ms: int | None, most_ms: int) -> bool:
    """Return False for an unknown age, and for a time ahead of the clock."""
    return age_ms is not None and 0 <= age_ms <= most_ms


def _age(age_ms: int | None) -> TranslatableText:
    if age_ms is None or age_ms < 0:
        return gettext_lazy("at an unknown time")
    return gettext_lazy("%(span)s ago", span=_span(age_ms))


def _span(span_ms: int) -> TranslatableText:
    for length_ms, text in _SPANS:
        if span_ms >= length_ms:
            return gettext_lazy(text, number=span_ms // length_ms)
    return gettext_lazy("%(number)s ms", number=span_ms) if span_ms else gettext_lazy("%(number)s s", number=0)


# --- drills --------------------------------------------------------------------------------------------------------------
# Names of the scratch copies, where consumer groups would resume, and the drill's result.


_NAMED_AT_MOST = 5
BATCH = 20  # topics drilled at the same time: each is a second copy of its source at the destination
CLAMPED_LISTED = 50  # offsets listed per group and topic


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRow:
    """Result of a scratch copy. Unknown is None, never 0."""

    mirror_topic_name: str
    scratch_topic_name: str
    rto_ms: int | None = None
    rpo_ms: int | None = None
    records_not_copied: int | None = None
    records_compared: int | None = None
    differences: int | None = None
    writable: bool = False  # producers were allowed, and a record written to every partition was read back
    problem: str = ""
    note: str = ""  # a limitation of the result that does not fail it

    @property
    def passed(self) -> bool:
        """Whether a real failover of this topic would have succeeded, as far as records can show."""
        return self.writable and self.differences == 0 and self.records_compared is not None and not self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """Where a consumer group would resume on a topic after a failover. Unclamped partitions keep the source's offset."""

    group: str  # its name at the destination
    mirror_topic_name: str
    partitions: int  # with a committed offset of the group
    clamped: int  # partitions whose committed offset is beyond the scratch copy's end
    offsets_set_back: int  # in all clamped partitions together
    unknown: int  # partitions whose end is unknown
    clamped_offsets: Sequence[Mapping[str, int]]  # partition, source_offset, offset_after; CLAMPED_LISTED at most


def groups_after(
    topic: str, known: Iterable[KnownOffset], *, starts: Mapping[int, int | None], ends: Mapping[int, int | None]
) -> list[GroupRow]:
    """Return where the groups of a mirror topic would resume if the mirror had ended where its scratch copy did."""
    by_group: dict[str, list[tuple[KnownOffset, int | None]]] = {}
    for offset in sorted(known, key=lambda offset: (offset.group, offset.partition)):
        after = _offset_after(offset.source, start=starts.get(offset.partition), end=ends.get(offset.partition))
        by_group.setdefault(offset.group, []).append((offset, after))
    return [_group_row(topic, group, offsets) for group, offsets in by_group.items()]


def _group_row(topic: str, group: str, offsets: Sequence[tuple[KnownOffset, int | None]]) -> GroupRow:
    clamped = [
        {"partition": offset.partition, "source_offset": offset.source, "offset_after": after}
        for offset, after in offsets
        if after is not None and after < offset.source
    ]
    return GroupRow(
        group=without_nul(group),
        mirror_topic_name=topic,
        partitions=len(offsets),
        clamped=len(clamped),
        offsets_set_back=sum(row["source_offset"] - row["offset_after"] for row in clamped),
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
    """Return (problem, note) about what a comparison proves: ``held`` offsets of the source, ``compared`` records, by
    partition.

    None in ``held`` is unknown.

    A partition without a compared record proves nothing, unless it holds no records: it is empty, or it was read from its
    beginning, as those in ``whole``, and all its offsets are those of markers and aborted records.
    """
    unproven = [number for number in sorted(held) if held[number] != 0 and not compared.get(number) and number not in whole]
    if unproven:
        named = ", ".join(str(number) for number in unproven[:_NAMED_AT_MOST])
        named += " and more" if len(unproven) > _NAMED_AT_MOST else ""
        problem = (
            f"Nothing was compared in partition {named}: the scratch copy, which began at {start}, has no record that the "
            "source holds there. Repeat the drill with start earliest, or while records arrive."
        )
        return problem, ""
    return ("", "") if any(held.values()) else ("", "The source is empty. There was nothing to compare.")


def scratch_suffix(drill: int) -> str:
    """Return the suffix of a drill's scratch copies; ``names.is_internal`` recognizes it, so that no filter mirrors them."""
    return f"{SCRATCH_MARK}{drill}"


def scratch_name(topic: str, *, drill: int) -> str:
    """Return the name of the scratch copy of ``topic``: valid for Kafka, and unlikely to be chosen by a user."""
    suffix = scratch_suffix(drill)
    return f"{topic[: MAX_TOPIC_LENGTH - len(suffix)]}{suffix}"


def repeated(names: Iterable[str], *, drill: int) -> set[str]:
    """Return the topics whose scratch copies would have the same name, because long names are cut."""
    seen: dict[str, str] = {}
    clashes = set()
    for name in names:
        other = seen.setdefault(scratch_name(name, drill=drill), name)
        if other != name:
            clashes |= {other, name}
    return clashes


def all_passed(rows: Sequence[DrillRow]) -> bool:
    """Return whether the drill passed: it has topics, and all of them passed."""
    return bool(rows) and all(row.passed for row in rows)


# --- cost of a stop ------------------------------------------------------------------------------------------------------
# Records left behind, age of the loss (RPO), and time until the topic is writable (RTO), from the last observations. Unknown is
# None, never 0: an unknown loss is reported as unknown. Times are Unix milliseconds.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAtStop:
    """One partition at the time of the fence."""

    partition: int
    mirrored_end: int | None  # offset after the last mirrored record; None: the partition was never set up
    source_end: int | None  # failover: the source's last observed high watermark; promotion: its end after the fence
    source_seen_at_ms: int | None
    caught_up_at_ms: int | None  # when the mirror last held everything the source had
    last_timestamp_ms: int | None  # newest timestamp among the mirrored records
    stable_end: int | None = None  # failover: last stable offset; offsets from there to source_end are in open transactions
    outdated: bool = False  # the source was last observed so long before the stop that its end does not show the loss

    @property
    def not_copied(self) -> int | None:
        """Number of offsets that the source had and the mirror lacks; None if the source's end is unknown."""
        return None if self.outdated else self.missing_when_seen

    @property
    def missing_when_seen(self) -> int | None:
        """Number of offsets that the mirror lacked when the source was last observed, however long ago: a lower bound."""
        if self.mirrored_end is None or self.source_end is None:
            return None
        return max(0, self.source_end - self.mirrored_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCost:
    """The cost of a stop in three numbers.

    ``records_not_copied`` counts offsets, including those behind an open transaction, with markers and aborted records among
    them. It is None if the source was not observed shortly before the stop. ``rpo_ms`` is an upper bound: the mirror has
    everything that the source had at that age before the stop.
    """

    records_not_copied: int | None
    rpo_ms: int | None
    rto_ms: int


def cost_of_stop(
    partitions: Sequence[PartitionAtStop], *, reason: StopReason, requested_at_ms: int, writable_at_ms: int
) -> StopCost:
    """Return the cost of a stop.

    A promotion fences a mirror without lag and then reads the source's end once more: only that shows whether producers
    continued to write to the source. Its RPO is measured up to the end, since copying continued after the request.
    """
    promoted = reason is StopReason.PROMOTE
    lost, until_ms = _sum(partition.not_copied for partition in partitions), writable_at_ms if promoted else requested_at_ms
    caught_up = [partition.caught_up_at_ms for partition in partitions]
    ages = [None if at_ms is None else max(0, until_ms - at_ms) for at_ms in caught_up]
    rpo_ms = 0 if promoted and lost == 0 else _worst(ages)
    return StopCost(records_not_copied=lost, rpo_ms=rpo_ms, rto_ms=max(0, writable_at_ms - requested_at_ms))


def estimated_bytes(*, lag: int | None, bytes_copied: int, records_copied: int) -> int | None:
    """Return a lag in bytes, estimated from the mean size of copied records; None if lag or mean size is unknown."""
    if lag is None or (lag and not records_copied):
        return None
    return round(lag * bytes_copied / records_copied) if lag else 0


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if not known or None in known else sum(count for count in known if count is not None)


def _worst(ages: Sequence[int | None]) -> int | None:
    return None if not ages or None in ages else max(age for age in ages if age is not None)
