"""The columns of the mirror table and how they sort; the order is part of the address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest

from console.presenters.states import mirror_look, severity

if TYPE_CHECKING:
    from console.queries.mirrors import MirrorSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading; ``url`` sorts by it, ``sorted`` says how it is sorted now."""

    label: str
    css: str = ""
    url: str = ""
    sorted: str = ""


_KEYS: dict[str, Callable[[MirrorSummary], Any]] = {
    "name": lambda one: one.mirror.name,
    "state": lambda one: (severity(mirror_look(one.mirror.state, one.mirror.stop_reason)), one.mirror.name),
    "lag": lambda one: -1 if one.max_lag is None else one.max_lag,
    "age": lambda one: -1 if one.lag_ms is None else one.lag_ms,
    "rate": lambda one: -1 if one.bytes_per_s is None else one.bytes_per_s,
    "since": lambda one: one.mirror.state_since,
}
_COLUMNS = (
    ("Mirror topic", "name", ""),
    ("Source topic", "", "only-wide"),
    ("State", "state", ""),
    ("Max lag", "lag", "number only-wide"),
    ("Lag in time", "age", "number only-wide"),
    ("Throughput", "rate", "number only-wide"),
    ("Partitions", "", "number only-wide"),
    ("State since", "since", "only-wide"),
)


def sorted_mirrors(mirrors: Sequence[MirrorSummary], sort: str) -> Sequence[MirrorSummary]:
    """Sort by a column, ``-`` in front for descending; otherwise by name, so that live rows stay where they are."""
    key = _KEYS.get(sort.removeprefix("-"), _KEYS["name"])
    return sorted(mirrors, key=key, reverse=sort.startswith("-"))


def mirror_columns(request: HttpRequest, sort: str) -> list[Column]:
    """Answer the headings; the first click on a figure shows the largest first, the second turns it round."""
    return [
        Column(
            label=label,
            css=css,
            url=_address(request, key, sort) if key else "",
            sorted=("descending" if sort.startswith("-") else "ascending") if key and sort.removeprefix("-") == key else "",
        )
        for label, key, css in _COLUMNS
    ]


def _address(request: HttpRequest, key: str, sort: str) -> str:
    figures = key in {"lag", "age", "rate"}
    first, second = (f"-{key}", key) if figures else (key, f"-{key}")
    query = request.GET.copy()
    for name in ("seen", "page"):
        query.pop(name, None)
    query["sort"] = second if sort == first else first
    return f"{request.path}?{query.urlencode()}"
