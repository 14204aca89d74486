"""REST API of topics: list, create, delete, partitions, and refusals for mirror topics."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from console.errors import UnavailableError
from console.models import AuditEvent, Cluster, ClusterLink, Environment, MirrorTopic, RoleBinding
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import MirrorState
from tests.console.api.actors import DESTINATION, NOW, Boundary, Rest, make_key
from tests.console.api.brokers import RIGHTS, SmallCluster, topic

pytestmark = pytest.mark.django_db


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
    }


def test_authorized_operations_are_included_only_on_request(
    owner: Rest, topics: str, make_mirror: Any, cluster: SmallCluster
) -> None:
    make_mirror("orders", MirrorState.PENDING_SETUP)
    requested = "include_authorized_operations=true"

    assert owner.get(f"{topics}/plain?{requested}").json()["authorized_operations"] == RIGHTS
    assert "authorized_operations" not in owner.get(f"{topics}/plain?include_authorized_operations=false").json()
    assert "authorized_operations" not in owner.get(f"{topics}/orders?{requested}").json()  # not on the cluster yet
    assert "authorized_operations" not in owner.get(topics).json()["data"][0]
    assert owner.get(f"{topics}/plain?include_authorized_operations=perhaps").json()["error_code"] == 400
    assert [question for question, _ in cluster.queries].count("topic_rights") == 1


def test_topics_are_listed_with_mirrors_that_are_being_set_up(owner: Rest, topics: str, make_mirror: Any) -> None:
    make_mirror("orders", MirrorState.PENDING_SETUP)
    make_mirror("gone")
    assert owner.get(f"{topics}/orders").json()["topic_name"] == "orders"

    response = owner.get(topics).json()

    assert response["kind"] == "KafkaTopicList"
    assert [topic["topic_name"] for topic in response["data"]] == ["orders", "plain"]


def test_a_role_on_a_topic_shows_only_that_topic(
    environment: Environment, destination: Cluster, topics: str, cluster: SmallCluster
) -> None:
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
    cluster.topics["other"] = topic("other")
    api_key, secret = make_key(user)
    narrow = Rest(api_key.key, secret)

    assert [row["topic_name"] for row in narrow.get(topics).json()["data"]] == ["other"]
    assert narrow.get(f"{topics}/plain").status_code == 404


def test_an_unknown_topic_is_40401(owner: Rest, topics: str) -> None:
    for response in (owner.get(f"{topics}/none"), owner.delete(f"{topics}/none")):
        assert response.status_code == 404
        assert response.json() == {
            "error_code": 40401,
            "message": "Topic 'none' cannot be found on this cluster. Check the name, and that you have a role on it.",
        }


@pytest.mark.parametrize("state", [MirrorState.ACTIVE, MirrorState.STOPPED, MirrorState.FAILED])
def test_deleting_the_topic_of_a_mirror_returns_204(owner: Rest, topics: str, make_mirror: Any, state: MirrorState) -> None:
    make_mirror("orders", state)

    response = owner.delete(f"{topics}/orders")

    assert (response.status_code, response.content) == (204, b"")
    assert MirrorTopic.objects.get().deletion_requested_at is not None


def test_deleting_a_mirror_topic_is_idempotent(owner: Rest, topics: str, make_mirror: Any) -> None:
    make_mirror("orders")

    assert owner.delete(f"{topics}/orders").status_code == 204
    assert owner.delete(f"{topics}/orders").status_code == 204


def test_an_ordinary_topic_is_deleted_on_its_cluster(owner: Rest, topics: str, cluster: SmallCluster) -> None:
    response = owner.delete(f"{topics}/plain")

    assert (response.status_code, response.content) == (204, b"")
    assert cluster.queries == [("delete_topic", {"topic": "plain"})]
    event = AuditEvent.objects.get(action="DeleteTopic")
    assert (event.resource, event.result) == (f"cluster/{DESTINATION}/topic/plain", "SUCCESS")


@pytest.mark.parametrize("name", ["plain", "orders"])
def test_the_response_to_a_deletion_warns_of_mirrors_that_copy_from_the_topic(
    owner: Rest, topics: str, make_mirror: Any, other_side: ClusterLink, name: str
) -> None:
    """An ordinary topic and a mirror topic. Quotes and backslashes in a cluster's name are escaped (RFC 9110, 5.6.4)."""
    make_mirror("orders")
    Cluster.objects.filter(pk=other_side.destination_id).update(name='West "2\\')
    assert "Warning" not in owner.delete(f"{topics}/{name}").headers
    MirrorTopic.objects.all().delete()
    make_mirror("orders", MirrorState.STOPPED)
    make_mirror("copy", link=other_side, source_topic=name)

    response = owner.delete(f"{topics}/{name}")

    assert response.status_code == 204
    text = f"Mirror topics copy from '{name}': 'copy' on cluster 'West \\\"2\\\\' (link 'from-source')."
    assert response.headers["Warning"].startswith(f'299 clusterlink "{text} They become FAILED')


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

    response = reader.delete(f"{topics}/orders")

    assert (response.status_code, response.json()["error_code"]) == (403, 40301)


