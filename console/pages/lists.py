"""Pages of long lists: which rows are shown, and the addresses of the neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.http import HttpRequest

PAGE_SIZE = 50
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pager:
    """Where in a list one is; ``first`` and ``last`` count from 1."""

    first: int
    last: int
    total: int
    pages: int
    previous: str
    next: str


def page_of(request: HttpRequest, rows: Sequence[Row]) -> tuple[Sequence[Row], Pager]:
    """Cut the page that the query string asks for; a number beyond the end shows the last page."""
    pages = max(1, -(-len(rows) // PAGE_SIZE))
    asked = request.GET.get("page", "1")
    number = min(pages, max(1, int(asked) if asked.isdecimal() else 1))
    start = (number - 1) * PAGE_SIZE
    shown = rows[start : start + PAGE_SIZE]
    pager = Pager(
        first=start + 1 if rows else 0,
        last=start + len(shown),
        total=len(rows),
        pages=pages,
        previous=_address(request, number - 1) if number > 1 else "",
        next=_address(request, number + 1) if number < pages else "",
    )
    return shown, pager


def _address(request: HttpRequest, number: int) -> str:
    query = request.GET.copy()
    query.pop("seen", None)
    query["page"] = str(number)
    return f"{request.path}?{query.urlencode()}"
