"""Reads the lists of the console: the table, the following pages and the file."""

from __future__ import annotations

import csv
import html
import io
import re
from html.parser import HTMLParser
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

Row = dict[str, str]  # of a file


class Table(HTMLParser):
    """Reads the cells of the rows of the list, with whitespace normalized, and the headings with aria-sort."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page = page
        self.rows: list[list[str]] = []
        self.sorted: list[str] = []
        self._depth = 0  # of tables, within that of the list
        self._in_body = False
        self.feed(page)
        self.rows = [[" ".join(text.split()) for text in row] for row in self.rows]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "table" and (self._depth or "sorts" in (found.get("class") or "").split()):
            self._depth += 1
        if self._depth != 1:
            return
        self._in_body = self._in_body or tag == "tbody"
        if tag == "th" and found.get("aria-sort"):
            self.sorted.append(found["aria-sort"] or "")
        if self._in_body and tag == "tr" and found.get("class") != "follows":
            self.rows.append([])
        if self._in_body and tag == "tr" and found.get("class") == "follows":
            self._in_body = False  # a note below the row
        if self._in_body and tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table" and self._depth:
            self._depth -= 1
        if self._depth == 1 and tag == "tr" and self.rows:
            self._in_body = True

    def handle_data(self, data: str) -> None:
        if self._depth and self._in_body and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def read(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


def walk(client: Client, address: str, *, most: int = 21) -> list[str]:
    """Open a page and the following pages by their Next links: all of them, or the first ``most``."""
    pages = [read(client, address)]
    while len(pages) < most and (found := re.search(r'href="([^"]+)">Next<', pages[-1])):
        assert len(pages) < 20, "Next does not end"
        pages.append(read(client, html.unescape(found[1])))
    return pages


def with_query(address: str, query: str) -> str:
    return f"{address}?{query}" if query else address


def file_of(client: Client, address: str, page: str = "") -> list[Row]:
    """Download the file to which the page links; of a page without rows, that of its URL."""
    found = re.search(r'id="list-csv" href="([^"]+)"', page or read(client, address))
    joint = "&" if "?" in address else "?"
    response: Any = client.get(html.unescape(found[1]) if found else f"{address}{joint}format=csv")
    assert (response.status_code, response["Content-Type"], response.streaming) == (200, "text/csv; charset=utf-8", True)
    assert re.fullmatch(r'attachment; filename="[\w.-]+\.csv"', response["Content-Disposition"])
    return list(csv.DictReader(io.StringIO(response.getvalue().decode())))


def queries(client: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as requested:
        client.get(address).getvalue()
    return len(requested)