class TestCreating:
    """POST topics."""

    def test_a_topic_is_created_and_shown(self, owner: Rest, topics: str, cluster: SmallCluster) -> None:
        configs = [{"name": "retention.ms", "value": "1000"}, {"name": "segment.ms", "value": None}]
        response = owner.post(topics, {"topic_name": "new", "partitions_count": 4, "replication_factor": 1, "configs": configs})

        assert response.status_code == 201
        assert (response.json()["topic_name"], response.json()["partitions_count"]) == ("new", 4)
        requested = {"partitions": 4, "replication_factor": 1, "configs": {"retention.ms": "1000"}}
        assert cluster.queries == [("create_topic", {"topic": "new", "validate_only": False, **requested})]
        assert AuditEvent.objects.get(action="CreateTopic").detail == requested

    def test_validate_only_returns_200_without_an_audit_row(self, owner: Rest, topics: str, cluster: SmallCluster) -> None:
        response = owner.post(topics, {"topic_name": "new", "validate_only": True})

        assert response.status_code == 200
        assert cluster.queries[0][1]["validate_only"] is True
        assert not AuditEvent.objects.filter(action="CreateTopic").exists()

    def test_a_topic_that_exists_is_40002(self, owner: Rest, topics: str, cluster: SmallCluster) -> None:
        cluster.error = LinkEngineError(ErrorCode.TOPIC_EXISTS_ERROR, "Topic 'plain' already exists.")

        response = owner.post(topics, {"topic_name": "plain"})

        assert (response.status_code, response.json()["error_code"]) == (400, 40002)
        assert AuditEvent.objects.get(action="CreateTopic").result == "FAILURE"

    @pytest.mark.parametrize("state", [MirrorState.PENDING_SETUP, MirrorState.ACTIVE])
    @pytest.mark.parametrize("validate_only", [True, False])
    def test_the_name_of_a_mirror_is_reserved_before_its_topic_exists(
        self, owner: Rest, topics: str, make_mirror: Any, cluster: SmallCluster, state: MirrorState, validate_only: bool
    ) -> None:
        link = make_mirror("orders", state).link

        response = owner.post(topics, {"topic_name": "orders", "validate_only": validate_only})

        assert (response.status_code, response.json()["error_code"]) == (400, 40002)
        assert f"mirror topic of cluster link '{link.name}'" in response.json()["message"]
        assert not cluster.queries

    def test_the_name_of_a_stopped_mirror_is_checked_by_the_cluster_only(
        self, owner: Rest, topics: str, make_mirror: Any, cluster: SmallCluster
    ) -> None:
        make_mirror("orders", MirrorState.STOPPED)

        assert owner.post(topics, {"topic_name": "orders"}).status_code == 201

    @pytest.mark.parametrize(
        ("body", "status"),
        [({}, 422), ({"topic_name": 5}, 400), ({"topic_name": "a", "partitions_count": 0}, 400), ({"topic_name": None}, 400)],
    )
    def test_an_invalid_body_is_refused(self, owner: Rest, topics: str, body: dict[str, Any], status: int) -> None:
        assert owner.post(topics, body).status_code == status

    def test_a_reader_may_not_change_topics(self, reader: Rest, topics: str, cluster: SmallCluster) -> None:
        responses = [
            reader.post(topics, {"topic_name": "new"}),
            reader.delete(f"{topics}/plain"),
            reader.call("patch", f"{topics}/plain", {"partitions_count": 9}),
            reader.put(f"{topics}/plain/configs/retention.ms", {"value": "1"}),
        ]

        assert {(refused.status_code, refused.json()["error_code"]) for refused in responses} == {(403, 40301)}
        assert not cluster.queries


