"""Names of topics, links and mirrors; name filters; namespaces of topics with a common prefix (KIP-986). Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.states import LinkState, MirrorState

# --- names ---------------------------------------------------------------------------------------------------------------
# Topic rules are those of Kafka's ``Topic`` class (249 characters, ``[a-zA-Z0-9._-]``, not ``.`` or ``..``). Every ``check_…``
# raises LinkEngineError with a message that can be shown at the form field. ``linkrules`` validates link prefixes.


MAX_TOPIC_LENGTH = 249
MAX_LINK_LENGTH = 200
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
INTERNAL_PREFIXES = ("__", "_confluent")
INTERNAL_NAMES = frozenset({"_schemas", "confluent-audit-log-events"})
SCRATCH_MARK = ".clusterlink-drill-"  # in the names of scratch copies of a failover drill (``domain.failover``)
SCRATCH = re.compile(re.escape(SCRATCH_MARK) + "[0-9]+$")


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC if Kafka would refuse ``name``."""
    problem = _topic_problem(name)
    if problem:
        raise LinkEngineError(ErrorCode.INVALID_TOPIC, problem)


def _topic_problem(name: str) -> str:
    if not name:
        return gettext_lazy("The topic name is empty.")
    if name in {".", ".."}:
        return gettext_lazy("The topic name cannot be %(name)s.", name=repr(name))
    if len(name) > MAX_TOPIC_LENGTH:
        return gettext_lazy(
            "The topic name has %(count)s characters, and Kafka allows %(most)s. Use a shorter name.",
            count=len(name),
            most=MAX_TOPIC_LENGTH,
        )
    if not _LEGAL.fullmatch(name):
        return gettext_lazy(
            "The topic name %(name)s has characters that Kafka refuses. Use only letters, digits, '.', '_' and '-'.",
            name=repr(name),
        )
    return ""


def check_link_name(name: str) -> None:
    """Raise INVALID_REQUEST_ERROR if ``name`` cannot name a link."""
    problem = _link_problem(name)
    if problem:
        raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, problem)


def _link_problem(name: str) -> str:
    if not name:
        return gettext_lazy("The link name is empty.")
    # "-" means "all links" in REST; clients remove segments of dots from a URL, so such a link could not be requested
    if name in {".", "..", "-"}:
        return gettext_lazy("The link name cannot be %(name)s.", name=repr(name))
    if len(name) > MAX_LINK_LENGTH:
        return gettext_lazy(
            "The link name has %(count)s characters, and %(most)s are allowed. Use a shorter name.",
            count=len(name),
            most=MAX_LINK_LENGTH,
        )
    if not _LEGAL.fullmatch(name):
        return gettext_lazy(
            "The link name %(name)s has characters that are not allowed. Use only letters, digits, '.', '_' and '-'.",
            name=repr(name),
        )
    return ""


def mirror_name(source_topic: str, *, prefix: str = "") -> str:
    """Return the mirror's name; raise INVALID_TOPIC if the prefix makes it too long."""
    name = f"{prefix}{source_topic}"
    check_topic_name(name)
    return name


def is_internal(topic: str) -> bool:
    """Return whether ``topic`` is an internal topic of a cluster, which no filter mirrors."""
    return topic.startswith(INTERNAL_PREFIXES) or topic in INTERNAL_NAMES or bool(SCRATCH.search(topic))


# --- filters -------------------------------------------------------------------------------------------------------------
# ``{"topicFilters": [{"name", "patternType", "filterType"}, ...]}``, for topics and groups. The order of the filters does not
# matter: a name is included if at least one INCLUDE matches it and no EXCLUDE does. An empty list includes nothing. The name
# ``*`` with patternType LITERAL matches everything, as in Kafka's ACLs.


WILDCARD = "*"
_FIELDS = frozenset({"name", "patternType", "filterType"})


class PatternType(StrEnum):
    """How a filter's name is matched."""

    LITERAL = "LITERAL"  # the whole name, or ``*`` for all
    PREFIXED = "PREFIXED"  # a prefix of the name


class FilterType(StrEnum):
    """Whether matching names are included or excluded."""

    INCLUDE = "INCLUDE"
    EXCLUDE = "EXCLUDE"  # takes precedence over every INCLUDE


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFilter:
    """One row of a filter list."""

    name: str
    pattern_type: PatternType = PatternType.LITERAL
    filter_type: FilterType = FilterType.INCLUDE

    def matches(self, name: str) -> bool:
        """Return whether the filter matches ``name``."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in {WILDCARD, name}


def chooses(filters: Iterable[NameFilter], name: str) -> bool:
    """Return whether ``name`` is included; EXCLUDE takes precedence."""
    kinds = {row.filter_type for row in filters if row.matches(name)}
    return FilterType.INCLUDE in kinds and FilterType.EXCLUDE not in kinds


def parse_filters(text: str, *, key: str = "topicFilters") -> tuple[NameFilter, ...]:
    """Parse a filter document (``key``: topicFilters or groupFilters); raise MISCONFIGURATION_ERROR naming row and field."""
    document = read_document(text)
    rows = document.get(key) if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise _wrong(f'The filters must be an object with the list "{key}", such as {{"{key}": []}}.')
    return tuple(_parse_row(row, number=number, key=key) for number, row in enumerate(rows, start=1))


def read_document(text: str) -> Any:
    """Parse a user's JSON; raise MISCONFIGURATION_ERROR if it is not valid, or too deeply nested."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(f"The filters are not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise _wrong("The filters are nested too deeply. Use a list of rows, which needs three levels.") from None


