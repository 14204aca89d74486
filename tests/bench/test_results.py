"""The results that a run of the benchmark leaves if a measurement fails or if the run is interrupted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import report
from bench.figures import Figure
from bench.report import Row
from bench.results import Results

ROW = Row(workload="100 records/s, 1 partition", engine="clusterlink", p50_ms=2.0)
FIGURE = Figure(what="control plane idle", unit="cores", found=0.25, goal=0.3, most=True, digits=2)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    monkeypatch.setattr(report, "_machine", lambda: "a machine")  # starts Java
    return Results(directory=tmp_path / "bench")


def test_a_failed_measurement_is_noted_and_the_results_of_others_stay(results: Results) -> None:
    results.add(ROW)

    with results.attempt("fifty links"):
        raise RuntimeError("no record of the measured time arrived\nand more")
    results.add(FIGURE)

    assert results.failures == ["fifty links: no record of the measured time arrived (RuntimeError)"]
    page = results.file.read_text()
    assert "**Not measured:** fifty links: no record" in page
    assert "| 100 records/s, 1 partition | clusterlink | 2.0 |" in page
    assert "| control plane idle | 0.25 | cores | at most 0.30 | yes |" in page


def test_an_interrupted_run_leaves_what_was_measured(results: Results) -> None:
    def run() -> None:
        with results.attempt("the next"):
            results.add(FIGURE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()

    assert results.failures == []
    measured = json.loads(results.file.with_suffix(".json").read_text())
    assert [figure["what"] for figure in measured["figures"]] == ["control plane idle"]


def test_figures_and_lines_appear_in_the_order_of_the_page(results: Results) -> None:
    results.add("Verification of 1,000,000 records")
    results.add(FIGURE)

    page = results.page()

    assert page.index("control plane idle") < page.index("Verification of 1,000,000 records")


def test_a_later_run_replaces_what_it_measures_again_and_keeps_the_rest(results: Results, tmp_path: Path) -> None:
    results.add(ROW)
    results.add(FIGURE)
    results.add(replace(FIGURE, what="created", found=283.0))
    results.add("Verification of 1,000,000 records")
    for name in ("fifty links", "two Spark workers"):
        with results.attempt(name):
            raise RuntimeError("no record arrived")

    later = Results(directory=tmp_path / "later", earlier=results.file.with_suffix(".json"))
    later.add(replace(FIGURE, found=0.5))
    with later.attempt("fifty links"):
        later.add(replace(FIGURE, what="gap"))

    page = later.page()
    assert "The newest results of 2 runs" in page
    assert "| 100 records/s, 1 partition | clusterlink | 2.0 |" in page
    assert page.index("| control plane idle | 0.50 |") < page.index("| created | 283.00 |") < page.index("| gap | 0.25 |")
    assert "| control plane idle | 0.25 |" not in page
    assert "Verification of 1,000,000 records" in page
    assert later.failures == ["two Spark workers: no record arrived (RuntimeError)"]
