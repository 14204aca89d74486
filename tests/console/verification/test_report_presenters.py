"""View model of failover reports: when a report shows an alarm."""

from __future__ import annotations

from datetime import timedelta

import pytest

from console.models import MirrorTopic, StopReport
from console.verification.report_presenters import report_row
from tests.console.conftest import NOW


def failover(mirror: MirrorTopic, **values: object) -> StopReport:
    times = {"requested_at": NOW, "writable_at": NOW, "source_seen_at": NOW - timedelta(seconds=1)}
    return StopReport(mirror=mirror, reason="failover", requested_by="owner", rto_ms=1, **{**times, **values})


@pytest.mark.parametrize(
    ("values", "alarming"),
    [
        ({"records_not_copied": 0}, False),
        ({"records_not_copied": 7}, True),
        ({"records_not_copied": None}, True),
        ({"records_not_copied": 0, "source_seen_at": NOW - timedelta(days=3)}, True),
    ],
    ids=["nothing", "some", "unknown", "not-seen-for-days"],
)
def test_report_without_losses_alarms_if_the_source_was_not_measured_recently(
    mirror: MirrorTopic, values: dict[str, object], alarming: bool
) -> None:
    assert report_row(failover(mirror, **values), now=NOW).loses is alarming
