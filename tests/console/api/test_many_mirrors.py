"""200 mirrors on one link of the running product: auto-created, listed, shown on pages, failed over together."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devcluster.kafka import KafkaCluster
from tests.console.api.test_end_to_end import link_body
from tests.stack import PASSWORD, USER_NAME, Stack, running_stack

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
MIRRORS = 200
LINK = "many"
PAGE_SIZE = 50


@pytest.fixture
def stack(
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    redis_url: str,
    spark_connect_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    assert redis_url
    assert spark_connect_url
    properties = destination_cluster.client_properties("link")
    with running_stack(directory=tmp_path_factory.mktemp("many"), clusters={"Destination": properties}) as stack:
        yield stack


@pytest.fixture
def topics(source_admin: AdminClient, source_cluster: KafkaCluster, topic_name: str) -> list[str]:
    """Source topics with 1 to 5 records each (number modulo 5, plus 1)."""
    names = [f"{topic_name}-{number:03}" for number in range(MIRRORS)]
    for future in source_admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(60)
    producer = Producer(source_cluster.client("app"))
    for number, name in enumerate(names):
        for _ in range(number % 5 + 1):
            producer.produce(name, b"before")
    assert producer.flush(60) == 0
    return names


def test_200_mirrors_are_auto_created_shown_and_failed_over_together(
    stack: Stack, topics: list[str], topic_name: str, source_cluster: KafkaCluster, destination_cluster: KafkaCluster
) -> None:
    links = f"/kafka/v3/clusters/{destination_cluster.cluster_id}/links"
    mirrors, service = f"{links}/{LINK}/mirrors", stack.service

    def listed(status: str) -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = service.call("GET", f"{mirrors}?mirror_status={status}", expect=200)["data"]
        return data

    def in_sync() -> bool:
        return sum(1 for mirror in listed("ACTIVE") if [lag["lag"] for lag in mirror["mirror_lags"]] == [0]) == MIRRORS

    body = link_body(source_cluster)
    body["configs"] += [
        {"name": "auto.create.mirror.topics.enable", "value": "true"},
        {"name": "auto.create.mirror.topics.filters", "value": _filters(topic_name)},
    ]
    service.call("POST", f"{links}?link_name={LINK}", expect=204, body=body)
    service.wait_for("all mirrored", in_sync, timeout_s=240)
    assert sorted(mirror["mirror_topic_name"] for mirror in listed("ACTIVE")) == topics
    _check_pages(stack, destination_cluster.cluster_id, topics)

    pattern = {"mirror_topic_name_pattern": f"{topic_name}-.*"}
    results = service.call("POST", f"{mirrors}:failover", expect=200, body=pattern)["data"]
    assert sorted(row["mirror_topic_name"] for row in results) == topics
    assert {row["error_code"] for row in results} == {None}
    service.wait_for("all failed over", lambda: len(listed("STOPPED")) == MIRRORS, timeout_s=120)

    fetched = {row["mirror_topic_name"]: row["mirror_lags"][0]["last_source_fetch_offset"] for row in listed("STOPPED")}
    assert fetched == {name: number % 5 for number, name in enumerate(topics)}
    _check_writable(destination_cluster, topics)
    service.call("DELETE", f"{links}/{LINK}", expect=200)
    service.wait_for("deleted", lambda: service.client.get(f"{links}/{LINK}").status_code == 404)


def _filters(prefix: str) -> str:
    return json.dumps({"topicFilters": [{"name": f"{prefix}-", "patternType": "PREFIXED", "filterType": "INCLUDE"}]})


def _check_pages(stack: Stack, cluster_id: str, topics: list[str]) -> None:
    """Check that each mirror is on exactly one page of the link's list, without JavaScript."""
    with httpx.Client(base_url=stack.base_url, timeout=60, follow_redirects=True) as browser:
        form = browser.get("/sign-in/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token is not None
        fields = {"csrfmiddlewaretoken": token[1], "username": USER_NAME, "password": PASSWORD}
        assert browser.post("/sign-in/", data=fields, headers={"Referer": stack.base_url}).status_code == 200
        seen: list[str] = []
        for page in range(1, MIRRORS // PAGE_SIZE + 1):
            response = browser.get(f"/links/{cluster_id}/{LINK}/?page={page}")
            assert response.status_code == 200
            seen += sorted(set(re.findall(rf"/mirrors/({re.escape(topics[0][:-4])}-\d+)/", response.text)))
    assert sorted(seen) == topics


def _check_writable(cluster: KafkaCluster, topics: list[str]) -> None:
    refused: list[Any] = []
    producer = Producer({**cluster.client("app"), "message.timeout.ms": 60_000})
    for name in topics:
        producer.produce(name, b"after", on_delivery=lambda error, _: refused.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not refused
