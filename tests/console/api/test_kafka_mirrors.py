"""REST API of mirror topics: exact responses, statuses of the Kafka REST interface, unknown lags."""

from typing import Any

import pytest
from django.utils import timezone

from console.api.kafka_schemas import MIRROR_STATUSES
from console.errors import UnavailableError
from console.models import ClusterLink, MirrorTopic
from console.reconciling import transition_errors
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import LinkState, MirrorState
from tests.console.api.actors import NOW, Boundary, Rest

pytestmark = pytest.mark.django_db
CREATE = {"source_topic_name": "orders"}


@pytest.fixture
def mirrors(base: str, link: ClusterLink) -> str:
    return f"{base}/links/{link.name}/mirrors"


def test_a_mirror_is_shown_with_the_exact_envelope(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders", lags=((15, 10), (7, 7)))

    response = owner.get(f"{mirrors}/orders")

    assert response.status_code == 200
    assert response.json() == {
        "kind": "KafkaMirrorData",
        "metadata": {"self": f"http://testserver{mirrors}/orders"},
        "link_name": "from-source",
        "mirror_topic_name": "orders",
        "source_topic_name": "orders",
        "num_partitions": 2,
        "mirror_lags": [
            {"partition": 0, "lag": 5, "last_source_fetch_offset": 10},
            {"partition": 1, "lag": 0, "last_source_fetch_offset": 7},
        ],
        "mirror_status": "ACTIVE",
        "mirror_topic_error": "NO_ERROR",
        "state_time_ms": int(NOW.timestamp() * 1000),
    }


def test_unknown_lag_is_minus_one_and_every_partition_has_a_row(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders", lags=((None, 3), None, (4, None)))

    lags = owner.get(f"{mirrors}/orders").json()["mirror_lags"]

    assert [(row["partition"], row["lag"], row["last_source_fetch_offset"]) for row in lags] == [
        (0, -1, 3),
        (1, -1, -1),
        (2, -1, -1),
    ]


def test_transition_errors_are_included_on_request(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    mirror = make_mirror("orders", MirrorState.LINK_FAILED)
    mirror.transition_errors.create(code="AUTHENTICATION_ERROR", message="Wrong password.", since=NOW, last_seen_at=NOW)

    response = owner.get(f"{mirrors}/orders?include_state_transition_errors=true").json()

    assert response["mirror_status"] == "LINK_FAILED"
    assert response["mirror_state_transition_errors"] == [
        {"error_code": "AUTHENTICATION_ERROR", "error_message": "Wrong password."}
    ]
    assert "mirror_state_transition_errors" not in owner.get(f"{mirrors}/orders").json()


def test_a_failed_mirror_shows_its_error(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders", MirrorState.FAILED, error_code="SOURCE_TOPIC_MAY_BE_DELETED", error_message="Gone.")

    response = owner.get(f"{mirrors}/orders").json()

    assert (response["mirror_status"], response["mirror_topic_error"]) == ("FAILED", "SOURCE_TOPIC_MAY_BE_DELETED")


@pytest.mark.parametrize("state", MirrorState)
def test_every_state_has_a_status_of_the_interface(owner: Rest, mirrors: str, make_mirror: Any, state: MirrorState) -> None:
    make_mirror("orders", state)

    status = owner.get(f"{mirrors}/orders").json()["mirror_status"]

    assert status in MIRROR_STATUSES
    renamed = {"PENDING_SETUP": "ACTIVE", "PENDING_RESTORE_MIRROR": "PENDING_RESTORE"}
    assert status == renamed.get(state, state)


@pytest.mark.parametrize(
    ("state", "status"),
    [("ACTIVE", "LINK_PAUSED"), ("PAUSED", "PAUSED"), ("STOPPED", "STOPPED"), ("PENDING_STOPPED", "PENDING_STOPPED")],
)
def test_mirrors_of_a_paused_link_have_the_status_link_paused(
    owner: Rest, mirrors: str, make_mirror: Any, state: str, status: str
) -> None:
    make_mirror("orders", MirrorState(state))
    ClusterLink.objects.update(state=LinkState.PAUSED)

    assert owner.get(f"{mirrors}/orders").json()["mirror_status"] == status


def test_mirrors_of_a_link_are_listed(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders")
    make_mirror("payments", MirrorState.PAUSED)

    response = owner.get(mirrors).json()

    assert response["kind"] == "KafkaMirrorDataList"
    assert response["metadata"] == {"self": f"http://testserver{mirrors}", "next": None}
    assert sorted(mirror["mirror_topic_name"] for mirror in response["data"]) == ["orders", "payments"]


def test_the_list_of_many_mirrors_needs_a_constant_number_of_queries(
    owner: Rest, mirrors: str, make_mirror: Any, django_assert_max_num_queries: Any
) -> None:
    for number in range(20):
        make_mirror(f"topic-{number}", lags=((2, 1), (2, 2)))

    with django_assert_max_num_queries(10):
        assert len(owner.get(mirrors).json()["data"]) == 20


def test_a_dash_instead_of_a_link_name_lists_mirrors_of_all_links(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any
) -> None:
    other = ClusterLink.objects.create(
        name="other",
        destination=link.destination,
        source_cluster_id="another",
        properties={},
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )
    make_mirror("orders")
    make_mirror("payments", link=other)

    response = owner.get(f"{base}/links/-/mirrors").json()

    assert response["kind"] == "KafkaMirrorDataList"
    assert {mirror["mirror_topic_name"]: mirror["link_name"] for mirror in response["data"]} == {
        "orders": "from-source",
        "payments": "other",
    }


def test_lists_are_filtered_by_status(owner: Rest, mirrors: str, base: str, make_mirror: Any) -> None:
    make_mirror("orders", MirrorState.PENDING_SETUP)
    make_mirror("payments", MirrorState.PAUSED)

    for address in (mirrors, f"{base}/links/-/mirrors"):
        response = owner.get(f"{address}?mirror_status=ACTIVE").json()
        assert [mirror["mirror_topic_name"] for mirror in response["data"]] == ["orders"]


def test_an_unknown_status_is_refused(owner: Rest, mirrors: str) -> None:
    response = owner.get(f"{mirrors}?mirror_status=PENDING_SETUP")

    assert (response.status_code, response.json()["error_code"]) == (400, 400)
    assert "LINK_PAUSED" in response.json()["message"]


def test_creating_a_mirror_returns_204_and_queues_its_setup(owner: Rest, mirrors: str, boundary: Boundary) -> None:
    response = owner.post(mirrors, {**CREATE, "replication_factor": 1, "configs": [{"name": "segment.ms", "value": "60000"}]})

    assert (response.status_code, response.content) == (204, b"")
    mirror = MirrorTopic.objects.get(name="orders")
    assert (mirror.replication_factor, mirror.config_overrides) == (1, {"segment.ms": "60000"})
    assert ("setup_mirror", {"mirror_id": mirror.pk}) in boundary.sent
    assert owner.get(f"{mirrors}/orders").json()["mirror_status"] == "ACTIVE"


def test_a_failing_setup_shows_its_error(owner: Rest, mirrors: str, boundary: Boundary) -> None:
    owner.post(mirrors, CREATE)
    mirror = MirrorTopic.objects.get(name="orders")
    for code in ("TIMEOUT_ERROR", "INVALID_REQUEST_ERROR"):
        transition_errors.note(mirror=mirror, code=code, message="No.", now=timezone.now())

    for shown in (owner.get(f"{mirrors}/orders").json(), owner.get(mirrors).json()["data"][-1]):
        assert (shown["mirror_topic_name"], shown["mirror_topic_error"]) == ("orders", "INVALID_REQUEST_ERROR")
    MirrorTopic.objects.update(state=MirrorState.ACTIVE)
    assert owner.get(f"{mirrors}/orders").json()["mirror_topic_error"] == "NO_ERROR"


def test_the_mirror_name_may_equal_the_source_name(owner: Rest, mirrors: str) -> None:
    assert owner.post(mirrors, {**CREATE, "mirror_topic_name": "orders"}).status_code == 204


def test_another_mirror_name_is_refused(owner: Rest, mirrors: str) -> None:
    response = owner.post(mirrors, {**CREATE, "mirror_topic_name": "copy"})

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert "renaming" in response.json()["message"]


def test_an_unknown_source_topic_is_404_with_code_40403(owner: Rest, mirrors: str, boundary: Boundary) -> None:
    boundary.error = LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "The source has no topic 'orders'.")

    response = owner.post(mirrors, CREATE)

    assert response.status_code == 404
    assert response.json() == {"error_code": 40403, "message": "The source has no topic 'orders'."}
    assert not MirrorTopic.objects.exists()


def test_a_topic_that_exists_is_refused(owner: Rest, mirrors: str, boundary: Boundary) -> None:
    boundary.error = LinkEngineError(ErrorCode.TOPIC_EXISTS_ERROR, "Topic 'orders' already exists.")

    response = owner.post(mirrors, CREATE)

    assert response.status_code == 400
    assert response.json() == {"error_code": 40002, "message": "Topic 'orders' already exists."}


def test_a_create_whose_response_was_lost_can_be_repeated(owner: Rest, mirrors: str, boundary: Boundary) -> None:
    for _ in range(2):
        assert owner.post(mirrors, CREATE).status_code == 204

    assert MirrorTopic.objects.filter(name="orders").count() == 1
    assert [name for name, _ in boundary.sent].count("setup_mirror") == 1
    assert owner.post(mirrors, {**CREATE, "replication_factor": 3}).status_code == 400


def test_validate_only_contacts_the_clusters_and_creates_nothing(owner: Rest, mirrors: str, boundary: Boundary) -> None:
    response = owner.post(f"{mirrors}?validate_only=true", CREATE)

    assert (response.status_code, response.content) == (204, b"")
    assert [name for name, _ in boundary.called] == ["check_mirror"]
    assert not MirrorTopic.objects.exists()


def test_nothing_is_stored_after_a_503(owner: Rest, mirrors: str, boundary: Boundary) -> None:
    boundary.error = UnavailableError("No worker responds.")

    assert owner.post(mirrors, CREATE).status_code == 503
    assert not MirrorTopic.objects.exists()
    assert boundary.sent == []


def test_a_create_during_the_deletion_of_the_mirror_is_refused(owner: Rest, mirrors: str, base: str) -> None:
    owner.post(mirrors, CREATE)
    owner.delete(f"{base}/topics/orders")

    assert owner.post(mirrors, CREATE).status_code == 400


def test_a_mirror_that_exists_is_refused(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders")

    response = owner.post(mirrors, CREATE)

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert response.json()["message"].startswith("Topic 'orders' already exists.")


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "source_topic_name"),
        ({"source_topic_name": 5}, 400, "source_topic_name"),
        ({"source_topic_name": None}, 400, "source_topic_name"),
        ({**CREATE, "replication_factor": "3"}, 400, "replication_factor"),
        ({**CREATE, "replication_factor": True}, 400, "replication_factor"),
        ({**CREATE, "replication_factor": 0}, 400, "replication_factor"),
        ({**CREATE, "configs": {"a": "b"}}, 400, "configs"),
        ({**CREATE, "configs": [{"name": "a", "value": 1}]}, 400, "configs[0].value"),
        ({**CREATE, "configs": [{"name": "a"}]}, 422, "configs[0].value"),
    ],
)
def test_an_invalid_body_names_the_field(owner: Rest, mirrors: str, body: Any, status: int, field: str) -> None:
    response = owner.post(mirrors, body)

    assert response.status_code == response.json()["error_code"] == status
    assert response.json()["message"].startswith(f"{field}: ")


def test_a_missing_link_and_a_missing_mirror_are_404(owner: Rest, base: str, mirrors: str) -> None:
    for response in (
        owner.get(f"{base}/links/none/mirrors"),
        owner.post(f"{base}/links/none/mirrors", CREATE),
        owner.get(f"{mirrors}/none"),
    ):
        assert response.status_code == response.json()["error_code"] == 404


def test_a_reader_may_not_create_a_mirror(reader: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("payments")

    response = reader.post(mirrors, CREATE)

    assert (response.status_code, response.json()["error_code"]) == (403, 40301)
    assert reader.get(f"{mirrors}/payments").status_code == 200
