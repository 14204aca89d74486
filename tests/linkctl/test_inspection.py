"""Gaps, lineage, failover reports, previews and reparenting on the command line."""

from datetime import timedelta
from typing import Any

import pytest

from console.models import ClusterLink, GapRange, StopReport
from linkctl.inspection import OPERATIONS as COMMAND_OPERATIONS
from linkengine.domain.states import OPERATIONS
from tests.console.api.actors import NOW, Boundary
from tests.console.api.test_v1_reparenting import onward
from tests.linkctl.conftest import Run, read_json

__all__ = ["onward"]
ON = ("--link", "from-source")


def test_every_operation_can_be_previewed() -> None:
    assert set(COMMAND_OPERATIONS) == {operation.value for operation in OPERATIONS}


def test_gaps_are_listed_with_totals(run: Run, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    lost = {"before_ms": 1_000, "after_ms": 1 << 62, "noted_at": NOW}
    GapRange.objects.create(mirror=mirror, partition=2, start=300, end=317, filled=17, reason="LOST", **lost)

    shown = run("mirror", "gaps", "orders", *ON).stdout

    assert shown.splitlines()[1].split() == ["LOST", "1", "17"]
    assert shown.splitlines()[-1].split() == [
        "2",
        "300",
        "317",
        "17",
        "LOST",
        "1970-01-01T00:00:01.000+00:00",
        f"{1 << 62}",
        "ms",
    ]
    assert read_json(run("mirror", "gaps", "orders", *ON, "--json"))["data"][0]["offsets"] == 17


def test_lineage_lists_the_source_clusters(run: Run, make_mirror: Any) -> None:
    mirror = make_mirror("orders", lags=((10, 4),))
    mirror.source_topic_id = "a-topic-id"
    mirror.save()

    result = run("mirror", "lineage", "orders", *ON)

    assert result.exit_code == 0
    assert result.stdout.split()[:4] == ["PARTITION", "START", "END", "CLUSTER"]


@pytest.mark.parametrize("command", [("mirror", "stop-reports", "orders", *ON), ("link", "stop-reports", "from-source")])
def test_failover_reports_show_rpo_and_rto_and_unknown_counts(run: Run, make_mirror: Any, command: tuple[str, ...]) -> None:
    mirror = make_mirror("orders")
    StopReport.objects.create(
        mirror=mirror, reason="failover", requested_by="owner", requested_at=NOW, writable_at=NOW + timedelta(seconds=2),
        records_not_copied=None, rpo_ms=41_300, rto_ms=2_140,
    )  # fmt: skip

    row = run(*command).stdout.splitlines()[1].split()

    assert row == ["orders", "failover", "owner", "2026-05-04T10:00:02Z", "unknown", "41.300", "s", "2.140", "s", "-"]
    assert read_json(run(*command, "--json"))["totals"]["records_not_copied"] is None


def test_a_preview_shows_the_records_at_risk(run: Run, make_mirror: Any) -> None:
    make_mirror("orders", lags=((10, 4),))
    make_mirror("payments", lags=((10, 10),))

    shown = run("mirror", "preview", "failover", *ON, "--pattern", "orders").stdout.splitlines()

    assert len(shown) == 2
    assert shown[1].startswith("orders        accepted, then ")
    assert shown[1].split()[4:6] == ["6", "0"]


@pytest.mark.parametrize(("operation", "counts"), [("promote", ["0", "6"]), ("delete", ["unknown", "0"])])
def test_a_preview_shows_the_records_to_copy_and_unknown_counts(
    run: Run, make_mirror: Any, operation: str, counts: list[str]
) -> None:
    make_mirror("orders", lags=((10, 4),))  # the mirror's log start offset has not been reported

    row = run("mirror", "preview", operation, *ON).stdout.splitlines()[1].split()

    assert [word for word in row if word in {"unknown", "0", "6", "10"}] == counts


def test_a_mirror_is_reparented_unless_it_is_a_dry_run(run: Run, onward: ClusterLink, boundary: Boundary) -> None:
    command = ("mirror", "reparent", "orders", *ON, "--to", "onward")

    dry = run(*command, "--dry-run")
    assert (dry.exit_code, onward.mirrors.count()) == (0, 0)
    assert dry.stdout.splitlines()[1].split() == ["0", "10", "12", "10"]
    assert "nothing was changed" in dry.stdout

    assert run(*command).exit_code == 0
    assert onward.mirrors.get().name == "orders"
