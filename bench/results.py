"""What a run has measured so far, written after every step: an interrupted run leaves it in ``var/bench``."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench import figures, report
from bench.figures import Figure
from bench.report import Row

DIRECTORY = Path("var/bench")  # one page and one JSON file per run, named after its start


class Results:
    """Rows, figures, lines, and the measurements that failed."""

    def __init__(self, *, directory: Path = DIRECTORY) -> None:
        self._began = datetime.now(tz=UTC)
        self._file = directory / f"{self._began:%Y%m%d-%H%M%S}.md"
        self.rows: list[Row] = []
        self._figures: list[Figure] = []
        self._lines: list[str] = []
        self.failures: list[str] = []

    @property
    def file(self) -> Path:
        """Return the page of this run."""
        return self._file

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Note an exception of the measurement beside the other results; the caller continues with the next measurement."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever failed, hours of other measurements are not to be lost
            traceback.print_exc()
            reason = next(iter(str(error).splitlines()), "")
            self.failures.append(f"{name}: {reason or 'no message'} ({type(error).__name__})")
            self._save()

    def add(self, item: Row | Figure | str) -> None:
        """Add a result, or a line about results, and write everything."""
        match item:
            case Row():
                self.rows.append(item)
            case Figure():
                self._figures.append(item)
                print(f"  {item.what}: {item.found:,.{item.digits}f} {item.unit}", flush=True)
            case str():
                self._lines.append(item)
        self._save()

    def page(self) -> str:
        """Return the benchmark page."""
        failures = [line for failure in self.failures for line in ("", f"**Not measured:** {failure}")]
        appendix = [*figures.table(self._figures), *failures, "", *self._lines]
        return report.document(self.rows, now=self._began, appendix=appendix)

    def write(self) -> None:
        """Write docs/benchmarks.md and var/benchmarks.json, after a complete run."""
        report.JSON_FILE.write_text(self._json())
        report.TABLE_FILE.write_text(self.page())

    def _json(self) -> str:
        measured = {
            "rows": [asdict(row) for row in self.rows],
            "figures": [asdict(figure) for figure in self._figures],
            "failures": self.failures,
        }
        return json.dumps(measured, indent=2) + "\n"

    def _save(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(self.page())
        self._file.with_suffix(".json").write_text(self._json())
