"""REST API of operations on mirror topics: a result per mirror, refusals within a 200."""

from dataclasses import asdict
from typing import Any

import pytest

from console.models import BulkOperation, ClusterLink, LinkConfig, MirrorTopic
from linkengine.domain.clusterviews import ReversalRisks, TransactionalWriters
from linkengine.domain.states import MirrorState
from tests.console.api.actors import LINK, Boundary, Rest

pytestmark = pytest.mark.django_db
BIDIRECTIONAL = ["reverse-and-start-mirror", "reverse-and-pause-mirror", "truncate-and-restore"]


@pytest.fixture
def mirrors(base: str, link: ClusterLink) -> str:
    return f"{base}/links/{link.name}/mirrors"


def state_of(name: str) -> str:
    return MirrorTopic.objects.get(name=name).state


def test_an_operation_returns_the_exact_response(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders", lags=((5, 3),))

    response = owner.post(f"{mirrors}:pause", {"mirror_topic_names": ["orders"]})

    assert response.status_code == 200
    assert response.json() == {
        "kind": "KafkaPromoteMirror",
        "metadata": {"self": f"http://testserver{mirrors}:pause", "next": None},
        "data": [
            {
                "kind": "AlterMirrorsData",
                "metadata": {"self": f"http://testserver{mirrors}/orders"},
                "mirror_topic_name": "orders",
                "error_code": None,
                "error_message": None,
                "mirror_lags": [{"partition": 0, "lag": 2, "last_source_fetch_offset": 3}],
                "messages_truncated": None,
                "partition_level_truncation_data": [],
            }
        ],
    }
    assert state_of("orders") == "PAUSED"


@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [
        ("pause", "ACTIVE", "PAUSED"),
        ("resume", "PAUSED", "ACTIVE"),
        ("promote", "ACTIVE", "PENDING_STOPPED"),
        ("failover", "ACTIVE", "PENDING_STOPPED"),
        ("failover", "FAILED", "PENDING_STOPPED"),
    ],
)
@pytest.mark.parametrize("prefix", ["/kafka/v3", "/v3"])
def test_each_verb_changes_the_state(
    owner: Rest, mirrors: str, make_mirror: Any, verb: str, before: str, after: str, prefix: str
) -> None:
    make_mirror("orders", MirrorState(before))

    response = owner.post(f"{mirrors.replace('/kafka/v3', prefix)}:{verb}", {"mirror_topic_names": ["orders"]})

    assert response.json()["data"][0]["error_code"] is None
    assert state_of("orders") == after


@pytest.mark.parametrize("verb", ["pause", "resume", "promote", "failover", *BIDIRECTIONAL])
def test_validate_only_changes_no_state(owner: Rest, mirrors: str, make_mirror: Any, verb: str) -> None:
    make_mirror("orders")

    response = owner.post(f"{mirrors}:{verb}?validate_only=true", {"mirror_topic_names": ["orders"]})

    assert response.status_code == 200
    (row,) = response.json()["data"]
    assert ("effect" in row) == (row["error_code"] is None)
    assert state_of("orders") == "ACTIVE"
    assert not MirrorTopic.objects.get().transitions.exists()


