"""The columns of the table of mirror topics. The sort order is part of the URL and applied by the query."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column heading. ``url`` sorts by the column; ``sorted`` is its current value of aria-sort."""

    label: str
    css: str = ""
    url: str = ""
    sorted: str = ""


_COLUMNS = (
    ("Mirror topic", "name", ""),
    ("Source topic", "", "only-wide"),
    ("Health", "health", ""),
    ("Max lag", "lag", "number"),
    ("Time lag", "age", "number"),
    ("Throughput", "rate", "number only-wide"),
    ("Partitions", "", "number only-wide"),
    ("State since", "since", "only-wide"),
)


def mirror_columns(request: HttpRequest, sort: str) -> list[Column]:
    """Return the headings. Numeric columns sort in descending order first, the others in ascending order."""
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
