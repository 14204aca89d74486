"""REST API of clusters."""

import pytest

from console.models import Cluster
from tests.console.api.actors import DESTINATION, Rest

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("prefix", ["/kafka/v3", "/v3"])
def test_a_cluster_is_shown_with_the_exact_envelope(owner: Rest, destination: Cluster, prefix: str) -> None:
    here = f"http://testserver{prefix}/clusters/{DESTINATION}"

    assert owner.get(f"{prefix}/clusters/{DESTINATION}").json() == {
        "kind": "KafkaCluster",
        "metadata": {"self": here, "resource_name": f"crn:///kafka={DESTINATION}"},
        "cluster_id": DESTINATION,
        "acls": {"related": f"{here}/acls"},
        "brokers": {"related": f"{here}/brokers"},
        "broker_configs": {"related": f"{here}/broker-configs"},
        "consumer_groups": {"related": f"{here}/consumer-groups"},
        "topics": {"related": f"{here}/topics"},
        "partition_reassignments": {"related": f"{here}/topics/-/partitions/-/reassignment"},
    }


def test_clusters_are_listed(owner: Rest, destination: Cluster, source: Cluster) -> None:
    response = owner.get("/kafka/v3/clusters").json()

    assert response["kind"] == "KafkaClusterList"
    assert response["metadata"] == {"self": "http://testserver/kafka/v3/clusters", "next": None}
    assert [cluster["cluster_id"] for cluster in response["data"]] == [destination.cluster_id, source.cluster_id]


def test_a_stranger_sees_no_cluster(stranger: Rest, destination: Cluster) -> None:
    assert stranger.get("/kafka/v3/clusters").json()["data"] == []
    response = stranger.get(f"/kafka/v3/clusters/{DESTINATION}")
    assert response.status_code == 404
    assert response.json() == {
        "error_code": 404,
        "message": f"Cluster {DESTINATION} cannot be found. Check the ID, and that you have a role on it.",
    }
