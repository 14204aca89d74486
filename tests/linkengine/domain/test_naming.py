from collections.abc import Callable

import pytest

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.names import check_link_name, check_topic_name, is_internal, mirror_name


@pytest.mark.parametrize("name", ["a", "orders.v1_eu-west", "A" * 249, "...", "-", "1"])
def test_names_that_kafka_accepts_are_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a" * 250, "a\n", "a:b"])
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    with pytest.raises(LinkEngineError) as refused:
        check_topic_name(name)

    assert refused.value.code is ErrorCode.INVALID_TOPIC


@pytest.mark.parametrize("name", ["link-1", "a.b_c", "x" * 200])
def test_ordinary_link_names_are_accepted(name: str) -> None:
    check_link_name(name)


@pytest.mark.parametrize("name", ["", "-", ".", "..", "a/b", "a b", "a\n", "ä", "x" * 201])
def test_link_names_that_cannot_be_part_of_a_url_are_refused(name: str) -> None:
    with pytest.raises(LinkEngineError) as refused:
        check_link_name(name)

    assert refused.value.code is ErrorCode.INVALID_REQUEST_ERROR


def test_a_mirrors_name_is_the_prefix_and_its_sources_name() -> None:
    assert mirror_name("orders") == "orders"
    assert mirror_name("orders", prefix="us_") == "us_orders"


def test_a_prefix_may_not_make_the_name_too_long() -> None:
    with pytest.raises(LinkEngineError, match="250 characters"):
        mirror_name("a" * 249, prefix="b")


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "_confluent-metrics", "_schemas", "__x"])
def test_topics_of_kafka_and_confluent_components_are_internal(topic: str) -> None:
    assert is_internal(topic)


@pytest.mark.parametrize("topic", ["orders", "_orders", "_schemas2", "confluent", "a__b"])
def test_other_topics_are_not_internal(topic: str) -> None:
    assert not is_internal(topic)


@pytest.mark.parametrize("check", [check_topic_name, check_link_name])
def test_a_refusal_lists_the_allowed_characters(check: Callable[[str], None]) -> None:
    with pytest.raises(LinkEngineError, match="Use only letters, digits"):
        check("a b")
