"""Operations on mirror topics over REST: one row per mirror, refusals inside a 200."""

from typing import Any

import pytest

from console.models import ClusterLink, LinkConfig, MirrorTopic
from linkengine.domain.states import MirrorState
from tests.console.api.cast import Rest

pytestmark = pytest.mark.django_db
BIDIRECTIONAL = ["reverse-and-start-mirror", "reverse-and-pause-mirror", "truncate-and-restore"]


@pytest.fixture
def mirrors(base: str, link: ClusterLink) -> str:
    return f"{base}/links/{link.name}/mirrors"


def state_of(name: str) -> str:
    return MirrorTopic.objects.get(name=name).state


def test_an_operation_answers_with_the_exact_envelope(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders", lags=((5, 3),))

    answer = owner.post(f"{mirrors}:pause", {"mirror_topic_names": ["orders"]})

    assert answer.status_code == 200
    assert answer.json() == {
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
def test_each_verb_moves_the_mirror(
    owner: Rest, mirrors: str, make_mirror: Any, verb: str, before: str, after: str, prefix: str
) -> None:
    make_mirror("orders", MirrorState(before))

    answer = owner.post(f"{mirrors.replace('/kafka/v3', prefix)}:{verb}", {"mirror_topic_names": ["orders"]})

    assert answer.json()["data"][0]["error_code"] is None
    assert state_of("orders") == after


@pytest.mark.parametrize("verb", ["pause", "resume", "promote", "failover", *BIDIRECTIONAL])
def test_validate_only_moves_nothing(owner: Rest, mirrors: str, make_mirror: Any, verb: str) -> None:
    make_mirror("orders")

    answer = owner.post(f"{mirrors}:{verb}?validate_only=true", {"mirror_topic_names": ["orders"]})

    assert answer.status_code == 200
    (row,) = answer.json()["data"]
    assert ("effect" in row) == (row["error_code"] is None)
    assert state_of("orders") == "ACTIVE"
    assert not MirrorTopic.objects.get().transitions.exists()


def test_validate_only_tells_the_effect(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("known", lags=((10, 4), (5, 5)))
    make_mirror("unknown", lags=((10, 4), None))

    rows = owner.post(f"{mirrors}:failover?validate_only=true", {"mirror_topic_names": ["known", "unknown"]}).json()["data"]

    assert [one["effect"]["records_at_risk"] for one in rows] == [6, None]
    assert {one["effect"]["state_after"] for one in rows} == {"PENDING_STOPPED"}
    assert {one["effect"]["groups_clamped"] for one in rows} == {0}
    taken = owner.post(f"{mirrors}:failover", {"mirror_topic_names": ["known"]}).json()["data"]
    assert "effect" not in taken[0]


def test_a_pattern_must_match_the_whole_name(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    for name in ("orders", "orders-eu", "payments"):
        make_mirror(name)

    answer = owner.post(f"{mirrors}:pause", {"mirror_topic_name_pattern": "orders.*|pay"})

    assert [one["mirror_topic_name"] for one in answer.json()["data"]] == ["orders", "orders-eu"]
    assert state_of("payments") == "ACTIVE"


@pytest.mark.parametrize("asked", ["?validate_only=true", ""])
def test_a_promotion_by_pattern_asks_each_gate_as_one_by_name_does(
    owner: Rest, mirrors: str, make_mirror: Any, asked: str
) -> None:
    link = make_mirror("orders").link
    LinkConfig.objects.create(link=link, name="migration.gate.enable", value="true")

    for chosen in ({"mirror_topic_name_pattern": ".*"}, {"mirror_topic_names": ["orders"]}):
        (row,) = owner.post(f"{mirrors}:promote{asked}", chosen).json()["data"]
        assert row["error_code"] == 400
        assert "The migration gate of topic 'orders' is closed" in row["error_message"]
    assert state_of("orders") == "ACTIVE"


def test_a_pattern_that_matches_nothing_answers_no_rows(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders")

    answer = owner.post(f"{mirrors}:pause", {"mirror_topic_name_pattern": "x.*"})

    assert (answer.status_code, answer.json()["data"]) == (200, [])


def test_a_pattern_that_is_none_is_refused(owner: Rest, mirrors: str) -> None:
    answer = owner.post(f"{mirrors}:pause", {"mirror_topic_name_pattern": "("})

    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert "regular expression" in answer.json()["message"]


@pytest.mark.parametrize("pattern", ["(?:(?R)|a)*", r"(a)\1", "(?=orders).*", "(?:a{1000}){1000}"])
def test_a_pattern_that_re2_does_not_support_is_refused(owner: Rest, mirrors: str, make_mirror: Any, pattern: str) -> None:
    make_mirror("orders")

    answer = owner.post(f"{mirrors}:pause", {"mirror_topic_name_pattern": pattern})

    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert state_of("orders") == "ACTIVE"


def test_a_pattern_of_300_nested_groups_is_accepted(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders")

    answer = owner.post(f"{mirrors}:pause", {"mirror_topic_name_pattern": "(" * 300 + "orders" + ")" * 300})

    assert (answer.status_code, len(answer.json()["data"])) == (200, 1)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"mirror_topic_names": []},
        {"mirror_topic_name_pattern": ""},
        {"mirror_topic_names": ["a"], "mirror_topic_name_pattern": "b"},
    ],
)
def test_mirrors_are_named_in_exactly_one_way(owner: Rest, mirrors: str, body: Any) -> None:
    answer = owner.post(f"{mirrors}:pause", body)

    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert "mirror_topic_name_pattern" in answer.json()["message"]


@pytest.mark.parametrize("names", ["orders", [1], {"a": 1}, [None]])
def test_names_of_the_wrong_type_are_refused(owner: Rest, mirrors: str, names: Any) -> None:
    answer = owner.post(f"{mirrors}:pause", {"mirror_topic_names": names})

    assert answer.status_code == answer.json()["error_code"] == 400


def test_refusals_are_rows_of_a_200(owner: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders")
    make_mirror("old", MirrorState.STOPPED)

    answer = owner.post(f"{mirrors}:promote", {"mirror_topic_names": ["old", "none", "orders"]})

    assert answer.status_code == 200
    rows = {one["mirror_topic_name"]: one for one in answer.json()["data"]}
    assert rows["old"]["error_code"] == 400
    assert rows["old"]["error_message"] == "Topic 'old' has already stopped its mirror from 'from-source'."
    assert rows["none"]["error_code"] == 404
    assert rows["none"]["mirror_lags"] == []
    assert rows["orders"]["error_code"] is None
    assert state_of("orders") == "PENDING_STOPPED"


@pytest.mark.parametrize("verb", BIDIRECTIONAL)
def test_what_needs_a_bidirectional_link_says_so_in_each_row(owner: Rest, mirrors: str, make_mirror: Any, verb: str) -> None:
    make_mirror("orders")

    answer = owner.post(f"{mirrors}:{verb}", {"mirror_topic_names": ["orders"]})

    assert answer.status_code == 200
    row = answer.json()["data"][0]
    assert row["error_code"] == 400
    assert "bidirectional" in row["error_message"]
    assert state_of("orders") == "ACTIVE"


def test_a_reader_is_refused_row_by_row(reader: Rest, mirrors: str, make_mirror: Any) -> None:
    make_mirror("orders")

    answer = reader.post(f"{mirrors}:pause", {"mirror_topic_names": ["orders"]})

    assert answer.status_code == 200
    assert answer.json()["data"][0]["error_code"] == 403
    assert state_of("orders") == "ACTIVE"


def test_operations_on_a_missing_link_are_404(owner: Rest, base: str) -> None:
    answer = owner.post(f"{base}/links/none/mirrors:pause", {"mirror_topic_names": ["orders"]})

    assert answer.status_code == answer.json()["error_code"] == 404


def test_an_unknown_verb_is_an_unknown_endpoint(owner: Rest, mirrors: str) -> None:
    answer = owner.post(f"{mirrors}:explode", {"mirror_topic_names": ["orders"]})

    assert answer.status_code == 404
    assert answer.json() == {"error_code": 404, "message": "HTTP 404 Not Found"}
