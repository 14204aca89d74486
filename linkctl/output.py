"""Writes the results of commands to standard output: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

UNKNOWN = "unknown"  # not 0, which would mean that no record is missing


def write_json(value: Any) -> None:
    """Write a value as indented JSON."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def write_line(text: str) -> None:
    sys.stdout.write(text + "\n")


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table; it is as wide as the terminal, or as its content if standard output is not a terminal."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=not sys.stdout.isatty())
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    width = None if sys.stdout.isatty() else 100_000
    Console(file=sys.stdout, width=width, highlight=False).print(table, crop=False)


def write_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Write (name, value) pairs, one per line, with aligned values."""
    facts = list(pairs)
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        write_line(f"{name.ljust(width)}  {_cell(value)}")


def write_warnings(warnings: Iterable[tuple[str, str]]) -> None:
    """Write (topic, warning) pairs as a table below another table; nothing if there are none."""
    rows = list(warnings)
    if rows:
        write_line("")
        write_table(("MIRROR TOPIC", "WARNING"), rows)


def count(value: int | None) -> str:
    """Return a lag, count or offset as text; None and -1 are unknown."""
    return UNKNOWN if value is None or value < 0 else str(value)


def duration(value_ms: int | None) -> str:
    """Return milliseconds as text in seconds."""
    return UNKNOWN if value_ms is None else f"{value_ms / 1000:.3f} s"


def total_lag(lags: Sequence[dict[str, Any]]) -> str:
    """Return the sum of the partitions' lags as text; it is unknown if a lag is unknown."""
    values = [int(partition["lag"]) for partition in lags]
    return count(-1 if not values or min(values) < 0 else sum(values))


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
