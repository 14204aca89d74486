"""REST API of verification runs: start, list, and contents of records only with the permission to read them."""

from datetime import timedelta
from typing import Any

import pytest

from console.models import MirrorTopic, VerifyRun
from linkengine.domain.states import MirrorState
from tests.console.api.actors import NOW, ORDERS, Boundary, Rest

pytestmark = pytest.mark.django_db


def test_starting_a_verification_run_returns_202_and_its_location(owner: Rest, orders: MirrorTopic, boundary: Boundary) -> None:
    response = owner.post(f"{ORDERS}/verify-runs")

    assert response.status_code == 202
    run = response.json()
    assert (run["status"], run["requested_by"]) == ("QUEUED", f"owner (API key {owner.key})")
    assert run["records_compared"] is run["differences"] is None
    assert response["Location"] == f"http://testserver{ORDERS}/verify-runs/{run['id']}"
    assert ("verify_mirror", {"run_id": run["id"]}) in boundary.sent
    assert owner.get(response["Location"].removeprefix("http://testserver")).json() == run


def test_a_second_start_returns_the_run_in_progress(owner: Rest, orders: MirrorTopic) -> None:
    first = owner.post(f"{ORDERS}/verify-runs").json()

    assert owner.post(f"{ORDERS}/verify-runs").json()["id"] == first["id"]


def test_a_finished_run_shows_what_it_compared(owner: Rest, orders: MirrorTopic) -> None:
    difference = {"partition": 0, "offset": 7, "kind": "value", "source_value": "a", "mirror_value": "b"}
    VerifyRun.objects.create(
        mirror=orders,
        status="DIFFERENT",
        requested_by="owner",
        requested_at=NOW,
        records_compared=10,
        differences=1,
        first_differences=[difference],
        ranges=[[0, 0, 10]],
        not_copied=4,
    )

    run = owner.get(f"{ORDERS}/verify-runs").json()["data"][0]

    assert (run["status"], run["records_compared"], run["differences"]) == ("DIFFERENT", 10, 1)
    assert run["not_copied"] == 4
    assert run["first_differences"] == [difference]
    assert run["ranges"] == [{"partition": 0, "start": 0, "end": 10}]


def test_contents_of_records_that_differ_need_the_permission_to_read_records(
    owner: Rest, reader: Rest, orders: MirrorTopic
) -> None:
    difference = {"partition": 0, "offset": 7, "kind": "value", "source_value": "secret", "mirror_value": "hidden"}
    run = VerifyRun.objects.create(mirror=orders, requested_by="owner", requested_at=NOW, first_differences=[difference])
    times = {"first_verified_at": NOW, "verified_at": NOW}
    orders.verified_ranges.create(partition=0, start=0, end=10, differences=1, first_difference=difference, **times)

    for path in ("verify-runs", f"verify-runs/{run.pk}", "verified-ranges"):
        response = reader.get(f"{ORDERS}/{path}")
        assert response.status_code == 200
        assert "secret" not in response.content.decode()
        assert "hidden" not in response.content.decode()
        assert "secret" in owner.get(f"{ORDERS}/{path}").content.decode()


def test_verification_runs_of_another_mirror_are_404(owner: Rest, orders: MirrorTopic, make_mirror: Any) -> None:
    other = VerifyRun.objects.create(mirror=make_mirror("other"), requested_by="owner", requested_at=NOW)

    for number in (other.pk, 10**30):
        response = owner.get(f"{ORDERS}/verify-runs/{number}")
        assert response.status_code == response.json()["error_code"] == 404


def test_a_mirror_that_is_being_set_up_cannot_be_verified(owner: Rest, make_mirror: Any) -> None:
    make_mirror("orders", MirrorState.PENDING_SETUP)

    response = owner.post(f"{ORDERS}/verify-runs")

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)


def test_a_reader_may_not_start_a_run(reader: Rest, orders: MirrorTopic) -> None:
    assert reader.post(f"{ORDERS}/verify-runs").json()["error_code"] == 40301
    assert reader.get(f"{ORDERS}/verify-runs").json() == {"data": []}


def test_verification_lists_offsets_of_the_source_below_the_mirrors_log_start(owner: Rest, orders: MirrorTopic) -> None:
    """As on the page; empty for a stopped mirror, for which the copy worker no longer reports log starts."""
    orders.partitions.filter(partition=1).update(source_start=3, mirror_start=5)

    missing = owner.get(f"{ORDERS}/verification").json()["missing_beginnings"]
    MirrorTopic.objects.update(state="STOPPED")

    assert missing == [{"partition": 1, "start": 3, "end": 5}]
    assert owner.get(f"{ORDERS}/verification").json()["missing_beginnings"] == []


@pytest.mark.parametrize("kind", ["gate-runs", "verify-runs"])
def test_runs_are_listed_in_the_order_of_requests_even_if_the_clock_was_set_back(
    owner: Rest, orders: MirrorTopic, kind: str
) -> None:
    """After the clock was set back, an older run has a later time."""
    runs: Any = orders.gate_runs if kind == "gate-runs" else orders.verify_runs
    older, newer = (
        runs.create(status="RUNNING", requested_by="x", requested_at=NOW + timedelta(hours=hour)) for hour in (2, 1)
    )

    assert [run["id"] for run in owner.get(f"{ORDERS}/{kind}").json()["data"]] == [newer.pk, older.pk]
    assert owner.get(f"{ORDERS}/{kind}?limit=1").json()["data"][0]["id"] == newer.pk
