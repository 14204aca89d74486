"""Lists: search, filters, sort order, pages and CSV files.

A list is declared once, as a ``Listing``: columns with their sort orders, filters, the fields that are searched, and the
columns of its CSV file. ``Listing.read`` returns what the URL of a request selects (``Listed``). It filters and sorts the
rows, and the templates ``parts/list_form.html``, ``list_headings.html`` and ``list_no_match.html`` show it.

The rows are a QuerySet, which the database filters and sorts, or a sequence if a condition or value is not in the database.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.db.models import F, Model, OrderBy, Q, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext, override

from console.web import numbers

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

# --- pages and time spans ---------------------------------------------------------------------------------------------


PAGE_SIZE = 50
LAST_PAGE = 1_000_000  # keeps OFFSET within the range of the database
EVERY = LAST_PAGE * PAGE_SIZE  # more rows than any list has
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


def page_request(request: HttpRequest, path: str, query: str = "") -> HttpRequest:
    """Return the request of the page that the response to a POST shows. Its list is read from it, so that links lead there."""
    shown = copy(request)
    shown.method, shown.path, shown.GET = "GET", path, QueryDict(query)
    return shown


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


# --- declared lists ---------------------------------------------------------------------------------------------------


ROWS_AT_ONCE = 500  # of a file
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # a cell that begins with one of these is a formula in a spreadsheet
Rows = TypeVar("Rows", bound="QuerySet[Any] | Sequence[Any]")
Value = Callable[[Any], Any]  # of a loaded row


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table, and the sort order that a click on its heading selects."""

    title: StrOrPromise
    key: str = ""  # value of ``?sort=``, with "-" in descending order; "": no sort order
    by: tuple[str, ...] | Value = ()  # fields of the query, or the value of a row; () if the caller sorts
    css: str = ""
    descends: bool = False  # the first click sorts in descending order
    optional: bool = False  # the value can be unknown, which sorts as the smallest


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter by a value. A value of the URL that is not among the options is ignored."""

    name: str  # query parameter
    label: StrOrPromise
    every: StrOrPromise  # label of the option that selects all rows
    # (value, label); None: the caller reads them, and any value is valid
    options: Sequence[tuple[str, StrOrPromise]] | None = None
    by: str | Callable[[str], Q] | Value = ""  # field or condition of the query, or value of a row; "" if the caller filters


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The declaration of a list."""

    noun: str  # the name of a row in English, such as "mirror topic"; pages translate it
    plural: str
    columns: tuple[Column, ...]
    default: str  # key of the sort order without ``?sort=``
    # Fields of the query, a condition of the query for the text, or the texts of a row; () if the caller searches.
    search: tuple[str, ...] | Callable[[str], Q] | Callable[[Any], Iterable[str]] = ()
    search_label: StrOrPromise = ""  # "": no search
    filters: tuple[Filter, ...] = ()
    time: str = ""  # field of the query for the time range; "": no time range
    kept: tuple[str, ...] = ()  # other parameters of the URL that the form submits again
    export: Mapping[str, str | Value]  # column of the CSV file -> attribute or value of a row
    has_json: bool = False  # the caller can return a JSON file

    def read(self, request: HttpRequest) -> Listed:
        """Return what a request selects."""
        sort = request.GET.get("sort", "")
        known = {column.key for column in self.columns if column.key}
        values = {found.name: request.GET.get(found.name, "").strip() for found in self.filters}
        for found in self.filters:
            if found.options is not None and values[found.name] not in {value for value, _ in found.options}:
                values[found.name] = ""
        return Listed(
            listing=self,
            request=request,
            query=request.GET.get("q", "").strip() if self.search_label else "",
            sort=sort if sort.removeprefix("-") in known else self.default,
            values=values,
            start=time_of(request, "from") if self.time else None,
            end=time_of(request, "to") if self.time else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A column heading. ``url`` sorts by the column; ``sorted`` is its current value of aria-sort."""

    title: StrOrPromise
    css: str = ""
    url: str = ""
    sorted: str = ""


@dataclass(slots=True, kw_only=True)
class Listed:
    """The part of a list that a request selects, with the values for its templates."""

    listing: Listing
    request: HttpRequest
    query: str
    sort: str
    values: Mapping[str, str]
    start: datetime | None
    end: datetime | None
    pager: Pager | None = None  # of the page that was read
    # By filter: options that the form offers instead of the declared ones.
    options: Mapping[str, Sequence[tuple[str, StrOrPromise]]] = field(default_factory=dict)

    # --- rows ---

    def select(self, rows: Rows) -> Rows:
        """Return the rows that match search, filters and time range, in the sort order."""
        if isinstance(rows, QuerySet):
            return cast("Rows", self._in_database(rows))
        return cast("Rows", self._in_memory(rows))

    def page(self, rows: QuerySet[Stored] | Sequence[Row], *, size: int = PAGE_SIZE) -> Sequence[Any]:
        """Return the rows of the requested page. At most two queries."""
        if isinstance(rows, QuerySet):
            shown, self.pager = page_from(self.request, rows, size=size)
            return shown
        found, self.pager = page_of(self.request, rows)
        return found

    def _in_database(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        search = self.listing.search
        if self.query and search:
            conditions = [Q(**{f"{name}__icontains": self.query}) for name in search] if isinstance(search, tuple) else []
            rows = rows.filter(
                cast("Callable[[str], Q]", search)(self.query) if callable(search) else Q(*conditions, _connector=Q.OR)
            )
        for found in self.listing.filters:
            value = self.values[found.name]
            if value and found.by:
                rows = rows.filter(Q(**{found.by: value}) if isinstance(found.by, str) else found.by(value))
        if self.start:
            rows = rows.filter(**{f"{self.listing.time}__gte": self.start})
        if self.end:
            rows = rows.filter(**{f"{self.listing.time}__lt": self.end})
        column, reverse = self._sorted_by()
        if column is None or not isinstance(column.by, tuple):
            return rows
        # NULL is the largest value in PostgreSQL and the smallest in SQLite. Without NULLs an index is used for the order.
        unknown = {"nulls_last" if reverse else "nulls_first": True} if column.optional else {}
        order = [OrderBy(F(name), descending=reverse, **unknown) for name in column.by]
        return rows.order_by(*order, "-pk" if reverse else "pk")

    def _in_memory(self, rows: Sequence[Any]) -> Sequence[Any]:
        if self.query and callable(self.listing.search):
            text, texts_of = self.query.lower(), cast("Callable[[Any], Iterable[str]]", self.listing.search)
            rows = [row for row in rows if any(text in found.lower() for found in texts_of(row))]
        for found in self.listing.filters:
            value = self.values[found.name]
            if value and callable(found.by):
                value_of = cast("Value", found.by)
                rows = [row for row in rows if value_of(row) == value]
        column, reverse = self._sorted_by()
        return _sorted(rows, column.by, reverse=reverse) if column is not None and callable(column.by) else rows

    def _sorted_by(self) -> tuple[Column | None, bool]:
        key = self.sort.removeprefix("-")
        column = next((column for column in self.listing.columns if key and column.key == key), None)
        return column, self.sort.startswith("-")

    # --- the file ---

    @property
    def format(self) -> str:
        """The format of the file that is requested: csv or json; "" for the page."""
        text = self.request.GET.get("format", "")
        return text if text == "csv" or (text == "json" and self.listing.has_json) else ""

    def csv(self, name: str, rows: QuerySet[Any] | Iterable[Any]) -> HttpResponse:
        """Return rows as a CSV file, which is read and sent in parts. One query.

        Values are machine-readable: times in UTC as ISO 8601, numbers without a unit, unknown as an empty cell, texts in
        English. A text that a spreadsheet would interpret as a formula gets a leading apostrophe.
        """
        columns = self.listing.export
        values = [attrgetter(found) if isinstance(found, str) else found for found in columns.values()]
        found = rows.iterator(chunk_size=ROWS_AT_ONCE) if isinstance(rows, QuerySet) else iter(rows)
        cells = ([_cell(value(row)) for value in values] for row in found)
        return cast("HttpResponse", csv_file(name, list(columns), cells))  # views are declared with this type

    # --- values for the templates ---

    @property
    def headings(self) -> list[Heading]:
        """The headings of the table."""
        return [self._heading(column) for column in self.listing.columns]

    @property
    def fields(self) -> list[dict[str, object]]:
        """The filters of the form with their options."""
        return [self._field(found) for found in self.listing.filters]

    @property
    def noun(self) -> str:
        """The plural of a row, in the language of the page."""
        return gettext(self.listing.plural)

    @property
    def total(self) -> str:
        """The number of rows that match, in words."""
        if self.pager is None:
            return ""
        noun = gettext(self.listing.noun) if self.pager.total == 1 else self.noun
        return gettext("%(count)s %(noun)s") % {"count": numbers.count(self.pager.total), "noun": noun}

    @property
    def search_label(self) -> StrOrPromise:
        """The placeholder of the search field, which names what is searched."""
        return self.listing.search_label

    @property
    def is_filtered(self) -> bool:
        """Whether a search, filter or time range is set."""
        return bool(self.query or any(self.values.values()) or self.start or self.end)

    @property
    def kept(self) -> list[tuple[str, str]]:
        """The hidden fields of the form: other parameters of the URL, and the sort order if it is not the default."""
        kept = [(name, self.request.GET.get(name, "")) for name in self.listing.kept]
        kept.append(("sort", self.sort if self.sort != self.listing.default else ""))
        return [(name, value) for name, value in kept if value]

    @property
    def clear_url(self) -> str:
        """The URL of the list without search and filters, in the same order."""
        return self._url(**dict.fromkeys(["q", "from", "to", *self.values], ""))

    @property
    def csv_url(self) -> str:
        """The URL of the CSV file of all rows that match."""
        return self._url(format="csv")

    @property
    def json_url(self) -> str:
        """The URL of the JSON file of all rows that match; "" if the list has none."""
        return self._url(format="json") if self.listing.has_json else ""

    @property
    def range(self) -> dict[str, str] | None:
        """The fields From and To; None if the list has no time range."""
        return range_fields(self.start, self.end) if self.listing.time else None

    def _heading(self, column: Column) -> Heading:
        if not column.key:
            return Heading(title=column.title, css=column.css)
        current = self.sort.removeprefix("-") == column.key
        first, second = (f"-{column.key}", column.key) if column.descends else (column.key, f"-{column.key}")
        return Heading(
            title=column.title,
            css=column.css,
            url=self._url(sort=second if self.sort == first else first),
            sorted=("descending" if self.sort.startswith("-") else "ascending") if current else "",
        )

    def _field(self, found: Filter) -> dict[str, object]:
        value = self.values[found.name]
        options: list[tuple[str, StrOrPromise]] = list(self.options.get(found.name, found.options or ()))
        if value and value not in {code for code, _ in options}:
            labels: dict[str, StrOrPromise] = dict(found.options or ())
            options.append((value, labels.get(value, value)))
        return {"name": found.name, "label": found.label, "every": found.every, "value": value, "options": options}

    def _url(self, **changes: str) -> str:
        """Return the URL of the list with other parameters, on the first page. An empty one is left out."""
        query = self.request.GET.copy()
        for name in ("seen", "page", "format"):
            query.pop(name, None)
        for name, value in changes.items():
            if value:
                query[name] = value
            else:
                query.pop(name, None)
        return f"{self.request.path}?{query.urlencode()}" if query else self.request.path


def csv_file(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> StreamingHttpResponse:
    """Return a CSV file. Its first part is read here, so that an error before it still is an error page."""
    parts = _parts(columns, rows)
    first = next(parts)

    def sent() -> Iterator[str]:  # a generator, which the response closes
        yield first
        yield from parts

    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}  # link and topic names need no quoting
    return StreamingHttpResponse(sent(), content_type="text/csv; charset=utf-8", headers=headers)


class _Echo:
    """A file for ``csv.writer`` whose ``write`` returns the line."""

    def write(self, line: str) -> str:
        return line


def _parts(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    writer, cells = csv.writer(_Echo()), iter(rows)
    with override("en"):  # programs read the file
        lines = [writer.writerow(columns), *map(writer.writerow, islice(cells, ROWS_AT_ONCE))]
    while lines:
        yield "".join(lines)
        with override("en"):
            lines = list(map(writer.writerow, islice(cells, ROWS_AT_ONCE)))


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _sorted(rows: Sequence[Any], value_of: Value, *, reverse: bool) -> list[Any]:
    """Return rows by a value; equal ones keep their order. None, for unknown, is the smallest."""
    known = sorted((row for row in rows if value_of(row) is not None), key=value_of, reverse=reverse)
    unknown = [row for row in rows if value_of(row) is None]
    return known + unknown if reverse else unknown + known
