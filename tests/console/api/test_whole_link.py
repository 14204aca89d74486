"""A role on a topic shows its link, but no data about all mirrors of the link together."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from console.models import Cluster, ClusterLink, Drill, RoleBinding, StopReport
from tests.console.api.actors import DESTINATION, NOW, Rest, make_key

pytestmark = pytest.mark.django_db
CLUSTER = f"/api/v1/clusters/{DESTINATION}"
LINK = f"{CLUSTER}/links/from-source"
KAFKA = f"/kafka/v3/clusters/{DESTINATION}/links"
OF_THE_LINK = (
    f"{LINK}/consumer-groups",
    f"{LINK}/consumer-groups?status=SYNCED",
    f"{LINK}/acls",
    f"{LINK}/acls?conflicts=true",
    f"{LINK}/drills",
    f"{LINK}/drills/1",
    f"{LINK}/tasks",
    f"{LINK}/history",
    f"{LINK}/rates",
    f"{LINK}/source-topics",
    f"{LINK}/source-topics/orders",
    f"{KAFKA}/from-source?include_tasks=true",
    f"{KAFKA}/from-source/configs",
    f"{KAFKA}/from-source/configs/acl.filters",
)
OF_THE_CLUSTER = (f"{CLUSTER}/namespaces",)
# Lists that contain only the visible mirrors.
FOR_ALL = (
    f"{LINK}/stop-reports",
    f"{LINK}/previews?operation=pause",
    KAFKA,
    f"{KAFKA}/from-source",
    f"{KAFKA}/from-source/mirrors",
)


@pytest.fixture(autouse=True)
def mirrors(link: ClusterLink, make_mirror: Any) -> None:
    """Two mirrors with a failover report each, and a drill of both."""
    for name, lost in (("orders", 1), ("salaries", 99)):
        report = {"reason": "failover", "requested_by": "owner", "requested_at": NOW, "writable_at": NOW, "partitions": []}
        StopReport.objects.create(mirror=make_mirror(name), records_not_copied=lost, rpo_ms=lost, rto_ms=lost, **report)
    values = {"status": "DONE", "status_since": NOW, "start_spec": "latest", "requested_by": "owner", "requested_at": NOW}
    Drill.objects.create(pk=1, link=link, topics=["orders", "salaries"], **values)


def person(cluster: Cluster, **resource: Any) -> Rest:
    user = User.objects.create_user("narrow")
    role = RoleBinding.Role.DEVELOPER_READ
    RoleBinding.objects.create(user=user, role=role, cluster=cluster, granted_at=NOW, granted_by="test", **resource)
    api_key, secret = make_key(user)
    return Rest(api_key.key, secret)


@pytest.fixture
def narrow(destination: Cluster) -> Rest:
    """A client that may see only the topic ``orders``."""
    return person(destination, resource_type="Topic", resource_name="orders")


@pytest.mark.parametrize("address", [*OF_THE_LINK, *OF_THE_CLUSTER])
def test_a_role_on_a_topic_does_not_show_resources_of_the_whole_link(narrow: Rest, address: str) -> None:
    response = narrow.get(address)

    assert response.status_code == 403
    assert "DeveloperRead" in response.json()["message"]
    assert "salaries" not in response.content.decode()


@pytest.mark.parametrize("address", FOR_ALL)
def test_a_role_on_a_topic_shows_nothing_of_other_topics(narrow: Rest, address: str) -> None:
    response = narrow.get(address)

    assert response.status_code == 200
    assert "salaries" not in response.content.decode()


def test_a_role_on_a_topic_shows_its_failover_reports_and_their_totals(narrow: Rest) -> None:
    response = narrow.get(f"{LINK}/stop-reports").json()

    assert [row["mirror_topic_name"] for row in response["data"]] == ["orders"]
    assert response["totals"] == {"mirrors": 1, "records_not_copied": 1, "worst_rpo_ms": 1, "worst_rto_ms": 1}


@pytest.mark.parametrize("address", [*OF_THE_LINK, *FOR_ALL])
@pytest.mark.parametrize("name", ["from-source", "*"])
def test_a_role_on_a_link_shows_all_of_its_resources(destination: Cluster, name: str, address: str) -> None:
    assert person(destination, resource_type="ClusterLink", resource_name=name).get(address).status_code == 200


@pytest.mark.parametrize("address", [*OF_THE_LINK, *OF_THE_CLUSTER, *FOR_ALL])
def test_a_role_on_a_cluster_shows_all_resources_of_its_links(destination: Cluster, address: str) -> None:
    assert person(destination).get(address).status_code == 200


def test_a_role_on_a_link_shows_the_failover_reports_of_all_mirrors(destination: Cluster) -> None:
    response = person(destination, resource_type="ClusterLink", resource_name="from-", prefixed=True).get(
        f"{LINK}/stop-reports"
    )

    assert {row["mirror_topic_name"] for row in response.json()["data"]} == {"orders", "salaries"}
