"""The results of a run so far, written after every step: an interrupted run leaves it in ``var/bench``.

A later run can keep these results and measure what is missing, or what was disturbed, again.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from bench import figures, report
from bench.figures import Figure
from bench.report import Row

T = TypeVar("T")
DIRECTORY = Path("var/bench")  # one page and one JSON file per run, named after its start


class Results:
    """Rows, figures, lines, and the measurements that failed; those of an earlier run until they are measured again."""

    def __init__(self, *, directory: Path = DIRECTORY, earlier: Path | None = None) -> None:
        """Start without results, or with those in the JSON file of an earlier run."""
        self._began = datetime.now(tz=UTC)
        self._file = directory / f"{self._began:%Y%m%d-%H%M%S}.md"
        known = json.loads(earlier.read_text()) if earlier else {}
        self._runs = known.get("runs", 0) + 1
        self.rows = [Row(**row) for row in known.get("rows", ())]
        self._figures = [Figure(**figure) for figure in known.get("figures", ())]
        self._earlier_lines: list[str] = known.get("lines", [])
        self._lines: list[str] = []
        self.failures: list[str] = known.get("failures", [])

    @property
    def file(self) -> Path:
        """Return the page of this run."""
        return self._file

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Note an exception of the measurement beside the other results; the caller continues with the next measurement."""
        self.failures = [failure for failure in self.failures if not failure.startswith(f"{name}: ")]
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever failed, hours of other measurements are not to be lost
            traceback.print_exc()
            reason = next(iter(str(error).splitlines()), "")
            self.failures.append(f"{name}: {reason or 'no message'} ({type(error).__name__})")
            self._save()

    def add(self, item: Row | Figure | str) -> None:
        """Add a result in place of an earlier one, or a line about results, and write everything."""
        match item:
            case Row():
                _put(self.rows, item, lambda row: (row.workload, row.engine))
            case Figure():
                _put(self._figures, item, lambda figure: figure.what)
                print(f"  {item.what}: {item.found:,.{item.digits}f} {item.unit}", flush=True)
            case str():
                self._lines.append(item)
        self._save()

    def page(self) -> str:
        """Return the benchmark page."""
        failures = [line for failure in self.failures for line in ("", f"**Not measured:** {failure}")]
        appendix = [*figures.table(self._figures), *failures, "", *(self._lines or self._earlier_lines)]
        return report.document(self.rows, now=self._began, runs=self._runs, appendix=appendix)

    def write(self) -> None:
        """Write docs/benchmarks.md and var/benchmarks.json, after a complete run."""
        report.JSON_FILE.write_text(self._json())
        report.TABLE_FILE.write_text(self.page())

    def _json(self) -> str:
        measured = {
            "rows": [asdict(row) for row in self.rows],
            "figures": [asdict(figure) for figure in self._figures],
            "lines": self._lines or self._earlier_lines,
            "failures": self.failures,
            "runs": self._runs,
        }
        return json.dumps(measured, indent=2) + "\n"

    def _save(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(self.page())
        self._file.with_suffix(".json").write_text(self._json())


def _put(items: list[T], item: T, key: Callable[[T], object]) -> None:
    """Replace the item with the same key, or append the new one."""
    place = next((place for place, known in enumerate(items) if key(known) == key(item)), None)
    if place is None:
        items.append(item)
    else:
        items[place] = item
