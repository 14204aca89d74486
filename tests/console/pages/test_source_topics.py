"""The source topics of a link with the reasons why they are not mirrored, and the auto-create filters."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from console.models import LinkConfig, LinkTask, Namespace, SourceTopic
from tests.browser.page_data import PageData
from tests.console.pages.conftest import Queue, client_of, post_form

FILTERS = "auto.create.mirror.topics.filters"


def add_topics(page_data: PageData, *names: str) -> None:
    for name in names:
        SourceTopic.objects.get_or_create(link=page_data.link, name=name, defaults={"partitions": 1, "seen_at": page_data.now})


def form(*rows: tuple[str, str, str], enabled: bool = True, intent: str = "save") -> dict[str, Any]:
    values: dict[str, Any] = {"name": [], "pattern": [], "kind": [], "intent": intent}
    for row in (*rows, ("", "LITERAL", "INCLUDE")):
        for column, value in zip(("name", "pattern", "kind"), row, strict=True):
            values[column].append(value)
    return values | ({"enabled": "true"} if enabled else {})


def test_source_topics_have_a_status_and_a_reason(page_data: PageData, admin: Client) -> None:
    add_topics(page_data, "flights", "radar", "__consumer_offsets")
    page_data.link.mirrors.filter(name="flights").update(state="PENDING_STOPPED", stop_reason="failover")

    text = admin.get(f"{page_data.link_url}topics/").content.decode()

    assert "Mirrored" in text
    assert "Failing over" in text  # not "Promoting"
    assert "auto.create.mirror.topics.enable is false" in text
    assert "Internal Kafka topic" in text


def test_source_topic_page_shows_checks_and_next_steps(page_data: PageData, admin: Client) -> None:
    add_topics(page_data, "radar")

    text = admin.get(f"{page_data.link_url}topics/radar/").content.decode()

    assert "No INCLUDE filter matches its name." in text
    assert "Add an INCLUDE filter for it" in text
    assert f'href="{page_data.link_url}mirrors/new/?topic=radar"' in text
    assert "no such topic" in admin.get(f"{page_data.link_url}topics/ghost/").content.decode()


def test_saved_filters_are_applied_immediately(page_data: PageData, admin: Client, queue: Queue) -> None:
    LinkTask.objects.create(link=page_data.link, name="AutoCreateMirror", next_run_at=page_data.now)

    response = post_form(
        admin, f"{page_data.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), ("radar", "LITERAL", "EXCLUDE"))
    )

    assert response.status_code == 302
    stored = json.loads(LinkConfig.objects.get(name=FILTERS).value)
    assert [row["filterType"] for row in stored["topicFilters"]] == ["INCLUDE", "EXCLUDE"]
    assert LinkTask.objects.get().next_run_at is None
    assert 'value="radar"' in admin.get(f"{page_data.link_url}filters/").content.decode()


def test_filter_preview_shows_new_mirrors_and_stores_nothing(page_data: PageData, admin: Client) -> None:
    add_topics(page_data, "flights", "radar", "rails")

    text = post_form(
        admin, f"{page_data.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), intent="preview")
    ).content.decode()

    assert "1 already mirrored, 2 to be created" in text
    assert "radar, rails" in text
    assert not LinkConfig.objects.filter(name=FILTERS).exists()


def test_topics_in_a_reserved_namespace_are_reported_in_preview_and_list(page_data: PageData, admin: Client) -> None:
    add_topics(page_data, "radar", "rails")
    place = {"cluster": page_data.link.destination, "created_at": page_data.now}
    Namespace.objects.create(prefix="rad", reserved=True, created_by="owner", **place)

    preview = post_form(
        admin, f"{page_data.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), intent="preview")
    ).content.decode()
    post_form(admin, f"{page_data.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE")))
    listed = admin.get(f"{page_data.link_url}topics/?q=radar").content.decode()
    topic_page = admin.get(f"{page_data.link_url}topics/radar/").content.decode()

    assert "1 to be created" in preview
    assert "radar: Its name is in the reserved namespace rad*" in preview
    assert "in the reserved namespace rad*" in listed
    assert "Let the namespace follow this link" in topic_page


def test_auto_create_without_a_filter_is_rejected(page_data: PageData, admin: Client) -> None:
    response = post_form(admin, f"{page_data.link_url}filters/", form())

    assert response.status_code == 422
    assert "needs at least one filter" in response.content.decode()


def test_turning_auto_create_off_deletes_the_filters(page_data: PageData, admin: Client) -> None:
    post_form(admin, f"{page_data.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE")))

    response = post_form(
        admin, f"{page_data.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), enabled=False), follow=True
    )

    assert "Its filters are deleted" in response.content.decode()
    assert not LinkConfig.objects.filter(name=FILTERS).exists()


def test_reader_may_not_change_filters(page_data: PageData) -> None:
    client = client_of(page_data.reader)

    assert "save-filters" not in client.get(f"{page_data.link_url}filters/").content.decode()
    assert client.post(f"{page_data.link_url}filters/", form(("a", "LITERAL", "INCLUDE"))).status_code == 403
