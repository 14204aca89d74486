"""The demo's report has the results of the verification, and its handover file is readable by its owner only."""

import json
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from devcluster.demo.environment import Demo
from devcluster.demo.linking import MirrorFigures
from devcluster.demo.progress import Progress
from devcluster.demo.report import report, write_handover
from devcluster.demo.services import plan_console
from devcluster.kafka import KafkaCluster


def linking(**verify: object) -> Any:
    """Return what the report reads of a finished job with a single mirror."""
    figures = MirrorFigures(
        topic="flights", seconds=2.5, bytes_copied=50_000_000, lag=0, gaps={"ABORTED": 900},
        verify={"status": "EQUAL", "records_compared": 1234, "differences": 0, **verify},
    )  # fmt: skip
    return SimpleNamespace(figures={"flights": figures}, copy_seconds=2.5)


def test_the_report_has_records_differences_and_speed() -> None:
    text = report(linking(), elapsed_s=90)

    assert "1,234 records compared on both sides, 0 differences." in text
    assert "50.0 MB copied at 20.0 MB/s" in text
    assert "900 aborted" in text


def test_the_report_has_the_first_differences() -> None:
    first = [{"partition": 3, "offset": 42, "kind": "value"}]

    text = report(linking(status="DIFFERENT", differences=1, first_differences=first), elapsed_s=90)

    assert '"offset": 42' in text


def test_the_report_has_the_error_of_a_failed_verification() -> None:
    text = report(linking(status="ERROR", records_compared=None, differences=None, error_message="Spark is away."), elapsed_s=9)

    assert "flights: Spark is away." in text


def test_the_handover_file_is_complete_and_private(tmp_path: Path) -> None:
    source, destination = (KafkaCluster(name, directory=tmp_path / name) for name in ("source", "destination"))
    console = plan_console(tmp_path, redis_url="redis://127.0.0.1:1/0", spark_url="sc://127.0.0.1:1")
    path = tmp_path / "demo.json"
    path.write_text("left over from before")
    path.chmod(0o644)

    write_handover(path, console=console, key={"api_key": "K", "api_secret": "S"}, source=source, destination=destination)

    facts = json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert facts["base_url"] == console.base_url
    assert (facts["api_key"], facts["api_secret"]) == ("K", "S")
    assert facts["mirrors"] == ["flights", "planes", "weather"]
    assert facts["clusters"]["source"]["id"] == source.cluster_id
    assert facts["clusters"]["destination"]["user"]["sasl.username"] == "app"


def test_clusters_of_the_demo_are_called_by_places(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "demo", progress=Progress(), reload=False)

    assert [demo.source.name, demo.destination.name] == ["new-york", "london"]
