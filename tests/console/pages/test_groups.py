"""The tabs of consumer groups and ACLs."""

from __future__ import annotations

from django.test import Client

from console.presenters.groups import ACL_LOOKS, GROUP_LOOKS
from tests.browser.scene import Scene


def test_every_status_of_a_group_has_its_word_and_a_way_on(admin: Client, scene: Scene) -> None:
    text = admin.get(f"{scene.link_url}groups/").content.decode()

    for look in GROUP_LOOKS.values():
        assert look.label in text
        assert look.code in text
    assert "118" in text  # where the group in use stands here


def test_groups_are_filtered_by_status_and_name(admin: Client, scene: Scene) -> None:
    text = admin.get(f"{scene.link_url}groups/?status=IN_USE").content.decode()

    assert "app-in_use" in text
    assert "app-excluded" not in text
    assert "No group matches" in admin.get(f"{scene.link_url}groups/?q=nobody").content.decode()


def test_every_status_of_an_acl_has_its_word_and_conflicts_can_be_shown_alone(admin: Client, scene: Scene) -> None:
    text = admin.get(f"{scene.link_url}acls/").content.decode()
    alone = admin.get(f"{scene.link_url}acls/?status=conflicts").content.decode()

    for look in ACL_LOOKS.values():
        assert look.label in text
    assert "topic-already_there" in alone
    assert "topic-created" not in alone


def test_a_link_that_carries_nothing_over_says_how_to_switch_it_on(admin: Client, scene: Scene) -> None:
    scene.link.groups.all().delete()
    scene.link.acls.all().delete()

    assert "consumer.offset.sync.enable" in admin.get(f"{scene.link_url}groups/").content.decode()
    assert "acl.sync.enable" in admin.get(f"{scene.link_url}acls/").content.decode()


def test_listed_groups_do_not_hide_that_nothing_is_carried_over(admin: Client, scene: Scene) -> None:
    assert "Offsets are not carried over." in admin.get(f"{scene.link_url}groups/").content.decode()

    scene.link.configs.filter(name="consumer.offset.sync.enable").update(value="true")

    assert "Offsets are not carried over." not in admin.get(f"{scene.link_url}groups/").content.decode()


def test_a_stopped_mirror_tells_which_groups_its_end_has_limited(admin: Client, scene: Scene) -> None:
    text = admin.get(scene.mirror_url("gates")).content.decode()

    assert "app-gates" in text
    assert "40,300" in text
