"""Topics over REST: what the cluster tells, what it is asked to do, and what a mirror topic refuses."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from console.errors import UnavailableError
from console.models import AuditEvent, Cluster, ClusterLink, Environment, MirrorTopic, RoleBinding
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import MirrorState
from tests.console.api.brokers import RIGHTS, SmallCluster, topic
from tests.console.api.cast import DESTINATION, NOW, Boundary, Rest, make_key

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


def test_what_may_be_done_with_a_topic_is_told_to_who_asks_and_else_left_out(
    owner: Rest, topics: str, make_mirror: Any, cluster: SmallCluster
) -> None:
    make_mirror("orders", MirrorState.PENDING_SETUP)
    asked = "include_authorized_operations=true"

    assert owner.get(f"{topics}/plain?{asked}").json()["authorized_operations"] == RIGHTS
    assert "authorized_operations" not in owner.get(f"{topics}/plain?include_authorized_operations=false").json()
    assert "authorized_operations" not in owner.get(f"{topics}/orders?{asked}").json()  # not on the cluster yet
    assert "authorized_operations" not in owner.get(topics).json()["data"][0]
    assert owner.get(f"{topics}/plain?include_authorized_operations=perhaps").json()["error_code"] == 400
    assert [question for question, _ in cluster.asked].count("topic_rights") == 1


def test_topics_are_listed_with_mirrors_that_are_being_set_up(owner: Rest, topics: str, make_mirror: Any) -> None:
    make_mirror("orders", MirrorState.PENDING_SETUP)
    make_mirror("gone")
    assert owner.get(f"{topics}/orders").json()["topic_name"] == "orders"

    answer = owner.get(topics).json()

    assert answer["kind"] == "KafkaTopicList"
    assert [one["topic_name"] for one in answer["data"]] == ["orders", "plain"]


def test_who_has_a_role_on_one_topic_sees_that_one(
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


def test_an_ordinary_topic_is_deleted_on_its_cluster(owner: Rest, topics: str, cluster: SmallCluster) -> None:
    answer = owner.delete(f"{topics}/plain")

    assert (answer.status_code, answer.content) == (204, b"")
    assert cluster.asked == [("delete_topic", {"topic": "plain"})]
    event = AuditEvent.objects.get(action="DeleteTopic")
    assert (event.resource, event.result) == (f"cluster/{DESTINATION}/topic/plain", "SUCCESS")


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


class TestCreating:
    """POST topics."""

    def test_a_topic_is_created_and_shown(self, owner: Rest, topics: str, cluster: SmallCluster) -> None:
        configs = [{"name": "retention.ms", "value": "1000"}, {"name": "segment.ms", "value": None}]
        answer = owner.post(topics, {"topic_name": "new", "partitions_count": 4, "replication_factor": 1, "configs": configs})

        assert answer.status_code == 201
        assert (answer.json()["topic_name"], answer.json()["partitions_count"]) == ("new", 4)
        asked = {"partitions": 4, "replication_factor": 1, "configs": {"retention.ms": "1000"}}
        assert cluster.asked == [("create_topic", {"topic": "new", "validate_only": False, **asked})]
        assert AuditEvent.objects.get(action="CreateTopic").detail == asked

    def test_validate_only_answers_200_and_leaves_no_trace(self, owner: Rest, topics: str, cluster: SmallCluster) -> None:
        answer = owner.post(topics, {"topic_name": "new", "validate_only": True})

        assert answer.status_code == 200
        assert cluster.asked[0][1]["validate_only"] is True
        assert not AuditEvent.objects.filter(action="CreateTopic").exists()

    def test_a_topic_that_exists_is_40002(self, owner: Rest, topics: str, cluster: SmallCluster) -> None:
        cluster.error = LinkEngineError(ErrorCode.TOPIC_EXISTS_ERROR, "Topic 'plain' already exists.")

        answer = owner.post(topics, {"topic_name": "plain"})

        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
        assert AuditEvent.objects.get(action="CreateTopic").result == "FAILURE"

    @pytest.mark.parametrize("state", [MirrorState.PENDING_SETUP, MirrorState.ACTIVE])
    @pytest.mark.parametrize("validate_only", [True, False])
    def test_the_name_of_a_mirror_is_taken_before_its_topic_is_there(
        self, owner: Rest, topics: str, make_mirror: Any, cluster: SmallCluster, state: MirrorState, validate_only: bool
    ) -> None:
        link = make_mirror("orders", state).link

        answer = owner.post(topics, {"topic_name": "orders", "validate_only": validate_only})

        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
        assert f"mirror topic of cluster link '{link.name}'" in answer.json()["message"]
        assert not cluster.asked

    def test_the_name_of_a_stopped_mirror_is_for_the_cluster_to_judge(
        self, owner: Rest, topics: str, make_mirror: Any, cluster: SmallCluster
    ) -> None:
        make_mirror("orders", MirrorState.STOPPED)

        assert owner.post(topics, {"topic_name": "orders"}).status_code == 201

    @pytest.mark.parametrize(
        ("body", "status"),
        [({}, 422), ({"topic_name": 5}, 400), ({"topic_name": "a", "partitions_count": 0}, 400), ({"topic_name": None}, 400)],
    )
    def test_a_body_that_is_none_is_refused(self, owner: Rest, topics: str, body: dict[str, Any], status: int) -> None:
        assert owner.post(topics, body).status_code == status

    def test_a_reader_may_not(self, reader: Rest, topics: str, cluster: SmallCluster) -> None:
        answers = [
            reader.post(topics, {"topic_name": "new"}),
            reader.delete(f"{topics}/plain"),
            reader.call("patch", f"{topics}/plain", {"partitions_count": 9}),
            reader.put(f"{topics}/plain/configs/retention.ms", {"value": "1"}),
        ]

        assert {(one.status_code, one.json()["error_code"]) for one in answers} == {(403, 40301)}
        assert not cluster.asked


class TestPartitions:
    """PATCH topics/{topic} and topics/{topic}/partitions."""

    def test_a_topic_grows(self, owner: Rest, topics: str) -> None:
        answer = owner.call("patch", f"{topics}/plain", {"partitions_count": 9})

        assert (answer.status_code, answer.json()["partitions_count"]) == (200, 9)

    def test_a_mirror_grows_with_its_source_only(
        self, owner: Rest, topics: str, make_mirror: Any, cluster: SmallCluster
    ) -> None:
        make_mirror("plain")

        answer = owner.call("patch", f"{topics}/plain", {"partitions_count": 9})

        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
        assert not cluster.asked

    def test_a_stopped_mirror_is_an_ordinary_topic(self, owner: Rest, topics: str, make_mirror: Any) -> None:
        make_mirror("plain", MirrorState.STOPPED)

        assert owner.call("patch", f"{topics}/plain", {"partitions_count": 9}).status_code == 200
        assert owner.put(f"{topics}/plain/configs/retention.ms", {"value": "1"}).status_code == 204

    def test_partitions_are_listed(self, owner: Rest, topics: str) -> None:
        answer = owner.get(f"{topics}/plain/partitions").json()

        here = f"http://testserver{topics}/plain/partitions/0"
        assert answer["kind"] == "KafkaPartitionList"
        assert answer["data"][0] == {
            "kind": "KafkaPartition",
            "metadata": {"self": here, "resource_name": f"crn:///kafka={DESTINATION}/topic=plain/partition=0"},
            "cluster_id": DESTINATION,
            "topic_name": "plain",
            "partition_id": 0,
            "leader": {"related": f"{here}/replicas/1"},
            "replicas": {"related": f"{here}/replicas"},
            "reassignment": {"related": f"{here}/reassignment"},
        }
        assert "leader" not in answer["data"][2]

    def test_a_partition_and_its_replicas_are_shown(self, owner: Rest, topics: str) -> None:
        assert owner.get(f"{topics}/plain/partitions/1").json()["partition_id"] == 1
        replicas = owner.get(f"{topics}/plain/partitions/1/replicas").json()
        assert replicas["kind"] == "KafkaReplicaList"
        assert [(one["broker_id"], one["is_leader"], one["is_in_sync"]) for one in replicas["data"]] == [
            (1, True, True),
            (2, False, False),
        ]

    def test_an_unknown_partition_is_40402(self, owner: Rest, topics: str) -> None:
        answer = owner.get(f"{topics}/plain/partitions/7")

        assert (answer.status_code, answer.json()["error_code"]) == (404, 40402)


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

    answer = owner.get(topics)

    assert (answer.status_code, answer.json()) == (status, {"error_code": error_code, "message": "What happened."})


def test_where_nobody_answers_it_is_503(owner: Rest, topics: str, boundary: Boundary) -> None:
    boundary.error = UnavailableError("No worker answers.")

    assert owner.get(topics).json() == {"error_code": 50302, "message": "No worker answers."}


def test_a_change_that_nobody_has_told_of_is_neither_called_done_nor_not_done(
    owner: Rest, topics: str, boundary: Boundary
) -> None:
    boundary.error = UnavailableError("The worker did not finish.", code="WORKER_UNAVAILABLE")

    answer = owner.post(topics, {"topic_name": "plain"})

    assert (answer.status_code, answer.json()["error_code"]) == (503, 50302)
    assert answer.json()["message"].startswith("The worker did not finish. It is unknown whether the change was made")
    checked = owner.post(topics, {"topic_name": "plain", "validate_only": True})
    assert checked.json()["message"] == "The worker did not finish."
