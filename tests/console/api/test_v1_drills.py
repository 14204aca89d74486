"""Failover drills over REST."""

from typing import Any

import pytest

from console.models import Drill
from tests.console.api.cast import DESTINATION, Boundary, Rest

pytestmark = pytest.mark.django_db
DRILLS = f"/api/v1/clusters/{DESTINATION}/links/from-source/drills"


def test_a_drill_is_begun_and_found_again(owner: Rest, make_mirror: Any, boundary: Boundary) -> None:
    make_mirror("orders")

    answer = owner.post(DRILLS, {"mirror_topic_names": ["orders"], "start": "earliest"})

    assert answer.status_code == 202
    drill = answer.json()
    assert (drill["status"], drill["start"], drill["report"], drill["rto_ms"]) == ("PREPARING", "earliest", [], None)
    assert owner.get(answer["Location"].removeprefix("http://testserver")).json() == drill
    assert owner.get(DRILLS).json()["data"] == [drill]


def test_a_drill_of_another_link_is_not_found(owner: Rest, make_mirror: Any) -> None:
    make_mirror("orders")
    owner.post(DRILLS, {})
    assert owner.get(f"{DRILLS}/{Drill.objects.get().pk + 1}").status_code == 404


def test_a_reader_is_refused(reader: Rest, make_mirror: Any) -> None:
    make_mirror("orders")
    assert reader.post(DRILLS, {}).status_code == 403