class TestPartitions:
    """PATCH topics/{topic} and topics/{topic}/partitions."""

    def test_partitions_are_added_to_a_topic(self, owner: Rest, topics: str) -> None:
        response = owner.call("patch", f"{topics}/plain", {"partitions_count": 9})

        assert (response.status_code, response.json()["partitions_count"]) == (200, 9)

    def test_partitions_cannot_be_added_to_a_mirror(
        self, owner: Rest, topics: str, make_mirror: Any, cluster: SmallCluster
    ) -> None:
        make_mirror("plain")

        response = owner.call("patch", f"{topics}/plain", {"partitions_count": 9})

        assert (response.status_code, response.json()["error_code"]) == (400, 40002)
        assert not cluster.queries

    def test_a_stopped_mirror_is_an_ordinary_topic(self, owner: Rest, topics: str, make_mirror: Any) -> None:
        make_mirror("plain", MirrorState.STOPPED)

        assert owner.call("patch", f"{topics}/plain", {"partitions_count": 9}).status_code == 200
        assert owner.put(f"{topics}/plain/configs/retention.ms", {"value": "1"}).status_code == 204

    def test_partitions_are_listed(self, owner: Rest, topics: str) -> None:
        response = owner.get(f"{topics}/plain/partitions").json()

        here = f"http://testserver{topics}/plain/partitions/0"
        assert response["kind"] == "KafkaPartitionList"
        assert response["data"][0] == {
            "kind": "KafkaPartition",
            "metadata": {"self": here, "resource_name": f"crn:///kafka={DESTINATION}/topic=plain/partition=0"},
            "cluster_id": DESTINATION,
            "topic_name": "plain",
            "partition_id": 0,
            "leader": {"related": f"{here}/replicas/1"},
            "replicas": {"related": f"{here}/replicas"},
            "reassignment": {"related": f"{here}/reassignment"},
        }
        assert "leader" not in response["data"][2]

    def test_a_partition_and_its_replicas_are_shown(self, owner: Rest, topics: str) -> None:
        assert owner.get(f"{topics}/plain/partitions/1").json()["partition_id"] == 1
        replicas = owner.get(f"{topics}/plain/partitions/1/replicas").json()
        assert replicas["kind"] == "KafkaReplicaList"
        assert [(row["broker_id"], row["is_leader"], row["is_in_sync"]) for row in replicas["data"]] == [
            (1, True, True),
            (2, False, False),
        ]

    def test_an_unknown_partition_is_40402(self, owner: Rest, topics: str) -> None:
        response = owner.get(f"{topics}/plain/partitions/7")

        assert (response.status_code, response.json()["error_code"]) == (404, 40402)


@pytest.mark.parametrize(
    ("code", "status", "error_code"),
    [
        (ErrorCode.AUTHORIZATION_ERROR, 403, 40301),
        (ErrorCode.UNSUPPORTED_VERSION_ERROR, 400, 40035),
        (ErrorCode.POLICY_VIOLATION_ERROR, 400, 40002),
        (ErrorCode.SECURITY_DISABLED_ERROR, 400, 40002),
        (ErrorCode.AUTHENTICATION_ERROR, 500, 50002),
        (ErrorCode.INTERNAL_ERROR, 500, 50002),
        (ErrorCode.TIMEOUT_ERROR, 500, 50003),
        (ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, 503, 50302),
        (ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, 503, 50302),
    ],
)
def test_each_failure_of_a_cluster_has_its_code(
    owner: Rest, topics: str, cluster: SmallCluster, code: ErrorCode, status: int, error_code: int
) -> None:
    cluster.error = LinkEngineError(code, "What happened.")

    response = owner.get(topics)

    assert (response.status_code, response.json()) == (status, {"error_code": error_code, "message": "What happened."})


def test_an_unavailable_worker_is_503(owner: Rest, topics: str, boundary: Boundary) -> None:
    boundary.error = UnavailableError("No worker responds.")

    assert owner.get(topics).json() == {"error_code": 50302, "message": "No worker responds."}


def test_a_change_without_a_result_is_reported_as_unknown(owner: Rest, topics: str, boundary: Boundary) -> None:
    boundary.error = UnavailableError("The worker did not finish.", code="WORKER_UNAVAILABLE")

    response = owner.post(topics, {"topic_name": "plain"})

    assert (response.status_code, response.json()["error_code"]) == (503, 50302)
    assert response.json()["message"].startswith("The worker did not finish. It is unknown whether the change was made")
    checked = owner.post(topics, {"topic_name": "plain", "validate_only": True})
    assert checked.json()["message"] == "The worker did not finish."