def test_validate_only_returns_the_effect(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("known", lags=((10, 4), (5, 5)))
    make_mirror("unknown", lags=((10, 4), None))

    rows = owner.post(f"{mirrors}:failover?validate_only=true", {"mirror_topic_names": ["known", "unknown"]}).json()["data"]

    assert [row["effect"]["records_at_risk"] for row in rows] == [6, None]
    assert {row["effect"]["state_after"] for row in rows} == {"PENDING_STOPPED"}
    assert {row["effect"]["groups_clamped"] for row in rows} == {0}
    accepted = owner.post(f"{mirrors}:failover", {"mirror_topic_names": ["known"]}).json()["data"]
    assert "effect" not in accepted[0]


@pytest.mark.parametrize("verb", BIDIRECTIONAL[:2])
def test_validate_only_of_a_reversal_returns_the_warnings_of_its_preview(
    owner: Rest, mirrors: str, make_mirror: Any, link: ClusterLink, other_side: ClusterLink, boundary: Boundary, verb: str
) -> None:
    make_mirror("orders")
    make_mirror("paused", MirrorState.PAUSED)
    writers = TransactionalWriters(ids=("billing",), open_ids=("billing",), unnamed_open=0, complete=True)
    boundary.response = {"orders": asdict(ReversalRisks(unclean_on=("Source",), writers=writers))}

    rows = owner.post(f"{mirrors}:{verb}?validate_only=true", {"mirror_topic_names": ["orders", "paused"]}).json()["data"]
    operation = verb.removesuffix("-mirror")
    previews = owner.get(f"{LINK}/previews?operation={operation}&mirror_topic_name_pattern=orders").json()["data"]

    warnings = rows[0]["effect"]["warnings"]
    assert [sentence for sentence in warnings if "billing (transaction open)" in sentence]
    assert [sentence for sentence in warnings if "unclean.leader.election.enable is on" in sentence]
    assert warnings == previews[0]["warnings"]
    assert (rows[1]["error_code"], "effect" in rows[1]) == (400, False)
    assert boundary.called[0] == ("find_reversal_risks", {"link_id": link.pk, "topics": {"orders": "orders"}})
    assert state_of("orders") == "ACTIVE"


@pytest.mark.parametrize("verb", ["pause", "promote", "failover"])
def test_validate_only_of_other_operations_has_no_warnings_and_contacts_no_cluster(
    owner: Rest, mirrors: str, make_mirror: Any, boundary: Boundary, verb: str
) -> None:
    make_mirror("orders")

    (row,) = owner.post(f"{mirrors}:{verb}?validate_only=true", {"mirror_topic_names": ["orders"]}).json()["data"]

    assert row["effect"]["warnings"] == []
    assert not boundary.called


def test_a_pattern_must_match_the_whole_name(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    for name in ("orders", "orders-eu", "payments"):
        make_mirror(name)

    response = owner.post(f"{mirrors}:pause", {"mirror_topic_name_pattern": "orders.*|pay"})

    assert [row["mirror_topic_name"] for row in response.json()["data"]] == ["orders", "orders-eu"]
    assert state_of("payments") == "ACTIVE"


@pytest.mark.parametrize("query", ["?validate_only=true", ""])
def test_a_promotion_by_pattern_checks_the_gate_of_each_mirror(owner: Rest, mirrors: str, make_mirror: Any, query: str) -> None:
    link = make_mirror("orders").link
    LinkConfig.objects.create(link=link, name="migration.gate.enable", value="true")

    for chosen in ({"mirror_topic_name_pattern": ".*"}, {"mirror_topic_names": ["orders"]}):
        (row,) = owner.post(f"{mirrors}:promote{query}", chosen).json()["data"]
        assert row["error_code"] == 400
        assert "The migration gate of topic 'orders' is closed" in row["error_message"]
    assert state_of("orders") == "ACTIVE"


def test_a_pattern_that_matches_nothing_returns_no_rows(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders")

    response = owner.post(f"{mirrors}:pause", {"mirror_topic_name_pattern": "x.*"})

    assert (response.status_code, response.json()["data"]) == (200, [])


def test_an_invalid_pattern_is_refused(owner: Rest, mirrors: str) -> None:
    response = owner.post(f"{mirrors}:pause", {"mirror_topic_name_pattern": "("})

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert "regular expression" in response.json()["message"]


@pytest.mark.parametrize("pattern", ["(?:(?R)|a)*", r"(a)\1", "(?=orders).*", "(?:a{1000}){1000}"])
def test_a_pattern_that_re2_does_not_support_is_refused(owner: Rest, mirrors: str, make_mirror: Any, pattern: str) -> None:
    make_mirror("orders")

    response = owner.post(f"{mirrors}:pause", {"mirror_topic_name_pattern": pattern})

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert state_of("orders") == "ACTIVE"


def test_a_pattern_of_300_nested_groups_is_accepted(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders")

    response = owner.post(f"{mirrors}:pause", {"mirror_topic_name_pattern": "(" * 300 + "orders" + ")" * 300})

    assert (response.status_code, len(response.json()["data"])) == (200, 1)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"mirror_topic_names": []},
        {"mirror_topic_name_pattern": ""},
        {"mirror_topic_names": ["a"], "mirror_topic_name_pattern": "b"},
    ],
)
def test_either_names_or_a_pattern_must_be_given(owner: Rest, mirrors: str, body: Any) -> None:
    response = owner.post(f"{mirrors}:pause", body)

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert "mirror_topic_name_pattern" in response.json()["message"]


@pytest.mark.parametrize("names", ["orders", [1], {"a": 1}, [None]])
def test_names_of_the_wrong_type_are_refused(owner: Rest, mirrors: str, names: Any) -> None:
    response = owner.post(f"{mirrors}:pause", {"mirror_topic_names": names})

    assert response.status_code == response.json()["error_code"] == 400


def test_refused_mirrors_have_error_codes_within_a_200(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders")
    make_mirror("old", MirrorState.STOPPED)

    response = owner.post(f"{mirrors}:promote", {"mirror_topic_names": ["old", "none", "orders"]})

    assert response.status_code == 200
    rows = {row["mirror_topic_name"]: row for row in response.json()["data"]}
    assert rows["old"]["error_code"] == 400
    assert (
        rows["old"]["error_message"]
        == "Topic 'old' has already stopped its mirror from 'from-source'. Only RESTORE and DELETE are possible."
    )
    assert rows["none"]["error_code"] == 404
    assert rows["none"]["mirror_lags"] == []
    assert rows["orders"]["error_code"] is None
    assert state_of("orders") == "PENDING_STOPPED"


@pytest.mark.parametrize("verb", BIDIRECTIONAL)
def test_reversals_and_restores_are_refused_on_other_links(owner: Rest, mirrors: str, make_mirror: Any, verb: str) -> None:
    make_mirror("orders")

    response = owner.post(f"{mirrors}:{verb}", {"mirror_topic_names": ["orders"]})

    assert response.status_code == 200
    row = response.json()["data"][0]
    assert row["error_code"] == 400
    assert "bidirectional" in row["error_message"]
    assert state_of("orders") == "ACTIVE"


def test_a_reader_gets_403_for_each_mirror(reader: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders")

    response = reader.post(f"{mirrors}:pause", {"mirror_topic_names": ["orders"]})

    assert response.status_code == 200
    assert response.json()["data"][0]["error_code"] == 403
    assert state_of("orders") == "ACTIVE"


def test_operations_on_a_missing_link_are_404(owner: Rest, base: str) -> None:
    response = owner.post(f"{base}/links/none/mirrors:pause", {"mirror_topic_names": ["orders"]})

    assert response.status_code == response.json()["error_code"] == 404


def test_an_unknown_verb_is_an_unknown_endpoint(owner: Rest, mirrors: str) -> None:
    response = owner.post(f"{mirrors}:explode", {"mirror_topic_names": ["orders"]})

    assert response.status_code == 404
    assert response.json() == {"error_code": 404, "message": "HTTP 404 Not Found"}


def test_operation_on_several_topics_is_stored_with_its_results(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    """It is listed in the console's Operations section. A dry run and an operation on one topic are not."""
    make_mirror("orders")
    make_mirror("bills", MirrorState.STOPPED)

    owner.post(f"{mirrors}:pause?validate_only=true", {"mirror_topic_names": ["orders", "bills"]})
    owner.post(f"{mirrors}:pause", {"mirror_topic_names": ["bills"]})
    response = owner.post(f"{mirrors}:pause", {"mirror_topic_names": ["orders", "bills"]})

    assert [row["error_code"] for row in response.json()["data"]] == [None, 400]
    operation = BulkOperation.objects.get()
    assert dict(operation.topics.values_list("name", "status")) == {"orders": "ACCEPTED", "bills": "FAILED"}
    assert operation.finished_at is not None
    assert operation.user is not None
