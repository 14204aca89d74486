"""REST API of failover drills."""

from typing import Any

import pytest

from console.models import Drill
from tests.console.api.actors import DESTINATION, Boundary, Rest

pytestmark = pytest.mark.django_db
DRILLS = f"/api/v1/clusters/{DESTINATION}/links/from-source/drills"


def test_a_drill_is_started_and_listed(owner: Rest, make_mirror: Any, boundary: Boundary) -> None:
    make_mirror("orders")

    response = owner.post(DRILLS, {"mirror_topic_names": ["orders"], "start": "earliest"})

    assert response.status_code == 202
    drill = response.json()
    assert (drill["status"], drill["start"], drill["report"], drill["rto_ms"]) == ("PREPARING", "earliest", [], None)
    assert owner.get(response["Location"].removeprefix("http://testserver")).json() == drill
    assert owner.get(DRILLS).json()["data"] == [drill]


def test_an_unknown_drill_is_404(owner: Rest, make_mirror: Any) -> None:
    make_mirror("orders")
    owner.post(DRILLS, {})
    assert owner.get(f"{DRILLS}/{Drill.objects.get().pk + 1}").status_code == 404


def test_a_reader_may_not_start_a_drill(reader: Rest, make_mirror: Any) -> None:
    make_mirror("orders")
    assert reader.post(DRILLS, {}).status_code == 403


def test_a_drill_is_canceled(owner: Rest, reader: Rest, make_mirror: Any, boundary: Boundary) -> None:
    make_mirror("orders")
    drill = owner.post(DRILLS, {}).json()
    path = f"{DRILLS}/{drill['id']}/cancel"

    refused, response = reader.post(path), owner.post(path)

    assert refused.status_code == 403
    assert response.status_code == 202
    assert response.json()["status"] == "CLEANING"
    assert response.json()["canceled_by"].startswith("owner")
    Drill.objects.update(status="CANCELED")
    assert "has ended" in owner.post(path).json()["message"]
    assert owner.post(f"{DRILLS}/{drill['id'] + 1}/cancel").status_code == 404


def test_drill_is_named_when_it_keeps_a_link_from_being_deleted(owner: Rest, make_mirror: Any, boundary: Boundary) -> None:
    mirror = make_mirror("orders")
    drill = owner.post(DRILLS, {}).json()
    link = DRILLS.replace("/api/v1", "/kafka/v3").removesuffix("/drills")
    assert "'orders'" in owner.delete(link).json()["message"]
    type(mirror).objects.filter(pk=mirror.pk).update(state="STOPPED")

    response = owner.delete(link)

    assert response.status_code == 400  # as Confluent's REST API reports LINK_IN_USE
    assert f"Failover drill {drill['id']} of cluster link 'from-source' is in progress" in response.json()["message"]