def known_filters(text: str, *, key: str = "topicFilters") -> tuple[NameFilter, ...]:
    """Parse a stored document for display; empty if there is none, or if an older version stored an invalid document."""
    try:
        return parse_filters(text, key=key) if text else ()
    except LinkEngineError:
        return ()


def filters_to_json(filters: Iterable[NameFilter], *, key: str = "topicFilters") -> str:
    """Return the JSON document that ``parse_filters`` parses."""
    rows = [{"name": row.name, "patternType": row.pattern_type, "filterType": row.filter_type} for row in filters]
    return json.dumps({key: rows})


def _parse_row(row: Any, *, number: int, key: str) -> NameFilter:
    where = f"{key} row {number}"
    if not isinstance(row, dict):
        raise _wrong(f"{where} is not an object.")
    unknown = sorted(set(row) - _FIELDS)
    if unknown:
        raise _wrong(f"{where} has unknown fields: {', '.join(unknown)}. Use {', '.join(sorted(_FIELDS))}.")
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise _wrong(f'{where} needs a "name": a topic name, a prefix of one, or {WILDCARD!r}.')
    pattern = _choice(PatternType, row.get("patternType"), where=f'{where} needs a "patternType"')
    kind = _choice(FilterType, row.get("filterType"), where=f'{where} needs a "filterType"')
    if name == WILDCARD and pattern is PatternType.PREFIXED:
        raise _wrong(f"{where}: {WILDCARD!r} matches everything only with patternType LITERAL.")
    return NameFilter(name=name, pattern_type=PatternType(pattern), filter_type=FilterType(kind))


def _choice(kind: type[StrEnum], value: Any, *, where: str) -> StrEnum:
    if not isinstance(value, str) or value.upper() not in kind.__members__:
        raise _wrong(f"{where}: one of {', '.join(kind)}, not {value!r}.")
    return kind(value.upper())


def _wrong(message: str) -> LinkEngineError:
    return LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, message)


# --- namespaces ----------------------------------------------------------------------------------------------------------
# The state of a namespace is derived from the measured lag of its mirrors: how far its topics follow another cluster. The worst
# mirror counts, and an unknown lag is never treated as in sync.


CAUGHT_UP_MS = 10_000  # up to this time lag a namespace is FOLLOWING, above it CATCHING_UP
_PENDING = frozenset({MirrorState.PENDING_SETUP, MirrorState.PENDING_SYNCHRONIZE, MirrorState.PENDING_MIRROR})


class ReplicationState(IntEnum):
    """Replication state of a namespace, worst first: the smallest of several counts."""

    DISCONNECTED = 0  # no link, or a mirror that is no longer copied to
    CATCHING_UP = 1  # behind, or a topic of the source has no mirror, or unknown
    FOLLOWING = 2  # at most a few seconds behind
    IN_SYNC = 3  # has everything that the source has


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """The part of a mirror's status that determines its namespace's state. Unknown is None, never 0."""

    state: MirrorState
    lag: int | None  # offsets in all partitions, including those behind open transactions
    lag_ms: int | None


def contains(prefix: str, topic: str) -> bool:
    """Return whether a topic is in the namespace; the empty prefix leaves out names that begin with an underscore."""
    return topic.startswith(prefix) if prefix else not topic.startswith("_")


def overlap(first: str, second: str) -> bool:
    """Return whether a topic could be in both namespaces."""
    return first.startswith(second) or second.startswith(first)


def replication_state(*, link: LinkState | None, mirrors: Iterable[Follower], unmirrored: int | None) -> ReplicationState:
    """Return the state of a namespace. An empty namespace with an active link is FOLLOWING: it has nothing to catch up with.

    ``unmirrored`` is the number of the source namespace's topics without a mirror, None if they could not be listed.
    """
    if link is not LinkState.ACTIVE:
        return ReplicationState.DISCONNECTED
    states = [_state_of(mirror) for mirror in mirrors]
    if unmirrored is None or unmirrored:
        states.append(ReplicationState.CATCHING_UP)
    return min(states, default=ReplicationState.FOLLOWING)


def _state_of(mirror: Follower) -> ReplicationState:
    if mirror.state in _PENDING:
        return ReplicationState.CATCHING_UP
    if mirror.state is not MirrorState.ACTIVE:
        return ReplicationState.DISCONNECTED
    if mirror.lag is None or mirror.lag_ms is None or mirror.lag_ms > CAUGHT_UP_MS:
        return ReplicationState.CATCHING_UP
    return ReplicationState.FOLLOWING if mirror.lag else ReplicationState.IN_SYNC
