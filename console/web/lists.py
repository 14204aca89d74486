"""Lists: pagination, columns and sort order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

# --- pages and time spans ---------------------------------------------------------------------------------------------


PAGE_SIZE = 50
LAST_PAGE = 1_000_000  # keeps OFFSET within the range of the database
MOST_DIGITS = 12  # of a number in a URL; int() rejects strings of more than 4300 digits
Row = TypeVar("Row")
Stored = TypeVar("Stored", bound=Model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pager:
    """The position in a list. ``first`` and ``last`` count from 1."""

    first: int
    last: int
    total: int
    pages: int
    previous: str
    next: str


def page_of(request: HttpRequest, rows: Sequence[Row]) -> tuple[Sequence[Row], Pager]:
    """Return the rows and the pager of the requested page; the last page for a number beyond the end."""
    start = _start_within(request, total=len(rows), size=PAGE_SIZE)
    shown = rows[start : start + PAGE_SIZE]
    return shown, pager(request, start=start, shown=len(shown), total=len(rows))


def page_from(
    request: HttpRequest, found: QuerySet[Stored], *, size: int = PAGE_SIZE, name: str = "page"
) -> tuple[Sequence[Stored], Pager]:
    """Return the requested page of a QuerySet. ``name`` is the query parameter of the page number. At most two queries."""
    start = start_of(request, size=size, name=name)
    rows = list(found[start : start + size + 1])
    is_last = len(rows) <= size and (start == 0 or len(rows) > 0)  # then the rows show how many there are
    total = start + len(rows) if is_last else found.count()
    if start >= max(1, total):  # beyond the end
        start = _start_within(request, total=total, size=size, name=name)
        rows = list(found[start : start + size])
    shown = rows[:size]
    return shown, pager(request, start=start, shown=len(shown), total=total, size=size, name=name)


def start_of(request: HttpRequest, *, size: int = PAGE_SIZE, name: str = "page") -> int:
    """Return the number of rows before the requested page."""
    number = request.GET.get(name, "1")
    return (max(1, min(LAST_PAGE, int(number[:MOST_DIGITS]))) - 1) * size if number.isdecimal() else 0


def pager(request: HttpRequest, *, start: int, shown: int, total: int, size: int = PAGE_SIZE, name: str = "page") -> Pager:
    """Return the pager of a page whose rows the caller has selected."""
    number, pages = start // size + 1, max(1, -(-total // size))
    return Pager(
        first=start + 1 if shown else 0,
        last=start + shown,
        total=total,
        pages=pages,
        previous=_address(request, name, number - 1) if number > 1 else "",
        next=_address(request, name, number + 1) if number < pages else "",
    )


def _start_within(request: HttpRequest, *, total: int, size: int, name: str = "page") -> int:
    return min(start_of(request, size=size, name=name), max(0, (total - 1) // size * size))


def _address(request: HttpRequest, name: str, number: int) -> str:
    query = request.GET.copy()
    query.pop("seen", None)
    query[name] = str(number)
    return f"{request.path}?{query.urlencode()}"


def time_of(request: HttpRequest, name: str) -> datetime | None:
    """Return a time of the query string in UTC; None if there is none or it is malformed.

    It is in seconds since the epoch, or what a field of the type ``datetime-local`` submits, which has no time zone: then it is
    in that of the page.
    """
    text = request.GET.get(name, "").strip()
    try:
        if text.isascii() and text.isdecimal():
            return datetime.fromtimestamp(int(text), tz=UTC) if len(text) < MOST_DIGITS else None
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else timezone.make_aware(at)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def range_fields(start: datetime | None, end: datetime | None) -> dict[str, str]:
    """Return the template context of the fields From and To, in the time zone of the page."""
    shown = {"range_from": start, "range_to": end}
    values = {name: f"{timezone.localtime(at):%Y-%m-%dT%H:%M}" if at else "" for name, at in shown.items()}
    return {**values, "range_zone": timezone.get_current_timezone_name()}


# --- columns of the table of mirror topics ----------------------------------------------------------------------------
#
# The sort order is part of the URL and applied by the query.


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
            url=_column_address(request, key, sort) if key else "",
            sorted=("descending" if sort.startswith("-") else "ascending") if key and sort.removeprefix("-") == key else "",
        )
        for label, key, css in _COLUMNS
    ]


def _column_address(request: HttpRequest, key: str, sort: str) -> str:
    figures = key in {"lag", "age", "rate"}
    first, second = (f"-{key}", key) if figures else (key, f"-{key}")
    query = request.GET.copy()
    for name in ("seen", "page"):
        query.pop(name, None)
    query["sort"] = second if sort == first else first
    return f"{request.path}?{query.urlencode()}"
