"""The source topics of a link, why one is not mirrored, and the filters of auto-create."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from console.models import LinkConfig, LinkTask, Namespace, SourceTopic
from tests.browser.scene import Scene
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


def test_each_source_topic_has_a_word_and_a_reason(scene: Scene, admin: Client) -> None:
    add_topics(scene, "flights", "radar", "__consumer_offsets")

    text = admin.get(f"{scene.link_url}topics/").content.decode()

    assert "Mirrored" in text
    assert "auto.create.mirror.topics.enable is false" in text
    assert "own machinery" in text
    assert "radar" not in admin.get(f"{scene.link_url}topics/?standing=MIRRORED").content.decode()


def test_a_topic_tells_every_check_and_the_next_step(scene: Scene, admin: Client) -> None:
    add_topics(scene, "radar")

    text = admin.get(f"{scene.link_url}topics/radar/").content.decode()

    assert "No INCLUDE filter matches its name." in text
    assert "Add an INCLUDE filter for it" in text
    assert f'href="{scene.link_url}mirrors/new/?topic=radar"' in text
    assert "no such topic" in admin.get(f"{scene.link_url}topics/ghost/").content.decode()


def test_filters_are_saved_from_rows_and_run_at_once(scene: Scene, admin: Client, queue: Queue) -> None:
    LinkTask.objects.create(link=scene.link, name="AutoCreateMirror", next_run_at=scene.now)

    answer = post_form(admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), ("radar", "LITERAL", "EXCLUDE")))

    assert answer.status_code == 302
    stored = json.loads(LinkConfig.objects.get(name=FILTERS).value)
    assert [one["filterType"] for one in stored["topicFilters"]] == ["INCLUDE", "EXCLUDE"]
    assert LinkTask.objects.get().next_run_at is None
    assert 'value="radar"' in admin.get(f"{scene.link_url}filters/").content.decode()


def test_a_preview_tells_what_would_be_created_and_stores_nothing(scene: Scene, admin: Client) -> None:
    add_topics(scene, "flights", "radar", "rails")

    text = post_form(admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), intent="preview")).content.decode()

    assert "1 already mirrored, 2 to be created" in text
    assert "radar, rails" in text
    assert not LinkConfig.objects.filter(name=FILTERS).exists()


def test_what_a_reserved_namespace_keeps_out_is_told_of_before_and_after_filters_choose_it(scene: Scene, admin: Client) -> None:
    add_topics(scene, "radar", "rails")
    place = {"cluster": scene.link.destination, "created_at": scene.now}
    Namespace.objects.create(prefix="rad", reserved=True, created_by="owner", **place)

    preview = post_form(
        admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), intent="preview")
    ).content.decode()
    post_form(admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE")))
    listed = admin.get(f"{scene.link_url}topics/?q=radar").content.decode()
    told = admin.get(f"{scene.link_url}topics/radar/").content.decode()

    assert "1 to be created" in preview
    assert "radar: Its name is in the reserved namespace rad*" in preview
    assert "in the reserved namespace rad*" in listed
    assert "Let the namespace follow this link" in told


def test_auto_create_without_a_filter_is_refused_in_place(scene: Scene, admin: Client) -> None:
    answer = post_form(admin, f"{scene.link_url}filters/", form())

    assert answer.status_code == 422
    assert "needs at least one filter" in answer.content.decode()


def test_switching_off_clears_the_filters(scene: Scene, admin: Client) -> None:
    post_form(admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE")))

    answer = post_form(admin, f"{scene.link_url}filters/", form(("ra", "PREFIXED", "INCLUDE"), enabled=False), follow=True)

    assert "Its filters are deleted" in answer.content.decode()
    assert not LinkConfig.objects.filter(name=FILTERS).exists()


def test_a_reader_sees_filters_and_changes_none(scene: Scene) -> None:
    client = client_of(scene.reader)

    assert "save-filters" not in client.get(f"{scene.link_url}filters/").content.decode()
    assert client.post(f"{scene.link_url}filters/", form(("a", "LITERAL", "INCLUDE"))).status_code == 403
