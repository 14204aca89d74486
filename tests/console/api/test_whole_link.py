"""Who may see one topic sees its link, but not what is told of all the link's mirrors together."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from console.models import Cluster, ClusterLink, Drill, RoleBinding, StopReport
from tests.console.api.cast import DESTINATION, NOW, Rest, make_key

pytestmark = pytest.mark.django_db
OURS = f"/api/v1/clusters/{DESTINATION}"
LINK = f"{OURS}/links/from-source"
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
OF_THE_CLUSTER = (f"{OURS}/namespaces",)
# Lists that hold the rows of one's own mirrors only.
FOR_ALL = (
    f"{LINK}/stop-reports",
    f"{LINK}/previews?operation=pause",
    KAFKA,
    f"{KAFKA}/from-source",
    f"{KAFKA}/from-source/mirrors",
)


@pytest.fixture(autouse=True)
def mirrors(link: ClusterLink, make_mirror: Any) -> None:
    """Two mirrors, each stopped once, and a drill of both."""
    for name, lost in (("orders", 1), ("salaries", 99)):
        report = {"reason": "failover", "requested_by": "owner", "requested_at": NOW, "writable_at": NOW, "partitions": []}
        StopReport.objects.create(mirror=make_mirror(name), records_not_copied=lost, rpo_ms=lost, rto_ms=lost, **report)
    asked = {"status": "DONE", "status_since": NOW, "start_spec": "latest", "requested_by": "owner", "requested_at": NOW}
    Drill.objects.create(pk=1, link=link, topics=["orders", "salaries"], **asked)


def person(cluster: Cluster, **resource: Any) -> Rest:
    user = User.objects.create_user("narrow")
    role = RoleBinding.Role.DEVELOPER_READ
    RoleBinding.objects.create(user=user, role=role, cluster=cluster, granted_at=NOW, granted_by="test", **resource)
    api_key, secret = make_key(user)
    return Rest(api_key.key, secret)


@pytest.fixture
def narrow(destination: Cluster) -> Rest:
    """May see one topic."""
    return person(destination, resource_type="Topic", resource_name="orders")


@pytest.mark.parametrize("address", [*OF_THE_LINK, *OF_THE_CLUSTER])
def test_who_may_see_one_topic_is_refused_and_told_which_role_would_do(narrow: Rest, address: str) -> None:
    answer = narrow.get(address)

    assert answer.status_code == 403
    assert "DeveloperRead" in answer.json()["message"]
    assert "salaries" not in answer.content.decode()


@pytest.mark.parametrize("address", FOR_ALL)
def test_who_may_see_one_topic_sees_nothing_of_another(narrow: Rest, address: str) -> None:
    answer = narrow.get(address)

    assert answer.status_code == 200
    assert "salaries" not in answer.content.decode()


def test_who_may_see_one_topic_sees_its_own_stops_and_their_sum(narrow: Rest) -> None:
    answer = narrow.get(f"{LINK}/stop-reports").json()

    assert [one["mirror_topic_name"] for one in answer["data"]] == ["orders"]
    assert answer["totals"] == {"mirrors": 1, "records_not_copied": 1, "worst_rpo_ms": 1, "worst_rto_ms": 1}


@pytest.mark.parametrize("address", [*OF_THE_LINK, *FOR_ALL])
@pytest.mark.parametrize("name", ["from-source", "*"])
def test_who_may_see_the_link_sees_all_of_it(destination: Cluster, name: str, address: str) -> None:
    assert person(destination, resource_type="ClusterLink", resource_name=name).get(address).status_code == 200


@pytest.mark.parametrize("address", [*OF_THE_LINK, *OF_THE_CLUSTER, *FOR_ALL])
def test_who_may_see_the_cluster_sees_all_of_its_links(destination: Cluster, address: str) -> None:
    assert person(destination).get(address).status_code == 200


def test_the_stops_of_every_mirror_are_told_to_who_may_see_the_link(destination: Cluster) -> None:
    answer = person(destination, resource_type="ClusterLink", resource_name="from-", prefixed=True).get(f"{LINK}/stop-reports")

    assert {one["mirror_topic_name"] for one in answer.json()["data"]} == {"orders", "salaries"}
