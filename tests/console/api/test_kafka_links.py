"""REST API of cluster links: exact responses, tasks, deletion."""

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.models import (
    AuditEvent,
    ClusterLink,
    Drill,
    LinkConfig,
    LinkTask,
    MirrorPartition,
    MirrorTopic,
    VerifyRun,
    VerifyWatch,
)
from linkengine.domain.states import LinkState, MirrorState
from tests.console.api.actors import DESTINATION, NEW_LINK, NOW, SOURCE, Boundary, Rest

pytestmark = pytest.mark.django_db


def categories(**counts: int) -> list[dict[str, Any]]:
    names = ("ACTIVE", "PAUSED", "PENDING", "NOT_APPLICABLE", "IN_ERROR")
    return [{"state_category": name, "count": counts.get(name, 0)} for name in names]


def set_last_report(*, seconds_ago: float = 0) -> None:
    """Set the time of the copy workers' last report on all partitions."""
    MirrorPartition.objects.update(observed_at=timezone.now() - timedelta(seconds=seconds_ago))


def tasks_of(owner: Rest, base: str) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = owner.get(f"{base}/links/from-source?include_tasks=true").json()["tasks"]
    return tasks


def test_a_link_is_shown_with_the_exact_envelope(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    make_mirror("orders")
    make_mirror("old", MirrorState.STOPPED)

    response = owner.get(f"{base}/links/from-source")

    assert response.status_code == 200
    assert response["Content-Type"] == "application/json"
    assert response.json() == {
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
    response = owner.get(f"{base}/links").json()

    assert response["kind"] == "KafkaLinkDataList"
    assert response["metadata"] == {"self": f"http://testserver{base}/links", "next": None}
    assert [link["link_name"] for link in response["data"]] == ["from-source"]


def test_the_list_of_many_links_needs_a_constant_number_of_queries(
    owner: Rest, base: str, link: ClusterLink, django_assert_max_num_queries: Any
) -> None:
    for number in range(20):
        link.pk, link.link_uuid, link.name = None, f"00000000-0000-0000-0000-{number:012}", f"link-{number}"
        link.save(force_insert=True)

    with django_assert_max_num_queries(12):
        assert len(owner.get(f"{base}/links").json()["data"]) == 21


def test_urls_in_a_response_have_the_prefix_of_the_request(owner: Rest, link: ClusterLink) -> None:
    response = owner.get(f"/v3/clusters/{DESTINATION}/links/from-source").json()

    assert response["metadata"]["self"] == f"http://testserver/v3/clusters/{DESTINATION}/links/from-source"


def test_a_failed_link_shows_its_error(owner: Rest, base: str, link: ClusterLink) -> None:
    ClusterLink.objects.update(state=LinkState.FAILED, error_code="AUTHENTICATION_ERROR", error_message="Wrong password.")

    response = owner.get(f"{base}/links/from-source").json()

    assert (response["link_state"], response["link_error"]) == ("FAILED", "AUTHENTICATION_ERROR")
    assert response["link_error_message"] == "Wrong password."


def test_tasks_of_a_link_show_their_states(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    set_last_report()
    VerifyRun.objects.create(mirror=mirror, status="DIFFERENT", differences=3, requested_by="owner", requested_at=NOW)
    LinkConfig.objects.create(link=link, name="auto.create.mirror.topics.enable", value="true")
    LinkTask.objects.create(link=link, name="TopicConfigsSync", finished_at=NOW)

    tasks = owner.get(f"{base}/links/from-source?include_tasks=true").json()["tasks"]

    assert {task["task_name"]: task["state"] for task in tasks} == {
        "MirrorTopicCopy": "ACTIVE",
        "MirrorTopicVerify": "IN_ERROR",
        "TopicConfigsSync": "ACTIVE",
        "AutoCreateMirror": "UNKNOWN",
        "ConsumerOffsetSync": "NOT_CONFIGURED",
        "AclSync": "NOT_CONFIGURED",
    }
    assert tasks[1]["errors"] == [{"error_code": "RECORDS_DIFFER", "error_message": "orders: 3 records differ."}]


def test_records_that_differ_are_an_error_of_the_verify_task_only(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any
) -> None:
    mirror = make_mirror("orders")
    mirror.transition_errors.create(code="RECORDS_DIFFER", message="3 differ.", since=NOW, last_seen_at=NOW)
    set_last_report()

    copy, verify, *_ = owner.get(f"{base}/links/from-source?include_tasks=true").json()["tasks"]

    assert (copy["state"], copy["errors"]) == ("ACTIVE", [])
    assert (verify["state"], verify["errors"]) == (
        "IN_ERROR",
        [{"error_code": "RECORDS_DIFFER", "error_message": "3 differ."}],
    )


@pytest.mark.parametrize(
    ("changed", "errors"),
    [
        ({}, ["orders: No Spark."]),
        ({"state": MirrorState.STOPPED}, []),
        ({"deletion_requested_at": NOW}, []),
    ],
)
def test_a_failed_continuous_verification_is_an_error_of_the_verify_task(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any, changed: dict[str, Any], errors: list[str]
) -> None:
    VerifyWatch.objects.create(mirror=make_mirror("orders"), next_at=NOW, finished_at=NOW, error_message="No Spark.")
    MirrorTopic.objects.update(**changed)
    make_mirror("quiet")
    wanted = LinkConfig.objects.create(link=link, name="verify.continuous.enable", value="true")

    assert [error["error_message"] for error in tasks_of(owner, base)[1]["errors"]] == errors
    assert tasks_of(owner, base)[1]["state"] == ("IN_ERROR" if errors else "ACTIVE")
    wanted.value = "false"
    wanted.save()
    assert tasks_of(owner, base)[1]["state"] == "NOT_CONFIGURED"


def test_the_verify_task_uses_the_newest_run_of_each_mirror(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any
) -> None:
    often, once, fixed = make_mirror("a-often"), make_mirror("b-once"), make_mirror("c-fixed")
    runs = [(often, "EQUAL", minutes) for minutes in range(1000)]
    runs += [(once, "DIFFERENT", 0), (fixed, "ERROR", 0), (fixed, "EQUAL", 1)]
    VerifyRun.objects.bulk_create(
        VerifyRun(mirror=mirror, status=status, differences=1, requested_by="owner", requested_at=NOW + timedelta(minutes=at))
        for mirror, status, at in runs
    )

    verify = tasks_of(owner, base)[1]

    assert [error["error_message"] for error in verify["errors"]] == ["b-once: 1 record differs."]


def test_the_copy_task_shows_the_errors_of_its_mirrors(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    mirror.transition_errors.create(code="WAITING_FOR_LAG", message="5 records to go.", since=NOW, last_seen_at=NOW)
    set_last_report()

    task = owner.get(f"{base}/links/from-source?include_tasks=true").json()["tasks"][0]

    assert (task["task_name"], task["state"]) == ("MirrorTopicCopy", "IN_ERROR")
    assert task["errors"] == [{"error_code": "WAITING_FOR_LAG", "error_message": "5 records to go."}]


def test_all_errors_are_counted_and_the_first_are_listed(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    for number in range(60):
        mirror = make_mirror(f"orders-{number}", error_code="CORRUPT_RECORDS")
        mirror.transition_errors.create(code="TIMEOUT_ERROR", message="No response.", since=NOW, last_seen_at=NOW)
    set_last_report()
    ClusterLink.objects.update(engine_error="Spark is away.")

    copy = owner.get(base.replace("kafka/v3", "api/v1") + "/links/from-source/tasks").json()["data"][0]

    assert (copy["error_count"], len(copy["errors"])) == (121, 50)
    assert copy["errors"][0]["message"] == "Spark is away."


def test_the_copy_task_ignores_the_scratch_copies_of_drills(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any
) -> None:
    drill = Drill.objects.create(link=link, status_since=NOW, requested_at=NOW)
    scratch = make_mirror("scratch", MirrorState.FAILED, error_code="CORRUPT_RECORDS", drill=drill)
    scratch.transition_errors.create(code="TIMEOUT_ERROR", message="No response.", since=NOW, last_seen_at=NOW)
    assert tasks_of(owner, base)[0]["state"] == "NOT_CONFIGURED"

    make_mirror("orders")
    set_last_report()

    assert (tasks_of(owner, base)[0]["state"], tasks_of(owner, base)[0]["errors"]) == ("ACTIVE", [])


@pytest.mark.parametrize("partitions", [((10, 10),), (None,)])
def test_the_copy_task_is_in_error_without_recent_reports(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any, partitions: Any
) -> None:
    make_mirror("orders", lags=partitions)
    set_last_report(seconds_ago=600)

    task = tasks_of(owner, base)[0]

    assert (task["task_name"], task["state"]) == ("MirrorTopicCopy", "IN_ERROR")
    assert [error["error_code"] for error in task["errors"]] == ["INTERNAL_ERROR"]
    assert "No copy worker has reported on this link since" in task["errors"][0]["error_message"]


@pytest.mark.parametrize(
    "change",
    [
        lambda now: MirrorTopic.objects.update(state_since=now),
        lambda now: ClusterLink.objects.update(state_since=now),
        lambda _now: MirrorTopic.objects.update(state=MirrorState.PENDING_STOPPED, stop_reason="failover"),
        lambda _now: MirrorTopic.objects.update(state=MirrorState.PENDING_SETUP, num_partitions=0),
    ],
)
def test_the_copy_task_is_active_without_reports_if_copying_has_just_started_or_is_not_needed(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any, change: Any
) -> None:
    make_mirror("orders")
    set_last_report(seconds_ago=600)
    change(timezone.now())

    task = tasks_of(owner, base)[0]

    assert (task["state"], task["errors"]) == ("ACTIVE", [])


@pytest.mark.parametrize(
    ("state", "shown"),
    [(MirrorState.PAUSED, "NOT_CONFIGURED"), (MirrorState.STOPPED, "NOT_CONFIGURED"), (MirrorState.FAILED, "IN_ERROR")],
)
def test_the_copy_task_is_not_active_if_no_mirror_is_copied(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any, state: MirrorState, shown: str
) -> None:
    make_mirror("orders", state, error_code="CORRUPT_RECORDS" if state is MirrorState.FAILED else "")

    assert tasks_of(owner, base)[0]["state"] == shown


@pytest.mark.parametrize(
    ("state", "shown"),
    [("PAUSED", "LINK_PAUSED"), ("FAILED", "LINK_FAILED"), ("UNAVAILABLE", "LINK_UNAVAILABLE")],
)
def test_tasks_of_a_link_that_does_not_work_show_its_state(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any, state: str, shown: str
) -> None:
    make_mirror("orders")
    ClusterLink.objects.update(state=state)

    assert owner.get(f"{base}/links/from-source?include_tasks=true").json()["tasks"][0]["state"] == shown


def test_deleting_a_link_returns_200_without_a_body(owner: Rest, base: str, link: ClusterLink) -> None:
    response = owner.delete(f"{base}/links/from-source")

    assert (response.status_code, response.content) == (200, b"")
    assert owner.get(f"{base}/links/from-source").status_code == 404


def test_a_link_with_mirrors_cannot_be_deleted(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    make_mirror("orders")

    response = owner.delete(f"{base}/links/from-source")

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert "'orders'" in response.json()["message"]
    assert ClusterLink.objects.exists()


def test_validate_only_returns_the_round_trips_to_the_source_and_creates_nothing(
    owner: Rest, base: str, boundary: Boundary
) -> None:
    far = {"round_trip_ms": 80.0, "send_buffer_bytes": 102_400, "receive_buffer_bytes": 6_291_456}
    boundary.response = {"cluster_id": SOURCE, "distances": [{"broker": 1, "address": "far.test:9092", **far}]}

    response = owner.post(f"{base}/links?link_name=new&validate_only=true", NEW_LINK)

    assert response.status_code == 200
    assert response.json() == {
        "kind": "KafkaLinkValidationData",
        "metadata": {"self": f"http://testserver{base}/links"},
        "source_cluster_id": SOURCE,
        "source_brokers": [
            {
                "broker_id": 1,
                "address": "far.test:9092",
                **far,
                "limited_by": "socket.send.buffer.bytes",
                "connection_bytes_per_s": 1_280_000,
                "error": None,
            }
        ],
    }
    assert not ClusterLink.objects.exists()


def test_validate_only_deletes_nothing(owner: Rest, base: str, link: ClusterLink) -> None:
    response = owner.delete(f"{base}/links/from-source?validate_only=true")

    assert (response.status_code, response.content) == (200, b"")
    assert ClusterLink.objects.exists()


def test_a_forced_deletion_fails_mirrors_over_first(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders")

    assert owner.delete(f"{base}/links/from-source?force=true").status_code == 200

    mirror.refresh_from_db()
    assert (mirror.state, mirror.stop_reason) == ("PENDING_STOPPED", "failover")


def test_deleting_a_link_deletes_its_stopped_mirrors(owner: Rest, base: str, link: ClusterLink, make_mirror: Any) -> None:
    make_mirror("old", MirrorState.STOPPED)

    assert owner.delete(f"{base}/links/from-source").status_code == 200
    assert not ClusterLink.objects.exists()


def test_a_reader_may_read_but_not_change_links(reader: Rest, base: str, link: ClusterLink) -> None:
    assert reader.get(f"{base}/links/from-source").status_code == 200

    for response in (reader.post(f"{base}/links?link_name=new", NEW_LINK), reader.delete(f"{base}/links/from-source")):
        assert response.status_code == 403
        assert response.json()["error_code"] == 40301
        assert "role" in response.json()["message"]
    assert AuditEvent.objects.filter(result="DENIED").count() == 2


def test_a_stranger_cannot_see_the_cluster(stranger: Rest, base: str, link: ClusterLink) -> None:
    missing = {
        "error_code": 404,
        "message": f"Cluster {DESTINATION} cannot be found. Check the ID, and that you have a role on it.",
    }

    assert stranger.get(f"{base}/links").json() == missing
    assert stranger.post(f"{base}/links?link_name=new", NEW_LINK).json() == missing
    assert stranger.get(f"{base}/links/from-source").status_code == 404
