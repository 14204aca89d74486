"""Comparisons below /api/v1: they are started, listed, and tell only who may read records what these hold."""

from datetime import timedelta
from typing import Any

import pytest

from console.models import MirrorTopic, VerifyRun
from linkengine.domain.states import MirrorState
from tests.console.api.cast import NOW, ORDERS, Boundary, Rest

pytestmark = pytest.mark.django_db


def test_starting_a_verify_run_answers_202_and_its_address(owner: Rest, orders: MirrorTopic, boundary: Boundary) -> None:
    answer = owner.post(f"{ORDERS}/verify-runs")

    assert answer.status_code == 202
    run = answer.json()
    assert (run["status"], run["requested_by"]) == ("QUEUED", f"owner (API key {owner.key})")
    assert run["records_compared"] is run["differences"] is None
    assert answer["Location"] == f"http://testserver{ORDERS}/verify-runs/{run['id']}"
    assert ("verify_mirror", {"run_id": run["id"]}) in boundary.sent
    assert owner.get(answer["Location"].removeprefix("http://testserver")).json() == run


def test_a_second_start_answers_the_run_that_is_under_way(owner: Rest, orders: MirrorTopic) -> None:
    first = owner.post(f"{ORDERS}/verify-runs").json()

    assert owner.post(f"{ORDERS}/verify-runs").json()["id"] == first["id"]


def test_a_finished_run_tells_what_it_compared(owner: Rest, orders: MirrorTopic) -> None:
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


def test_only_who_may_read_records_sees_where_they_differ(owner: Rest, reader: Rest, orders: MirrorTopic) -> None:
    one = {"partition": 0, "offset": 7, "kind": "value", "source_value": "secret", "mirror_value": "hidden"}
    run = VerifyRun.objects.create(mirror=orders, requested_by="owner", requested_at=NOW, first_differences=[one])
    times = {"first_verified_at": NOW, "verified_at": NOW}
    orders.verified_ranges.create(partition=0, start=0, end=10, differences=1, first_difference=one, **times)

    for place in ("verify-runs", f"verify-runs/{run.pk}", "verified-ranges"):
        seen = reader.get(f"{ORDERS}/{place}")
        assert seen.status_code == 200
        assert "secret" not in seen.content.decode()
        assert "hidden" not in seen.content.decode()
        assert "secret" in owner.get(f"{ORDERS}/{place}").content.decode()


def test_runs_of_another_mirror_are_not_found_here(owner: Rest, orders: MirrorTopic, make_mirror: Any) -> None:
    other = VerifyRun.objects.create(mirror=make_mirror("other"), requested_by="owner", requested_at=NOW)

    for number in (other.pk, 10**30):
        answer = owner.get(f"{ORDERS}/verify-runs/{number}")
        assert answer.status_code == answer.json()["error_code"] == 404


def test_a_mirror_that_is_being_set_up_cannot_be_verified(owner: Rest, make_mirror: Any) -> None:
    make_mirror("orders", MirrorState.PENDING_SETUP)

    answer = owner.post(f"{ORDERS}/verify-runs")

    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)


def test_a_reader_may_not_start_a_run(reader: Rest, orders: MirrorTopic) -> None:
    assert reader.post(f"{ORDERS}/verify-runs").json()["error_code"] == 40301
    assert reader.get(f"{ORDERS}/verify-runs").json() == {"data": []}


def test_verification_tells_what_the_source_holds_before_the_beginning_of_a_mirror(owner: Rest, orders: MirrorTopic) -> None:
    """As the page does, and only while the copier goes on telling where both sides begin."""
    orders.partitions.filter(partition=1).update(source_start=3, mirror_start=5)

    told = owner.get(f"{ORDERS}/verification").json()["missing_beginnings"]
    MirrorTopic.objects.update(state="STOPPED")

    assert told == [{"partition": 1, "start": 3, "end": 5}]
    assert owner.get(f"{ORDERS}/verification").json()["missing_beginnings"] == []


@pytest.mark.parametrize("kind", ["gate-runs", "verify-runs"])
def test_the_run_that_was_asked_for_last_is_the_newest_whatever_the_clock_said(
    owner: Rest, orders: MirrorTopic, kind: str
) -> None:
    """A clock that was set back dates an older one ahead of it."""
    runs: Any = orders.gate_runs if kind == "gate-runs" else orders.verify_runs
    older, newer = (runs.create(status="RUNNING", requested_by="x", requested_at=NOW + timedelta(hours=one)) for one in (2, 1))

    assert [one["id"] for one in owner.get(f"{ORDERS}/{kind}").json()["data"]] == [newer.pk, older.pk]
    assert owner.get(f"{ORDERS}/{kind}?limit=1").json()["data"][0]["id"] == newer.pk
