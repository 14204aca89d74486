"""Clusters and topics over REST."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from console.models import Cluster, ClusterLink, Environment, MirrorTopic, RoleBinding, SourceTopic
from linkengine.domain.states import MirrorState
from tests.console.api.cast import DESTINATION, NOW, Rest, make_key

pytestmark = pytest.mark.django_db


@pytest.fixture
def topics(destination: Cluster) -> str:
    """An ordinary topic of the destination, as seen on the last look."""
    SourceTopic.objects.create(cluster=destination, name="plain", partitions=3, replication_factor=2, seen_at=NOW)
    return f"/kafka/v3/clusters/{DESTINATION}/topics"


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
    answer = owner.get("/kafka/v3/clusters").json()

    assert answer["kind"] == "KafkaClusterList"
    assert answer["metadata"] == {"self": "http://testserver/kafka/v3/clusters", "next": None}
    assert [one["cluster_id"] for one in answer["data"]] == [destination.cluster_id, source.cluster_id]


def test_a_stranger_sees_no_cluster(stranger: Rest, destination: Cluster) -> None:
    assert stranger.get("/kafka/v3/clusters").json()["data"] == []
    answer = stranger.get(f"/kafka/v3/clusters/{DESTINATION}")
    assert answer.status_code == 404
    assert answer.json() == {"error_code": 404, "message": f"Cluster {DESTINATION} cannot be found."}


def test_a_topic_is_shown_with_the_exact_envelope(owner: Rest, topics: str) -> None:
    here = f"http://testserver{topics}/plain"

    assert owner.get(f"{topics}/plain").json() == {
        "kind": "KafkaTopic",
        "metadata": {"self": here, "resource_name": f"crn:///kafka={DESTINATION}/topic=plain"},
        "cluster_id": DESTINATION,
        "topic_name": "plain",
        "is_internal": False,
        "replication_factor": 2,
        "partitions_count": 3,
        "partitions": {"related": f"{here}/partitions"},
        "configs": {"related": f"{here}/configs"},
        "partition_reassignments": {"related": f"{here}/partitions/-/reassignment"},
        "authorized_operations": [],
    }


def test_topics_are_listed_with_mirrors_that_no_look_has_seen(owner: Rest, topics: str, make_mirror: Any) -> None:
    make_mirror("orders")

    answer = owner.get(topics).json()

    assert answer["kind"] == "KafkaTopicList"
    assert [one["topic_name"] for one in answer["data"]] == ["orders", "plain"]


def test_who_has_a_role_on_one_topic_sees_that_one(environment: Environment, destination: Cluster, topics: str) -> None:
    user = User.objects.create_user("narrow")
    RoleBinding.objects.create(
        user=user,
        role=RoleBinding.Role.DEVELOPER_READ,
        cluster=destination,
        resource_type="Topic",
        resource_name="other",
        granted_at=NOW,
        granted_by="test",
    )
    SourceTopic.objects.create(cluster=destination, name="other", partitions=1, seen_at=NOW)
    api_key, secret = make_key(user)
    narrow = Rest(api_key.key, secret)

    assert [one["topic_name"] for one in narrow.get(topics).json()["data"]] == ["other"]
    assert narrow.get(f"{topics}/plain").status_code == 404


def test_an_unknown_topic_is_40401(owner: Rest, topics: str) -> None:
    for answer in (owner.get(f"{topics}/none"), owner.delete(f"{topics}/none")):
        assert answer.status_code == 404
        assert answer.json() == {"error_code": 40401, "message": "Topic 'none' cannot be found on this cluster."}


@pytest.mark.parametrize("state", [MirrorState.ACTIVE, MirrorState.STOPPED, MirrorState.FAILED])
def test_deleting_the_topic_of_a_mirror_answers_204(owner: Rest, topics: str, make_mirror: Any, state: MirrorState) -> None:
    make_mirror("orders", state)

    answer = owner.delete(f"{topics}/orders")

    assert (answer.status_code, answer.content) == (204, b"")
    assert MirrorTopic.objects.get().deletion_requested_at is not None


def test_deleting_twice_is_as_good_as_once(owner: Rest, topics: str, make_mirror: Any) -> None:
    make_mirror("orders")

    assert owner.delete(f"{topics}/orders").status_code == 204
    assert owner.delete(f"{topics}/orders").status_code == 204


def test_an_ordinary_topic_is_not_deleted(owner: Rest, topics: str) -> None:
    answer = owner.delete(f"{topics}/plain")

    assert answer.status_code == 400
    message = "Topic 'plain' is no mirror topic. Only mirror topics can be deleted here."
    assert answer.json() == {"error_code": 40002, "message": message}


def test_of_two_mirrors_of_one_topic_the_newer_is_deleted(
    owner: Rest, topics: str, link: ClusterLink, make_mirror: Any
) -> None:
    old = make_mirror("orders", MirrorState.STOPPED)
    other = ClusterLink.objects.get(pk=link.pk)
    other.pk, other.link_uuid, other.name = None, "00000000-0000-0000-0000-000000000001", "other"
    other.save(force_insert=True)
    new = make_mirror("orders", link=other)
    MirrorTopic.objects.filter(pk=new.pk).update(created_at=NOW + timedelta(days=1))

    assert owner.delete(f"{topics}/orders").status_code == 204

    assert list(MirrorTopic.objects.filter(deletion_requested_at=None)) == [old]


def test_a_reader_may_not_delete_a_topic(reader: Rest, topics: str, make_mirror: Any) -> None:
    make_mirror("orders")

    answer = reader.delete(f"{topics}/orders")

    assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)
