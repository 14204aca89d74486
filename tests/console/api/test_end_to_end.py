"""End-to-end tests without fakes: HTTP, worker, Spark, two Kafka clusters."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier
from typing import Any

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devcluster.kafka import KafkaCluster
from linkengine.domain.client_properties import address_from_properties
from linkengine.kafka.admin import ClusterAdmin
from tests.console.api.service import PASSWORD, USER_NAME, Service, running
from tests.console.workflows.reversal import records
from tests.linkengine.jobs.test_group_names import NAMES
from tests.linkengine.sync.conftest import commit

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
RECORDS = 500
PARTITIONS = 2
WRONG = "c0ffee-is-not-it"
RACES = (("promote", "failover"), ("pause", "failover"), ("failover", "failover"), ("pause", "pause"))
RESTORE, DELETE = "truncate-and-restore", "delete"
MIRRORS = 200  # of the link "many"
PAGE_SIZE = 50


@pytest.fixture(scope="module")
def service(
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    redis_url: str,
    spark_connect_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    assert redis_url
    assert spark_connect_url
    clusters = {
        "Destination": destination_cluster.client_properties("link"),
        "Source": source_cluster.client_properties("link"),
    }
    with running(directory=tmp_path_factory.mktemp("service"), clusters=clusters) as service:
        yield service


@pytest.fixture
def links(destination_cluster: KafkaCluster) -> str:
    return f"/kafka/v3/clusters/{destination_cluster.cluster_id}/links"


@pytest.fixture
def make_topic(source_admin: AdminClient, source_cluster: KafkaCluster, topic_name: str) -> Any:
    """Return a function that creates a source topic with records and returns its name."""

    def make(suffix: str) -> str:
        name = f"{topic_name}-{suffix}"
        source_admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        produce(source_cluster, name, count=RECORDS)
        return name

    return make


def produce(cluster: KafkaCluster, topic: str, *, count: int) -> KafkaError | None:
    """Produce records as an ordinary client; return the first delivery error, or None."""
    errors: list[KafkaError | None] = []
    producer = Producer({**cluster.client("app"), "message.timeout.ms": 20_000})
    for number in range(count):
        producer.produce(topic, f"value {number}", partition=number % PARTITIONS, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(60) == 0
    return next((error for error in errors if error), None)


def read(cluster: KafkaCluster, topic: str, *, count: int) -> set[tuple[int, int, bytes]]:
    """Consume records as an ordinary client; return them as (partition, offset, value)."""
    consumer = Consumer({**cluster.client("app"), "group.id": f"read-{topic}", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    records: set[tuple[int, int, bytes]] = set()
    while len(records) < count:
        batch = consumer.consume(count - len(records), timeout=30)
        assert batch, f"{topic}: {len(records)} of {count} records"
        read = (message for message in batch if not message.error())
        records |= {(message.partition() or 0, message.offset() or 0, message.value() or b"") for message in read}
    consumer.close()
    return records


def link_body(source: KafkaCluster, *, password: str | None = None) -> dict[str, Any]:
    properties = source.client_properties("link")
    if password is not None:
        properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace(source.users["link"], password)
    configs = [{"name": name, "value": value} for name, value in properties.items()]
    return {"source_cluster_id": source.cluster_id, "configs": configs}


def caught_up(service: Service, mirror: str) -> dict[str, Any] | None:
    """Return the mirror if it is ACTIVE and no partition has a lag, or None."""
    shown = service.call("GET", mirror, expect=200)
    lags = shown["mirror_lags"]
    done = shown["mirror_status"] == "ACTIVE" and len(lags) == PARTITIONS and all(row["lag"] == 0 for row in lags)
    return shown if done else None


def status(service: Service, mirror: str) -> str:
    return str(service.call("GET", mirror, expect=200)["mirror_status"])


def operate(service: Service, mirrors: str, verb: str, name: str) -> None:
    result = service.call("POST", f"{mirrors}:{verb}", expect=200, body={"mirror_topic_names": [name]})
    assert [row["error_code"] for row in result["data"]] == [None], result


def test_topics_are_mirrored_paused_promoted_failed_over_and_deleted(
    service: Service, links: str, make_topic: Any, source_cluster: KafkaCluster, destination_cluster: KafkaCluster
) -> None:
    kept, lost = make_topic("kept"), make_topic("lost")
    mirrors = f"{links}/whole/mirrors"

    service.call("POST", f"{links}?link_name=whole", expect=204, body=link_body(source_cluster))
    assert "whole" in [link["link_name"] for link in service.call("GET", links, expect=200)["data"]]
    for name in (kept, lost):
        service.call("POST", mirrors, expect=204, body={"source_topic_name": name})
    for name in (kept, lost):
        service.wait_for(f"{name} caught up", lambda name=name: caught_up(service, f"{mirrors}/{name}"))  # type: ignore[misc]
    assert read(destination_cluster, kept, count=RECORDS) == read(source_cluster, kept, count=RECORDS)
    refusal = produce(destination_cluster, kept, count=1)
    assert refusal is not None
    assert refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    operate(service, mirrors, "pause", kept)
    assert status(service, f"{mirrors}/{kept}") == "PAUSED"
    produce(source_cluster, kept, count=RECORDS)
    operate(service, mirrors, "resume", kept)
    service.wait_for("the rest", lambda: caught_up(service, f"{mirrors}/{kept}"))
    assert read(destination_cluster, kept, count=2 * RECORDS) == read(source_cluster, kept, count=2 * RECORDS)

    operate(service, mirrors, "promote", kept)
    service.wait_for("promoted", lambda: status(service, f"{mirrors}/{kept}") == "STOPPED")
    assert produce(destination_cluster, kept, count=2) is None
    operate(service, mirrors, "failover", lost)
    service.wait_for("failed over", lambda: status(service, f"{mirrors}/{lost}") == "STOPPED")
    assert produce(destination_cluster, lost, count=2) is None

    service.call("DELETE", f"{links.removesuffix('/links')}/topics/{lost}", expect=204)
    service.wait_for("deleted", lambda: service.client.get(f"{mirrors}/{lost}").status_code == 404)
    service.call("DELETE", f"{links}/whole", expect=200)
    service.call("GET", f"{links}/whole", expect=404)


def test_a_wrong_password_fails_the_link_and_the_right_one_recovers_it(
    service: Service, links: str, make_topic: Any, source_cluster: KafkaCluster
) -> None:
    topic = make_topic("healed")
    good, bad = link_body(source_cluster), link_body(source_cluster, password=WRONG)
    mirror = f"{links}/healing/mirrors/{topic}"
    refused = service.call("POST", f"{links}?link_name=healing", expect=400, body=bad)
    assert refused["error_code"] == 40002
    service.call("POST", f"{links}?link_name=healing", expect=204, body=good)
    service.call("POST", f"{links}/healing/mirrors", expect=204, body={"source_topic_name": topic})
    service.wait_for("caught up", lambda: caught_up(service, mirror))

    service.call("PUT", f"{links}/healing/configs:alter", expect=204, body={"data": bad["configs"]})

    service.wait_for("broken", lambda: status(service, mirror) == "LINK_FAILED")
    shown = service.call("GET", f"{mirror}?include_state_transition_errors=true", expect=200)
    errors = {error["error_code"]: error["error_message"] for error in shown["mirror_state_transition_errors"]}
    assert "AUTHENTICATION_ERROR" in errors
    assert WRONG not in errors["AUTHENTICATION_ERROR"]
    link = service.call("GET", f"{links}/healing", expect=200)
    assert (link["link_state"], link["link_error"]) == ("FAILED", "AUTHENTICATION_ERROR")

    service.call("PUT", f"{links}/healing/configs:alter", expect=204, body={"data": good["configs"]})
    produce(source_cluster, topic, count=10)

    service.wait_for("healed", lambda: caught_up(service, mirror))
    shown = service.call("GET", f"{mirror}?include_state_transition_errors=true", expect=200)
    assert shown["mirror_state_transition_errors"] == []
    assert service.call("GET", f"{links}/healing", expect=200)["link_state"] == "ACTIVE"
    service.call("DELETE", f"{links}/healing?force=true", expect=200)
    service.wait_for("gone", lambda: service.client.get(f"{links}/healing").status_code == 404)


def pair_body(there: KafkaCluster) -> dict[str, Any]:
    """Return the request body that creates a side of a bidirectional link."""
    configs = {**there.client_properties("link"), "link.mode": "BIDIRECTIONAL"}
    return {
        "remote_cluster_id": there.cluster_id,
        "configs": [{"name": name, "value": value} for name, value in configs.items()],
    }


def request_operation(service: Service, mirrors: str, verb: str, name: str) -> str | None:
    """Operate on a mirror, or delete it; return the refusal's message, or None if it was accepted."""
    if verb == DELETE:
        response = service.client.delete(f"{mirrors.partition('/links')[0]}/topics/{name}")
        assert response.status_code in (204, 400, 404), response.text
        return None if response.status_code == 204 else str(response.json()["message"])
    (row,) = service.call("POST", f"{mirrors}:{verb}", expect=200, body={"mirror_topic_names": [name]})["data"]
    assert row["error_code"] in (None, 400, 404)
    return None if row["error_code"] is None else str(row["error_message"])


