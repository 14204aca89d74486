"""The columns of the mirror table; the order is part of the address and carried out by the query."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading; ``url`` sorts by it, ``sorted`` says how it is sorted now."""

    label: str
    css: str = ""
    url: str = ""
    sorted: str = ""


_COLUMNS = (
    ("Mirror topic", "name", ""),
    ("Source topic", "", "only-wide"),
    ("State", "state", ""),
    ("Max lag", "lag", "number"),
    ("Lag in time", "age", "number"),
    ("Throughput", "rate", "number only-wide"),
    ("Partitions", "", "number only-wide"),
    ("State since", "since", "only-wide"),
)


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
