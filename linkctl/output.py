"""Writes what commands found: a table for people, JSON for programs. Only this file prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

UNKNOWN = "unknown"  # never 0: that would claim that nothing is missing


def write_json(value: Any) -> None:
    """Write a value as the service sent it."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def write_line(text: str) -> None:
    sys.stdout.write(text + "\n")


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table as wide as its content where nobody watches (a pipe), as the terminal otherwise."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=not sys.stdout.isatty())
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    width = None if sys.stdout.isatty() else 100_000
    Console(file=sys.stdout, width=width, highlight=False).print(table, crop=False)


def write_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Write one thing, a line per fact."""
    shown = list(pairs)
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        write_line(f"{name.ljust(width)}  {_cell(value)}")


def count(value: int | None) -> str:
    """Write a lag or an offset; REST says -1 where it is not known."""
    return UNKNOWN if value is None or value < 0 else str(value)


def duration(value_ms: int | None) -> str:
    """Write milliseconds as seconds."""
    return UNKNOWN if value_ms is None else f"{value_ms / 1000:.3f} s"


def total_lag(lags: Sequence[dict[str, Any]]) -> str:
    """Add up the lags of partitions; one that is not known makes the sum unknown."""
    values = [int(one["lag"]) for one in lags]
    return count(-1 if not values or min(values) < 0 else sum(values))


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
