"""REST API of failover reports."""

from datetime import timedelta
from typing import Any

import pytest

from console.models import AuditEvent, ClampedOffset, MirrorTopic, StopReport
from console.verification import queries as verification_queries
from linkengine.domain.states import MirrorState
from tests.console.api.actors import DESTINATION, NOW, Boundary, Rest

pytestmark = pytest.mark.django_db
LINK = f"/api/v1/clusters/{DESTINATION}/links/from-source"
PARTITION = {
    "partition": 0,
    "mirrored_end": 90,
    "source_end": 100,
    "source_seen_at_ms": 5,
    "caught_up_at_ms": 4,
    "last_timestamp_ms": 3,
    "not_copied": 10,
}
# defaults of fields that older reports do not have
BEFORE = {"stable_end": None, "outdated": False, "missing_when_seen": None}


def report(mirror: MirrorTopic, *, lost: int | None, rpo_ms: int | None, rto_ms: int, after_s: int = 0) -> StopReport:
    at = NOW + timedelta(seconds=after_s)
    return StopReport.objects.create(
        mirror=mirror,
        reason="failover",
        requested_by="owner",
        requested_at=at,
        writable_at=at,
        records_not_copied=lost,
        rpo_ms=rpo_ms,
        rto_ms=rto_ms,
        partitions=[PARTITION],
    )


def test_a_mirrors_failover_report_is_listed_with_totals(owner: Rest, make_mirror: Any) -> None:
    report(make_mirror("orders"), lost=10, rpo_ms=2_000, rto_ms=400)

    response = owner.get(f"{LINK}/mirrors/orders/stop-reports").json()

    (row,) = response["data"]
    assert (row["mirror_topic_name"], row["records_not_copied"], row["rpo_ms"], row["rto_ms"]) == ("orders", 10, 2_000, 400)
    assert row["partitions"] == [PARTITION | BEFORE]
    assert response["totals"] == {"mirrors": 1, "records_not_copied": 10, "worst_rpo_ms": 2_000, "worst_rto_ms": 400}


def test_the_totals_of_a_link_count_the_newest_report_of_each_mirror(owner: Rest, make_mirror: Any) -> None:
    orders, bills = make_mirror("orders"), make_mirror("bills")
    report(orders, lost=99, rpo_ms=9_000, rto_ms=900)
    report(orders, lost=1, rpo_ms=10, rto_ms=100, after_s=1)
    report(bills, lost=2, rpo_ms=30, rto_ms=50)

    response = owner.get(f"{LINK}/stop-reports").json()

    assert response["totals"] == {"mirrors": 2, "records_not_copied": 3, "worst_rpo_ms": 30, "worst_rto_ms": 100}
    assert [row["records_not_copied"] for row in response["data"]] == [1, 2, 99]


def test_the_totals_are_unknown_if_a_value_is_unknown(owner: Rest, make_mirror: Any) -> None:
    report(make_mirror("orders"), lost=None, rpo_ms=None, rto_ms=1)
    report(make_mirror("bills"), lost=2, rpo_ms=30, rto_ms=50)

    totals = owner.get(f"{LINK}/stop-reports").json()["totals"]

    assert totals == {"mirrors": 2, "records_not_copied": None, "worst_rpo_ms": None, "worst_rto_ms": 50}


def test_a_limit_does_not_change_the_totals(owner: Rest, make_mirror: Any) -> None:
    report(make_mirror("bills"), lost=None, rpo_ms=30, rto_ms=50)
    report(make_mirror("orders"), lost=2, rpo_ms=20, rto_ms=10, after_s=1)

    response = owner.get(f"{LINK}/stop-reports?limit=1").json()

    assert [row["mirror_topic_name"] for row in response["data"]] == ["orders"]
    assert response["totals"] == {"mirrors": 2, "records_not_copied": None, "worst_rpo_ms": 30, "worst_rto_ms": 50}


def clamp(report: StopReport, *, partitions: int, after_s: int) -> None:
    began = NOW + timedelta(seconds=after_s)
    at = {"stopping_since": began, "at": began, "source_offset": 95, "before": 95, "after": 90}
    for partition in range(partitions):
        ClampedOffset.objects.create(mirror=report.mirror, report=report, group="app", partition=partition, **at)


def test_the_limit_of_clamped_offsets_applies_to_each_report(
    owner: Rest, make_mirror: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification_queries, "CLAMPED_SHOWN", 1)
    for after_s, name, partitions in ((10, "bills", 1), (20, "orders", 3)):
        mirror = make_mirror(name)
        stop = report(mirror, lost=0, rpo_ms=0, rto_ms=5_000, after_s=after_s)
        clamp(stop, partitions=partitions, after_s=after_s - 5)

    rows = owner.get(f"{LINK}/stop-reports").json()["data"]

    assert [(len(row["groups_clamped"]), row["groups_clamped_total"]) for row in rows] == [(1, 3), (1, 1)]


def test_each_report_has_the_groups_that_its_stop_clamped(owner: Rest, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    for after_s, group in ((10, "first"), (20, "second")):
        stop = report(mirror, lost=0, rpo_ms=0, rto_ms=5_000, after_s=after_s)
        began = NOW + timedelta(seconds=after_s - 5)
        at = {"stopping_since": began, "at": began, "source_offset": 95, "before": 95, "after": 90}
        ClampedOffset.objects.create(mirror=mirror, report=stop, group=group, partition=0, **at)

    rows = owner.get(f"{LINK}/stop-reports").json()["data"]

    assert [[offset["group"] for offset in row["groups_clamped"]] for row in rows] == [["second"], ["first"]]
    assert (rows[0]["groups_clamped"][0]["before"], rows[0]["groups_clamped"][0]["after"]) == (95, 90)


REFUSED = {
    "name": "retention.ms",
    "value": "2592000000",
    "code": "POLICY_VIOLATION_ERROR",
    "message": "7 days at most.",
}


def test_refused_configs_are_listed_and_retried(owner: Rest, reader: Rest, make_mirror: Any, boundary: Boundary) -> None:
    path = f"{LINK}/mirrors/orders/refused-configs"
    mirror = make_mirror("orders", MirrorState.STOPPED)
    stopped = report(mirror, lost=0, rpo_ms=0, rto_ms=5)
    nothing = owner.post(path)
    stopped.refused = [{**REFUSED, "resolved_at": None}]
    stopped.save()

    assert (nothing.status_code, "refuses no config" in nothing.json()["message"]) == (400, True)
    assert owner.get(path).json() == {"data": [REFUSED]}
    assert owner.get(f"{LINK}/mirrors/orders/stop-reports").json()["data"][0]["refused"] == stopped.refused
    assert reader.post(path).status_code == 403

    boundary.response = [REFUSED]
    assert owner.post(path).json() == {"data": [REFUSED]}
    assert AuditEvent.objects.filter(action="RetryRefusedConfigs").count() == 1
