"""The source topics of a link with the reasons why they are not mirrored, and the auto-create filters."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from console.models import LinkConfig, LinkTask, Namespace, SourceTopic
from tests.browser.page_data import Scene
from tests.console.pages.conftest import Queue, client_of, post_form

FILTERS = "auto.create.mirror.topics.filters"


def add_topics(scene: Scene, *names: str) -> None:
    for name in names:
        SourceTopic.objects.get_or_create(link=scene.link, name=name, defaults={"partitions": 1, "seen_at": scene.now})


def form(*rows: tuple[str, str, str], enabled: bool = True, intent: str = "save") -> dict[str, Any]:
    values: dict[str, Any] = {"name": [], "pattern": [], "kind": [], "intent": intent}
    for row in (*rows, ("", "LITERAL", "INCLUDE")):
        for column, value in zip(("name", "pattern", "kind"), row, strict=True):
            values[column].append(value)
    return values | ({"enabled": "true"} if enabled else {})


def test_source_topics_have_a_status_and_a_reason(scene: Scene, admin: Client) -> None:
    add_topics(scene, "flights", "radar", "__consumer_offsets")

    text = admin.get(f"{scene.link_url}topics/").content.decode()

    assert "Mirrored" in text
    assert "auto.create.mirror.topics.enable is false" in text
    assert "Internal Kafka topic" in text


def test_source_topic_page_shows_checks_and_next_steps(scene: Scene, admin: Client) -> None:
    add_topics(scene, "radar")

    text = admin.get(f"{scene.link_url}topics/radar/").content.decode()

    assert "No INCLUDE filter matches its name." in text
    assert "Add an INCLUDE filter for it" in text
    assert f'href="{scene.link_url}mirrors/new/?topic=radar"' in text
    assert "no such topic" in admin.get(f"{scene.link_url}topics/ghost/").content.decode()


def test_saved_filters_are_applied_immediately(scene: Scene, admin: Client, queue: Queue) -> None:
    LinkTask.objects.create(link=scene.link, name="AutoCreateMirror", next_run_at=scene.now)

    answer = post_form(admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), ("radar", "LITERAL", "EXCLUDE")))

    assert answer.status_code == 302
    stored = json.loads(LinkConfig.objects.get(name=FILTERS).value)
    assert [row["filterType"] for row in stored["topicFilters"]] == ["INCLUDE", "EXCLUDE"]
    assert LinkTask.objects.get().next_run_at is None
    assert 'value="radar"' in admin.get(f"{scene.link_url}filters/").content.decode()


def test_filter_preview_shows_new_mirrors_and_stores_nothing(scene: Scene, admin: Client) -> None:
    add_topics(scene, "flights", "radar", "rails")

    text = post_form(admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), intent="preview")).content.decode()

    assert "1 already mirrored, 2 to be created" in text
    assert "radar, rails" in text
    assert not LinkConfig.objects.filter(name=FILTERS).exists()


def test_topics_in_a_reserved_namespace_are_reported_in_preview_and_list(scene: Scene, admin: Client) -> None:
    add_topics(scene, "radar", "rails")
    place = {"cluster": scene.link.destination, "created_at": scene.now}
    Namespace.objects.create(prefix="rad", reserved=True, created_by="owner", **place)

    preview = post_form(
        admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), intent="preview")
    ).content.decode()
    post_form(admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE")))
    listed = admin.get(f"{scene.link_url}topics/?q=radar").content.decode()
    topic_page = admin.get(f"{scene.link_url}topics/radar/").content.decode()

    assert "1 to be created" in preview
    assert "radar: Its name is in the reserved namespace rad*" in preview
    assert "in the reserved namespace rad*" in listed
    assert "Let the namespace follow this link" in topic_page


def test_auto_create_without_a_filter_is_rejected(scene: Scene, admin: Client) -> None:
    answer = post_form(admin, f"{scene.link_url}filters/", form())

    assert answer.status_code == 422
    assert "needs at least one filter" in answer.content.decode()


def test_turning_auto_create_off_deletes_the_filters(scene: Scene, admin: Client) -> None:
    post_form(admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE")))

    answer = post_form(admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), enabled=False), follow=True)

    assert "Its filters are deleted" in answer.content.decode()
    assert not LinkConfig.objects.filter(name=FILTERS).exists()


def test_reader_may_not_change_filters(scene: Scene) -> None:
    client = client_of(scene.reader)

    assert "save-filters" not in client.get(f"{scene.link_url}filters/").content.decode()
    assert client.post(f"{scene.link_url}filters/", form(("a", "LITERAL", "INCLUDE"))).status_code == 403