def together(*functions: Callable[[], str | None]) -> list[str | None]:
    """Call functions at the same time, each in its own thread; return their results."""
    barrier = Barrier(len(functions), timeout=60)

    def call(function: Callable[[], str | None]) -> str | None:
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(call, functions))


def check_history(service: Service, mirror: str, *, final: str) -> None:
    """Check that the transitions form a chain to the final state, and that the topic was stopped at most once."""
    own = mirror.replace("/kafka/v3/", "/api/v1/")
    steps = service.call("GET", f"{own}/transitions?limit=100", expect=200)["data"][::-1]
    assert [before["to_state"] for before, _ in pairwise(steps)] == [after["from_state"] for _, after in pairwise(steps)]
    assert steps[-1]["to_state"] == final
    assert [step["to_state"] for step in steps].count("STOPPED") == (final == "STOPPED")
    assert len(service.call("GET", f"{own}/stop-reports", expect=200)["data"]) == (final == "STOPPED")


def test_concurrent_operations_end_in_a_legal_state_without_losing_records(
    service: Service, links: str, make_topic: Any, source_cluster: KafkaCluster, destination_cluster: KafkaCluster
) -> None:
    mirrors, back = f"{links}/pair/mirrors", links.replace(destination_cluster.cluster_id, source_cluster.cluster_id)
    for side, there in ((links, source_cluster), (back, destination_cluster)):
        service.call("POST", f"{side}?link_name=pair", expect=204, body=pair_body(there))
    contested = {verbs: make_topic("-".join(verbs)) for verbs in (*RACES, (RESTORE, DELETE))}
    stopped = contested[RESTORE, DELETE]
    for name in contested.values():
        service.call("POST", mirrors, expect=204, body={"source_topic_name": name})
    for name in contested.values():
        service.wait_for(f"{name} caught up", lambda name=name: caught_up(service, f"{mirrors}/{name}"))  # type: ignore[misc]
    operate(service, mirrors, "failover", stopped)
    service.wait_for("failed over", lambda: status(service, f"{mirrors}/{stopped}") == "STOPPED")

    refusals = {
        verbs: together(*(lambda verb=verb, name=name: request_operation(service, mirrors, verb, name) for verb in verbs))
        for verbs, name in contested.items()
    }

    for verbs, name in contested.items():
        assert None in refusals[verbs], refusals
        assert all(name in text or "in state" in text for text in refusals[verbs] if text), refusals
    assert refusals["pause", "failover"][1] is refusals["failover", "failover"][0] is None, refusals
    assert refusals["pause", "pause"].count(None) == 1, refusals
    for verbs in RACES:
        mirror, final = f"{mirrors}/{contested[verbs]}", "STOPPED" if "failover" in verbs else "PAUSED"
        service.wait_for(f"{verbs} done", lambda mirror=mirror, final=final: status(service, mirror) == final)  # type: ignore[misc]
        check_history(service, mirror, final=final)
    deleted = refusals[RESTORE, DELETE][1] is None
    if deleted:
        service.wait_for("deleted", lambda: service.client.get(f"{mirrors}/{stopped}").status_code == 404)
    else:
        service.wait_for("restored", lambda: caught_up(service, f"{mirrors}/{stopped}"))
    for name in set(contested.values()) - ({stopped} if deleted else set()):
        assert records(destination_cluster, name) == records(source_cluster, name)
    for side in (links, back):
        service.call("DELETE", f"{side}/pair?force=true", expect=200)
        service.wait_for("gone", lambda side=side: service.client.get(f"{side}/pair").status_code == 404)  # type: ignore[misc]


