"""The tab that tells what stops cost, and its file."""

from __future__ import annotations

from django.test import Client

from tests.browser.scene import Scene


def test_the_tab_tells_what_was_left_behind(admin: Client, scene: Scene) -> None:
    text = admin.get(f"{scene.link_url}stops/").content.decode()
    for words in ("Failed over", "412", "41 s", "2 s", "gates", "app-gates"):
        assert words in text


def test_the_file_has_the_same_numbers(admin: Client, scene: Scene) -> None:
    answer = admin.get(f"{scene.link_url}stops/?format=json").json()
    assert answer["totals"] == {"mirrors": 1, "records_not_copied": 412, "worst_rpo_ms": 41_300, "worst_rto_ms": 2_140}
    assert answer["data"][0]["mirror_topic_name"] == "gates"
    (clamped,) = answer["data"][0]["groups_clamped"]
    assert (clamped["group"], clamped["before"], clamped["after"]) == ("app-gates", 39_000, 40_000)


def test_the_mirror_says_in_a_sentence_what_is_missing(admin: Client, scene: Scene) -> None:
    text = admin.get(scene.mirror_url("gates")).content.decode()
    assert "412 records were not copied when the source was last seen" in text
