"""REST API of health."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.models import ApiKey, Cluster, ClusterLink, LinkTask, RoleBinding
from tests.console.api.actors import DESTINATION, NOW, SOURCE, Rest, make_client

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


def test_error_of_a_task_has_the_same_message_in_the_health_of_link_and_mirror(owner: Rest, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    report(mirror)
    message = "orders: The source refused DESCRIBE_CONFIGS."
    errors = [{"code": "AUTHORIZATION_ERROR", "message": message}]
    LinkTask.objects.create(link=mirror.link, name="TopicConfigsSync", error_count=1, errors=errors)

    (of_link,) = owner.get(f"{LINK}/health").json()["mirrors"]
    own = owner.get(f"{LINK}/mirrors/orders/state").json()["health"]

    assert own["message"].endswith(f"AUTHORIZATION_ERROR. {message}")
    assert of_link == own | {"mirror_topic_name": "orders"}


def test_health_is_hidden_from_a_stranger(stranger: Rest, make_mirror: Any) -> None:
    make_mirror("orders")

    assert stranger.get(f"{LINK}/health").status_code == 404
    assert stranger.get(f"{CLUSTER}/link-health").status_code == 404
    assert stranger.get(f"{CLUSTER}/health").status_code == 404
    assert stranger.get("/api/v1/environments/production/health").status_code == 404
    assert stranger.get("/api/v1/environment-health").json() == {"data": []}


def test_cluster_has_the_health_of_its_worst_link_or_of_its_last_probe(owner: Rest, make_mirror: Any) -> None:
    Cluster.objects.update(probed_at=timezone.now())
    mirror = make_mirror("orders")
    report(mirror)
    found = owner.get(f"{CLUSTER}/health").json()
    assert (found["health"], found["reason"], found["codes"]) == ("HEALTHY", "COPYING", [])

    mirror.transition_errors.create(code="RECORDS_LOST", message="x", since=timezone.now(), last_seen_at=timezone.now())
    found = owner.get(f"{CLUSTER}/health").json()
    assert (found["health"], found["reason"], found["codes"]) == ("DEGRADED", "ALARM", ["RECORDS_LOST"])
    assert found["message"] == "Link from-source: Alarm: RECORDS_LOST."
    assert (found["cluster_id"], found["links"]["DEGRADED"], found["needs_attention"]) == (DESTINATION, 1, 1)

    Cluster.objects.filter(cluster_id=DESTINATION).update(probed_at=None)
    assert owner.get(f"{CLUSTER}/health").json()["reason"] == "CLUSTER_NOT_CHECKED"
    assert owner.get(f"/api/v1/clusters/{SOURCE}/health").json()["reason"] == "NO_LINKS"


def test_environment_has_the_health_of_its_worst_link_or_cluster(owner: Rest, make_mirror: Any) -> None:
    Cluster.objects.update(probed_at=timezone.now())
    make_mirror("orders").partitions.update(observed_at=None)

    found = owner.get("/api/v1/environments/production/health").json()

    assert (found["health"], found["reason"]) == ("NOT_COPYING", "SILENT")
    assert found["message"].startswith("Link from-source: 1 of 1 mirror topic: No copy worker has reported on ")
    assert (found["environment"], found["environment_name"]) == ("production", "Production")
    assert ({value for value, number in found["links"].items() if number}, found["needs_attention"]) == ({"NOT_COPYING"}, 1)
    clusters = [(row["cluster_id"], row["health"]) for row in found["clusters"]]
    assert clusters == [(DESTINATION, "NOT_COPYING"), (SOURCE, "EMPTY")]
    (listed,) = owner.get("/api/v1/environment-health").json()["data"]
    assert listed == {name: value for name, value in found.items() if name != "clusters"}


def test_environment_health_is_of_what_the_user_may_see(owner: Rest, destination: Cluster, make_mirror: Any) -> None:
    """A role on the source cluster shows neither the links to the destination nor the destination."""
    Cluster.objects.update(probed_at=timezone.now())
    make_mirror("orders").partitions.update(observed_at=None)
    source = Cluster.objects.get(cluster_id=SOURCE)
    neighbour = make_client(None, name="neighbour", role="")
    RoleBinding.objects.create(
        user_id=ApiKey.objects.get(key=neighbour.key).user_id,
        role="CloudClusterAdmin",
        cluster=source,
        granted_at=NOW,
        granted_by="test",
    )

    found = neighbour.get("/api/v1/environments/production/health").json()

    assert [row["cluster_id"] for row in found["clusters"]] == [SOURCE]
    assert (found["health"], sum(found["links"].values())) == ("EMPTY", 0)
