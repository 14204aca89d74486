"""REST API of consumer groups: groups, members, lags; an unknown lag is -1, never 0."""

import pytest

from console.models import Cluster, RoleBinding
from tests.console.api.actors import DESTINATION, Rest
from tests.console.api.brokers import SmallCluster, lag

pytestmark = pytest.mark.django_db


@pytest.fixture
def groups(destination: Cluster) -> str:
    return f"/kafka/v3/clusters/{destination.cluster_id}/consumer-groups"


def test_a_group_is_shown_with_the_exact_envelope(owner: Rest, groups: str) -> None:
    here, brokers = f"http://testserver{groups}/readers", f"http://testserver/kafka/v3/clusters/{DESTINATION}/brokers"

    shown = owner.get(f"{groups}/readers").json()

    assert shown == {
        "kind": "KafkaConsumerGroup",
        "metadata": {"self": here, "resource_name": f"crn:///kafka={DESTINATION}/consumer-group=readers"},
        "cluster_id": DESTINATION,
        "consumer_group_id": "readers",
        "is_simple": False,
        "partition_assignor": "range",
        "state": "STABLE",
        "type": "CLASSIC",
        "is_mixed_consumer_group": False,
        "coordinator": {"related": f"{brokers}/1"},
        "consumers": {"related": f"{here}/consumers"},
        "lag_summary": {"related": f"{here}/lag-summary"},
    }
    listed = owner.get(groups).json()
    assert (listed["kind"], listed["data"]) == ("KafkaConsumerGroupList", [shown])


def test_members_are_listed(owner: Rest, groups: str) -> None:
    response = owner.get(f"{groups}/readers/consumers").json()

    assert response["kind"] == "KafkaConsumerList"
    members = [(member["consumer_id"], member["client_id"], member["instance_id"]) for member in response["data"]]
    assert members == [("c-1", "app", None)]


def test_lags_are_listed(owner: Rest, groups: str, cluster: SmallCluster) -> None:
    cluster.lags.append(lag(2, behind=None))

    response = owner.get(f"{groups}/readers/lags").json()

    assert response["kind"] == "KafkaConsumerLagList"
    fields = ("partition_id", "current_offset", "log_end_offset", "lag", "consumer_id")
    assert [tuple(row[field] for field in fields) for row in response["data"]] == [
        (0, 10, 14, 4, "c-1"),
        (1, 10, 16, 6, "c-1"),
        (2, 10, -1, -1, "c-1"),
    ]


def test_the_lag_summary_has_the_largest_lag_and_the_sum(owner: Rest, groups: str) -> None:
    response = owner.get(f"{groups}/readers/lag-summary").json()

    assert response["kind"] == "KafkaConsumerGroupLagSummary"
    assert (response["max_lag"], response["total_lag"], response["max_lag_partition_id"]) == (6, 10, 1)


def test_an_unknown_lag_makes_the_sum_unknown(owner: Rest, groups: str, cluster: SmallCluster) -> None:
    cluster.lags.append(lag(2, behind=None))

    response = owner.get(f"{groups}/readers/lag-summary").json()

    assert (response["max_lag"], response["total_lag"], response["max_lag_partition_id"]) == (-1, -1, 2)


def test_a_group_without_offsets_has_no_lag(owner: Rest, groups: str, cluster: SmallCluster) -> None:
    cluster.lags = []

    assert owner.get(f"{groups}/readers/lags").json()["data"] == []
    assert owner.get(f"{groups}/readers/lag-summary").status_code == 404


@pytest.mark.parametrize("more", ["", "/consumers", "/lags", "/lag-summary"])
def test_an_unknown_group_is_404(owner: Rest, groups: str, more: str) -> None:
    response = owner.get(f"{groups}/none{more}")

    assert response.status_code == 404
    assert response.json() == {
        "error_code": 404,
        "message": "Consumer group none cannot be found. Check the name, and that you have a role on it.",
    }


def test_a_role_on_another_group_does_not_show_the_group(reader: Rest, groups: str, destination: Cluster) -> None:
    assert len(reader.get(groups).json()["data"]) == 1
    RoleBinding.objects.update(environment=None, cluster=destination, resource_type="Group", resource_name="others")

    assert reader.get(groups).json()["data"] == []
    assert reader.get(f"{groups}/readers").status_code == 404
