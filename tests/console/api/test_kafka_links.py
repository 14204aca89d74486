"""Cluster links over REST: exact envelopes, what creation asks for, what deletion refuses."""

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from console.errors import UnavailableError
from console.models import AuditEvent, Cluster, ClusterLink, LinkConfig, LinkTask, VerifyRun
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import LinkState, MirrorState
from tests.console.api.cast import DESTINATION, NOW, SOURCE, Boundary, Rest, make_key

pytestmark = pytest.mark.django_db
BODY = {
    "source_cluster_id": SOURCE,
    "configs": [
        {"name": "bootstrap.servers", "value": "source.test:9092"},
        {"name": "security.protocol", "value": "PLAINTEXT"},
        {"name": "topic.config.sync.ms", "value": "7000"},
    ],
}


def categories(**counts: int) -> list[dict[str, Any]]:
    names = ("ACTIVE", "PAUSED", "PENDING", "NOT_APPLICABLE", "IN_ERROR")
    return [{"state_category": name, "count": counts.get(name, 0)} for name in names]


def test_a_link_is_shown_with_the_exact_envelope(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    make_mirror("orders")
    make_mirror("old", MirrorState.STOPPED)

    answer = owner.get(f"{base}/links/from-source")

    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/json"
    assert answer.json() == {
        "kind": "KafkaLinkData",
        "metadata": {"self": f"http://testserver{base}/links/from-source"},
        "link_name": "from-source",
        "link_id": str(link.link_uuid),
        "cluster_link_id": base64.urlsafe_b64encode(link.link_uuid.bytes).decode()[:22],
        "source_cluster_id": SOURCE,
        "destination_cluster_id": None,
        "remote_cluster_id": None,
        "topic_names": ["old", "orders"],
        "link_state": "ACTIVE",
        "link_error": "NO_ERROR",
        "link_error_message": None,
        "tasks": None,
        "category_counts": categories(ACTIVE=1, NOT_APPLICABLE=1),
    }


def test_links_are_listed_completely(owner: Rest, base: str, link: ClusterLink) -> None:
    answer = owner.get(f"{base}/links").json()

    assert answer["kind"] == "KafkaLinkDataList"
    assert answer["metadata"] == {"self": f"http://testserver{base}/links", "next": None}
    assert [one["link_name"] for one in answer["data"]] == ["from-source"]


def test_a_list_costs_the_same_queries_for_many_links(
    owner: Rest, base: str, link: ClusterLink, django_assert_max_num_queries: Any
) -> None:
    for number in range(20):
        link.pk, link.link_uuid, link.name = None, f"00000000-0000-0000-0000-{number:012}", f"link-{number}"
        link.save(force_insert=True)

    with django_assert_max_num_queries(12):
        assert len(owner.get(f"{base}/links").json()["data"]) == 21


def test_both_prefixes_answer_and_address_themselves(owner: Rest, link: ClusterLink) -> None:
    answer = owner.get(f"/v3/clusters/{DESTINATION}/links/from-source").json()

    assert answer["metadata"]["self"] == f"http://testserver/v3/clusters/{DESTINATION}/links/from-source"


def test_a_broken_link_tells_its_error(owner: Rest, base: str, link: ClusterLink) -> None:
    ClusterLink.objects.update(state=LinkState.FAILED, error_code="AUTHENTICATION_ERROR", error_message="Wrong password.")

    answer = owner.get(f"{base}/links/from-source").json()

    assert (answer["link_state"], answer["link_error"]) == ("FAILED", "AUTHENTICATION_ERROR")
    assert answer["link_error_message"] == "Wrong password."


def test_tasks_tell_what_runs_and_what_nobody_asked_for(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    VerifyRun.objects.create(mirror=mirror, status="DIFFERENT", differences=3, requested_by="owner", requested_at=NOW)
    LinkConfig.objects.create(link=link, name="auto.create.mirror.topics.enable", value="true")
    LinkTask.objects.create(link=link, name="TopicConfigsSync", finished_at=NOW)

    tasks = owner.get(f"{base}/links/from-source?include_tasks=true").json()["tasks"]

    assert {one["task_name"]: one["state"] for one in tasks} == {
        "MirrorTopicCopy": "ACTIVE",
        "MirrorTopicVerify": "IN_ERROR",
        "TopicConfigsSync": "ACTIVE",
        "AutoCreateMirror": "UNKNOWN",
        "ConsumerOffsetSync": "NOT_CONFIGURED",
        "AclSync": "NOT_CONFIGURED",
    }
    assert tasks[1]["errors"] == [{"error_code": "RECORDS_DIFFER", "error_message": "orders: 3 records differ."}]


def test_records_that_differ_are_told_by_the_verify_task_alone(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any
) -> None:
    mirror = make_mirror("orders")
    mirror.transition_errors.create(code="RECORDS_DIFFER", message="3 differ.", since=NOW, last_seen_at=NOW)

    copy, verify, *_ = owner.get(f"{base}/links/from-source?include_tasks=true").json()["tasks"]

    assert (copy["state"], copy["errors"]) == ("ACTIVE", [])
    assert (verify["state"], verify["errors"]) == (
        "IN_ERROR",
        [{"error_code": "RECORDS_DIFFER", "error_message": "3 differ."}],
    )


def test_the_copy_task_repeats_the_errors_of_its_mirrors(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    mirror.transition_errors.create(code="WAITING_FOR_LAG", message="5 records to go.", since=NOW, last_seen_at=NOW)

    task = owner.get(f"{base}/links/from-source?include_tasks=true").json()["tasks"][0]

    assert (task["task_name"], task["state"]) == ("MirrorTopicCopy", "IN_ERROR")
    assert task["errors"] == [{"error_code": "WAITING_FOR_LAG", "error_message": "5 records to go."}]


@pytest.mark.parametrize(
    ("state", "shown"),
    [("PAUSED", "LINK_PAUSED"), ("FAILED", "LINK_FAILED"), ("UNAVAILABLE", "LINK_UNAVAILABLE")],
)
def test_tasks_of_a_link_that_is_down_say_so(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any, state: str, shown: str
) -> None:
    make_mirror("orders")
    ClusterLink.objects.update(state=state)

    assert owner.get(f"{base}/links/from-source?include_tasks=true").json()["tasks"][0]["state"] == shown


def test_creating_a_link_answers_204_and_stores_it(owner: Rest, base: str, source: Any, boundary: Boundary) -> None:
    answer = owner.post(f"{base}/links?link_name=new", BODY)

    assert (answer.status_code, answer.content) == (204, b"")
    stored = ClusterLink.objects.get(name="new")
    assert (stored.source, stored.source_cluster_id) == (source, SOURCE)
    assert boundary.called
    assert AuditEvent.objects.filter(action="CreateClusterLink", actor__startswith="owner (API key ").exists()


def test_validate_only_asks_the_source_and_stores_nothing(owner: Rest, base: str, source: Any, boundary: Boundary) -> None:
    answer = owner.post(f"{base}/links?link_name=new&validate_only=true", BODY)

    assert (answer.status_code, answer.content) == (204, b"")
    assert boundary.called
    assert not ClusterLink.objects.exists()


def test_without_validate_link_the_source_is_not_asked(owner: Rest, base: str, boundary: Boundary) -> None:
    answer = owner.post(f"{base}/links?link_name=new&validate_link=false", BODY)

    assert answer.status_code == 204
    assert not boundary.called


@pytest.mark.parametrize("query", ["", "?link_name="])
def test_a_link_needs_a_name(owner: Rest, base: str, query: str) -> None:
    answer = owner.post(f"{base}/links{query}", BODY)

    assert answer.status_code == 400
    assert answer.json() == {"error_code": 400, "message": "The query parameter link_name is missing."}


@pytest.mark.parametrize("name", ["a b", "-", "ä", "x" * 250, "a%2Fb"])
def test_a_name_that_no_path_could_carry_is_refused(owner: Rest, base: str, name: str) -> None:
    answer = owner.post(f"{base}/links?link_name={name}", BODY)

    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)


def test_a_second_link_of_the_same_name_is_refused(owner: Rest, base: str, link: ClusterLink) -> None:
    answer = owner.post(f"{base}/links?link_name=from-source", BODY)

    assert answer.status_code == 400
    assert answer.json() == {"error_code": 40002, "message": "Cluster link 'from-source' already exists."}


def test_a_create_whose_answer_was_lost_may_be_repeated(owner: Rest, base: str, source: Any) -> None:
    for _ in range(2):
        assert owner.post(f"{base}/links?link_name=new", BODY).status_code == 204

    assert ClusterLink.objects.filter(name="new").count() == 1
    assert AuditEvent.objects.filter(action="CreateClusterLink").count() == 1


@pytest.mark.parametrize("change", ["values", "later", "another key"])
def test_what_is_no_repeat_of_a_create_is_refused(owner: Rest, base: str, source: Any, time_machine: Any, change: str) -> None:
    owner.post(f"{base}/links?link_name=new", BODY)
    body = {**BODY, "configs": BODY["configs"][:2]} if change == "values" else BODY
    if change == "later":
        time_machine.move_to(timezone.now() + timedelta(seconds=121))
    client = owner
    if change == "another key":
        api_key, secret = make_key(User.objects.get(username="owner"))
        client = Rest(api_key.key, secret)

    answer = client.post(f"{base}/links?link_name=new", body)

    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert "already exists" in answer.json()["message"]


def test_a_wrong_password_is_told_with_400(owner: Rest, base: str, boundary: Boundary) -> None:
    boundary.error = LinkEngineError(ErrorCode.AUTHENTICATION_ERROR, "The source refuses the password.")

    answer = owner.post(f"{base}/links?link_name=new", BODY)

    assert answer.status_code == 400
    assert answer.json() == {"error_code": 40002, "message": "The source refuses the password."}
    assert not ClusterLink.objects.exists()


def test_no_worker_is_told_with_503(owner: Rest, base: str, boundary: Boundary) -> None:
    boundary.error = UnavailableError("No worker answers.")

    answer = owner.post(f"{base}/links?link_name=new", BODY)

    assert answer.status_code == 503
    assert answer.json() == {"error_code": 50302, "message": "No worker answers."}


def test_a_config_given_twice_is_refused(owner: Rest, base: str) -> None:
    configs = [{"name": "acl.sync.ms", "value": "1"}, {"name": "acl.sync.ms", "value": "2"}]

    answer = owner.post(f"{base}/links?link_name=new", {"source_cluster_id": SOURCE, "configs": configs})

    assert answer.json() == {"error_code": 40002, "message": "Config 'acl.sync.ms' is given twice."}


def test_both_sides_of_a_bidirectional_link_have_one_id(owner: Rest, base: str, source: Cluster) -> None:
    mode = [{"name": "link.mode", "value": "BIDIRECTIONAL"}]
    there = f"/kafka/v3/clusters/{source.cluster_id}"

    assert owner.post(f"{base}/links?link_name=pair", {"remote_cluster_id": SOURCE, "configs": mode}).status_code == 204
    first = owner.get(f"{base}/links/pair").json()
    wrong = {"remote_cluster_id": DESTINATION, "cluster_link_id": "A" * 22, "configs": mode}
    refused = owner.post(f"{there}/links?link_name=pair", wrong)
    right = {**wrong, "cluster_link_id": first["cluster_link_id"]}
    assert owner.post(f"{there}/links?link_name=pair", right).status_code == 204

    assert refused.status_code == 400
    assert "cluster_link_id" in refused.json()["message"]
    second = owner.get(f"{there}/links/pair").json()
    assert (first["remote_cluster_id"], second["remote_cluster_id"]) == (SOURCE, DESTINATION)
    assert first["source_cluster_id"] is first["destination_cluster_id"] is None
    assert (second["cluster_link_id"], second["link_id"]) == (first["cluster_link_id"], first["link_id"])


def test_a_link_created_at_the_source_names_its_destination(owner: Rest, base: str, source: Cluster) -> None:
    there = f"/kafka/v3/clusters/{source.cluster_id}"
    body = {"destination_cluster_id": DESTINATION, "configs": [{"name": "link.mode", "value": "SOURCE"}]}

    assert owner.post(f"{there}/links?link_name=pushed", body).status_code == 204

    shown = owner.get(f"{there}/links/pushed").json()
    assert (shown["source_cluster_id"], shown["destination_cluster_id"]) == (None, DESTINATION)
    refused = owner.post(f"{there}/links/pushed/mirrors", {"source_topic_name": "orders"})
    assert refused.status_code == 400
    assert "begins here" in refused.json()["message"]


def test_clusters_that_contradict_each_other_are_refused(owner: Rest, base: str) -> None:
    answer = owner.post(f"{base}/links?link_name=new", {"source_cluster_id": SOURCE, "remote_cluster_id": "another"})

    assert answer.status_code == 400
    assert "different clusters" in answer.json()["message"]


def test_deleting_a_link_answers_200_with_nothing(owner: Rest, base: str, link: ClusterLink) -> None:
    answer = owner.delete(f"{base}/links/from-source")

    assert (answer.status_code, answer.content) == (200, b"")
    assert owner.get(f"{base}/links/from-source").status_code == 404


def test_a_link_with_mirrors_is_not_deleted(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    make_mirror("orders")

    answer = owner.delete(f"{base}/links/from-source")

    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert "'orders'" in answer.json()["message"]
    assert ClusterLink.objects.exists()


def test_validate_only_deletes_nothing(owner: Rest, base: str, link: ClusterLink) -> None:
    answer = owner.delete(f"{base}/links/from-source?validate_only=true")

    assert (answer.status_code, answer.content) == (200, b"")
    assert ClusterLink.objects.exists()


def test_force_lets_go_of_the_mirrors_first(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders")

    assert owner.delete(f"{base}/links/from-source?force=true").status_code == 200

    mirror.refresh_from_db()
    assert (mirror.state, mirror.stop_reason) == ("PENDING_STOPPED", "failover")


def test_the_stopped_mirrors_of_a_link_go_with_it(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    make_mirror("old", MirrorState.STOPPED)

    assert owner.delete(f"{base}/links/from-source").status_code == 200
    assert not ClusterLink.objects.exists()


def test_a_reader_may_look_but_not_change(reader: Rest, base: str, link: ClusterLink) -> None:
    assert reader.get(f"{base}/links/from-source").status_code == 200

    for answer in (reader.post(f"{base}/links?link_name=new", BODY), reader.delete(f"{base}/links/from-source")):
        assert answer.status_code == 403
        assert answer.json()["error_code"] == 40301
        assert "role" in answer.json()["message"]
    assert AuditEvent.objects.filter(result="DENIED").count() == 2


def test_a_stranger_learns_nothing(stranger: Rest, base: str, link: ClusterLink) -> None:
    missing = {"error_code": 404, "message": f"Cluster {DESTINATION} cannot be found."}

    assert stranger.get(f"{base}/links").json() == missing
    assert stranger.post(f"{base}/links?link_name=new", BODY).json() == missing
    assert stranger.get(f"{base}/links/from-source").status_code == 404
