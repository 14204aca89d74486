"""The end-to-end journey without fakes: browser, web process, worker, beat, Spark and two Kafka clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, expect

from devcluster.kafka import KafkaCluster
from tests.console.api.service import PASSWORD, USER_NAME, Service, running

pytestmark = [pytest.mark.browser, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

RECORDS = 1_000
PARTITIONS = 2
PATIENCE_MS = 60_000  # the machine may be busy


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
        name: cluster.client_properties("link") for name, cluster in (("west", source_cluster), ("east", destination_cluster))
    }
    with running(directory=tmp_path_factory.mktemp("journey"), clusters=clusters) as service:
        yield service


@pytest.fixture
def topic(source_admin: AdminClient, source_cluster: KafkaCluster, topic_name: str) -> str:
    source_admin.create_topics([NewTopic(topic_name, PARTITIONS, 1)])[topic_name].result(30)
    _produce(source_cluster, topic_name)
    return topic_name


def test_user_creates_verifies_and_promotes_a_mirror_end_to_end(
    service: Service, browser: Browser, topic: str, source_cluster: KafkaCluster, destination_cluster: KafkaCluster
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    _sign_in(page, service)

    _try_a_wrong_password(page, service, source_cluster)
    _create_link(page, service, source_cluster, destination_cluster)
    _add_mirror(page, topic)
    badge = page.locator(".page-head .api-state")
    expect(badge).to_have_text("State Active")
    total = page.locator(".tile", has_text="Total lag").locator("dd")
    expect(total).to_contain_text("0messages")

    page.get_by_role("navigation", name="Mirror topic").get_by_role("link", name="Data").click()
    page.get_by_role("button", name="Run verification").click()
    expect(page.locator("#verify .badge-state")).to_have_text("Equal")
    expect(page.locator("#verify")).to_contain_text(f"{RECORDS:,}")

    page.get_by_role("link", name="Promote").click()
    page.get_by_label(f"Type {topic} to confirm").fill(topic)
    page.get_by_role("dialog").get_by_role("button", name="Promote").click()
    expect(badge).to_have_text("State Stopped · writable")
    _produce(destination_cluster, topic)
    page.close()


def _sign_in(page: Page, service: Service) -> None:
    page.goto(f"{service.base_url}/links/")
    page.fill("#username", USER_NAME)
    page.fill("#password", PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Cluster links", level=1)).to_be_visible()


def _try_a_wrong_password(page: Page, service: Service, source: KafkaCluster) -> None:
    properties = source.client_properties("link")
    page.goto(f"{service.base_url}/links/new/")
    page.get_by_role("button", name="Start").click()
    page.get_by_label("Other Apache Kafka").check()
    page.fill("#bootstrap_servers", properties["bootstrap.servers"])
    page.select_option("#security_protocol", properties["security.protocol"])
    page.fill("#username", "link")
    page.fill("#password", "not-the-password")

    page.get_by_role("button", name="Test connection").click()

    failed = page.locator("#checklist li.bad")
    expect(failed).to_have_count(1)
    expect(failed).to_contain_text("Authentication")
    expect(failed).to_contain_text("AUTHENTICATION_ERROR")
    page.fill("#password", properties["sasl.jaas.config"].split('password="')[1].split('"')[0])
    page.get_by_role("button", name="Test connection").click()
    expect(page.locator("#checklist li.bad")).to_have_count(0)
    expect(page.locator("#checklist")).to_contain_text(source.cluster_id)
    page.get_by_role("button", name="Discard draft").click()


def _create_link(page: Page, service: Service, source: KafkaCluster, destination: KafkaCluster) -> None:
    page.goto(f"{service.base_url}/links/new/")
    page.get_by_role("button", name="Start").click()
    page.select_option("#other", source.cluster_id)
    page.get_by_role("button", name="Next").click()
    page.select_option("#own", destination.cluster_id)
    page.get_by_role("button", name="Next").click()
    page.locator("#auto_create").check()
    page.get_by_role("button", name="List source").click()
    expect(page.locator("#preview")).to_contain_text(re.compile("Mirror topics are created for [1-9]"))
    page.locator("#auto_create").uncheck()
    page.get_by_role("button", name="Next").click()
    page.fill("#name", "by-hand")
    page.get_by_role("button", name="Create cluster link").click()
    expect(page.get_by_role("heading", name="by-hand", level=1)).to_be_visible()


def _add_mirror(page: Page, topic: str) -> None:
    page.locator("#add-mirror").click()
    for _ in range(60):  # a task loads the list after the link was created
        if page.locator(f'#source_topic option[value="{topic}"]').count():
            break
        page.wait_for_timeout(500)
        page.reload()
    page.locator(".ts-control").click()
    page.keyboard.type(topic)
    expect(page.get_by_role("option")).to_have_count(1)  # the list is filtered
    page.get_by_role("option", name=topic).click()
    page.get_by_role("button", name="Add", exact=True).click()


def _produce(cluster: KafkaCluster, topic: str) -> None:
    producer = Producer({**cluster.client("app"), "message.timeout.ms": 20_000})
    failures: list[object] = []
    for number in range(RECORDS):
        producer.produce(
            topic, f"value {number}", partition=number % PARTITIONS, on_delivery=lambda error, _: failures.append(error)
        )
    assert producer.flush(60) == 0
    assert [failure for failure in failures if failure] == []
