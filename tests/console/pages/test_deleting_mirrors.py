"""Whoever deletes a mirror topic deletes what the dialog showed: a mirror is a copy, what was written to it since is none."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from console.actions import operations
from console.actors import SYSTEM
from console.errors import ConflictError
from console.models import MirrorTopic
from linkengine.domain.states import MirrorState
from tests.browser.scene import Scene
from tests.console.pages.conftest import hidden_in, htmx


def stop(name: str) -> None:
    MirrorTopic.objects.filter(name=name).update(state=MirrorState.STOPPED, state_since=timezone.now())


def is_being_deleted(name: str) -> bool:
    return MirrorTopic.objects.get(name=name).deletion_requested_at is not None


def test_a_topic_that_became_writable_meanwhile_is_not_deleted(scene: Scene, admin: Client) -> None:
    address = f"{scene.mirror_url('flights')}delete/"
    asked = hidden_in(admin.get(address, **htmx("dialog")))
    stop("flights")

    answer = admin.post(address, {"confirm": "flights", **asked}, **htmx("dialog"))

    text = answer.content.decode()
    assert answer.status_code == 409
    assert "it is STOPPED now" in text
    assert "Applications may have written to it since" in text
    assert not is_being_deleted("flights")

    admin.post(address, {"confirm": "flights", **hidden_in(answer)})
    assert is_being_deleted("flights")


def test_one_that_was_stopped_again_is_another_one(scene: Scene, admin: Client) -> None:
    address = f"{scene.mirror_url('gates')}delete/"
    asked = hidden_in(admin.get(address))
    stop("gates")

    assert admin.post(address, {"confirm": "gates", **asked}).status_code == 409
    assert not is_being_deleted("gates")


def test_a_mistyped_name_does_not_pass_for_having_seen_the_change(scene: Scene, admin: Client) -> None:
    address = f"{scene.mirror_url('flights')}delete/"
    asked = hidden_in(admin.get(address))
    stop("flights")

    mistyped = admin.post(address, {"confirm": "flight", **asked})

    assert mistyped.status_code == 422
    assert admin.post(address, {"confirm": "flights", **hidden_in(mistyped)}).status_code == 409


def test_who_does_not_say_what_was_seen_deletes_nothing(scene: Scene, admin: Client) -> None:
    assert admin.post(f"{scene.mirror_url('flights')}delete/", {"confirm": "flights"}).status_code == 409
    assert not is_being_deleted("flights")


def test_a_mirror_that_is_still_one_is_deleted_and_said_to_be_a_copy(scene: Scene, admin: Client) -> None:
    address = f"{scene.mirror_url('flights')}delete/"
    asked = admin.get(address)

    assert "Applications may have written" not in asked.content.decode()
    assert admin.post(address, {"confirm": "flights", **hidden_in(asked)})["Location"] == scene.link_url
    assert is_being_deleted("flights")


def test_a_change_between_the_look_and_the_deletion_is_noticed(scene: Scene) -> None:
    mirror = MirrorTopic.objects.select_related("link__destination__environment").get(name="flights")
    seen = operations.seen_state(mirror)
    stop("flights")

    with pytest.raises(ConflictError):
        operations.delete_as_seen(mirror=mirror, seen=seen, by=SYSTEM, now=timezone.now())
    assert not is_being_deleted("flights")
