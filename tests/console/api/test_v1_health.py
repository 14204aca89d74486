"""REST API of health."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.models import ClusterLink
from tests.console.api.actors import DESTINATION, Rest

pytestmark = pytest.mark.django_db
CLUSTER = f"/api/v1/clusters/{DESTINATION}"
LINK = f"{CLUSTER}/links/from-source"


def report(mirror: Any) -> None:
    now = timezone.now()
    mirror.partitions.update(
        observed_at=now, last_source_seen_at=now, caught_up_at=now, source_end=9, mirror_end=9, last_high_watermark=9
    )


def test_health_of_links_and_of_a_link_with_its_mirrors(owner: Rest, make_mirror: Any) -> None:
    report(make_mirror("orders"))
    make_mirror("silent").partitions.update(observed_at=None)

    found = owner.get(f"{LINK}/health").json()

    assert (found["health"], found["reason"], found["needs_attention"]) == ("NOT_COPYING", "SILENT", 1)
    assert found["message"].startswith("1 of 2 mirror topics: No copy worker has reported on ")
    assert found["next_step"].startswith("Check that the Celery worker")
    assert {value: number for value, number in found["mirror_topics"].items() if number} == {"NOT_COPYING": 1, "HEALTHY": 1}
    assert [(mirror["mirror_topic_name"], mirror["reason"]) for mirror in found["mirrors"]] == [("silent", "SILENT")]
    (listed,) = owner.get(f"{CLUSTER}/link-health").json()["data"]
    assert listed == {name: value for name, value in found.items() if name != "mirrors"}


def test_state_of_a_mirror_has_its_health(owner: Rest, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    report(mirror)
    assert owner.get(f"{LINK}/mirrors/orders/state").json()["health"]["health"] == "HEALTHY"

    ClusterLink.objects.update(engine_error="No Spark.")
    mirror.partitions.update(observed_at=timezone.now() - timedelta(seconds=6))

    found = owner.get(f"{LINK}/mirrors/orders/state").json()
    assert (found["state"], found["health"]["health"]) == ("ACTIVE", "NOT_COPYING")
    assert found["health"]["message"] == "No copy worker can run. No Spark."


def test_health_is_hidden_from_a_stranger(stranger: Rest, make_mirror: Any) -> None:
    make_mirror("orders")

    assert stranger.get(f"{LINK}/health").status_code == 404
    assert stranger.get(f"{CLUSTER}/link-health").status_code == 404
