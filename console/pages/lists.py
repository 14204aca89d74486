"""Pages of long lists: which rows are shown, and the addresses of the neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.http import HttpRequest

PAGE_SIZE = 50
LAST_PAGE = 1_000_000  # no list is longer; larger numbers would only trouble the database
MOST_DIGITS = 12  # of a number that is read; Python refuses to read thousands of them
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
    start = min(start_of(request), max(0, (len(rows) - 1) // PAGE_SIZE * PAGE_SIZE))
    shown = rows[start : start + PAGE_SIZE]
    return shown, pager(request, start=start, shown=len(shown), total=len(rows))


def start_of(request: HttpRequest) -> int:
    """Answer how many rows come before the page that the query string asks for."""
    asked = request.GET.get("page", "1")
    return (max(1, min(LAST_PAGE, int(asked[:MOST_DIGITS]))) - 1) * PAGE_SIZE if asked.isdecimal() else 0


def pager(request: HttpRequest, *, start: int, shown: int, total: int) -> Pager:
    """Describe a page that somebody else has cut."""
    number, pages = start // PAGE_SIZE + 1, max(1, -(-total // PAGE_SIZE))
    return Pager(
        first=start + 1 if shown else 0,
        last=start + shown,
        total=total,
        pages=pages,
        previous=_address(request, number - 1) if number > 1 else "",
        next=_address(request, number + 1) if number < pages else "",
    )


def _address(request: HttpRequest, number: int) -> str:
    query = request.GET.copy()
    query.pop("seen", None)
    query["page"] = str(number)
    return f"{request.path}?{query.urlencode()}"