def test_every_url_of_every_group_of_a_cluster_exists_over_http(
    service: Service, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    """Through uvicorn, which passes raw paths on; ``test_paths.py`` uses Django's client."""
    admin = ClusterAdmin(address_from_properties(destination_cluster.client_properties("link")))
    admin.create_topic(topic_name, partitions=1)
    for name in NAMES:
        commit(admin, name, topic_name, {0: 0})

    def get(address: str) -> Any:
        return service.call("GET", address, expect=200)

    listed = get(f"/kafka/v3/clusters/{destination_cluster.cluster_id}/consumer-groups")["data"]
    groups = {group["consumer_group_id"]: group for group in listed if group["consumer_group_id"] in NAMES}

    assert set(groups) == set(NAMES)
    for name, group in groups.items():
        assert get(group["metadata"]["self"]) == group
        assert get(group["consumers"]["related"])["data"] == []
        assert get(group["lag_summary"]["related"])["consumer_group_id"] == name
        for lag in get(group["metadata"]["self"] + "/lags")["data"]:
            assert get(lag["metadata"]["self"]) == lag


@pytest.fixture
def many_topics(source_admin: AdminClient, source_cluster: KafkaCluster, topic_name: str) -> list[str]:
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
    service: Service,
    links: str,
    many_topics: list[str],
    topic_name: str,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
) -> None:
    mirrors = f"{links}/many/mirrors"

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
    service.call("POST", f"{links}?link_name=many", expect=204, body=body)
    service.wait_for("all mirrored", in_sync, timeout_s=240)
    assert sorted(mirror["mirror_topic_name"] for mirror in listed("ACTIVE")) == many_topics
    _check_pages(service, destination_cluster.cluster_id, many_topics)

    pattern = {"mirror_topic_name_pattern": f"{topic_name}-.*"}
    results = service.call("POST", f"{mirrors}:failover", expect=200, body=pattern)["data"]
    assert sorted(row["mirror_topic_name"] for row in results) == many_topics
    assert {row["error_code"] for row in results} == {None}
    service.wait_for("all failed over", lambda: len(listed("STOPPED")) == MIRRORS, timeout_s=120)

    fetched = {row["mirror_topic_name"]: row["mirror_lags"][0]["last_source_fetch_offset"] for row in listed("STOPPED")}
    assert fetched == {name: number % 5 for number, name in enumerate(many_topics)}
    _check_writable(destination_cluster, many_topics)
    service.call("DELETE", f"{links}/many", expect=200)
    service.wait_for("deleted", lambda: service.client.get(f"{links}/many").status_code == 404)


def _filters(prefix: str) -> str:
    return json.dumps({"topicFilters": [{"name": f"{prefix}-", "patternType": "PREFIXED", "filterType": "INCLUDE"}]})


def _check_pages(service: Service, cluster_id: str, topics: list[str]) -> None:
    """Check that each mirror is on exactly one page of the link's list, without JavaScript."""
    with httpx.Client(base_url=service.base_url, timeout=60, follow_redirects=True) as browser:
        form = browser.get("/sign-in/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token is not None
        fields = {"csrfmiddlewaretoken": token[1], "username": USER_NAME, "password": PASSWORD}
        assert browser.post("/sign-in/", data=fields, headers={"Referer": service.base_url}).status_code == 200
        seen: list[str] = []
        for page in range(1, MIRRORS // PAGE_SIZE + 1):
            response = browser.get(f"/links/{cluster_id}/many/?page={page}")
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
