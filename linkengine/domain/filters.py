"""Name filters of topics and groups: ``{"topicFilters": [{"name", "patternType", "filterType"}, ...]}``.

The order of the filters does not matter: a name is included if at least one INCLUDE matches it and no EXCLUDE does. An empty
list includes nothing. The name ``*`` with patternType LITERAL matches everything, as in Kafka's ACLs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from linkengine.domain.errors import ErrorCode, LinkEngineError

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
