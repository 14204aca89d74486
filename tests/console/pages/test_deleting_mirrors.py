"""Deletion of a mirror topic applies to the state that the dialog showed, because a stopped topic has records of its own."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from console.actors import SYSTEM
from console.errors import ConflictError
from console.mirrors import operation_actions
from console.models import MirrorTopic
from linkengine.domain.states import MirrorState
from tests.browser.page_data import PageData
from tests.console.pages.conftest import hidden_in, htmx


def stop(name: str) -> None:
    MirrorTopic.objects.filter(name=name).update(state=MirrorState.STOPPED, state_since=timezone.now())


def is_being_deleted(name: str) -> bool:
    return MirrorTopic.objects.get(name=name).deletion_requested_at is not None


def test_topic_that_was_stopped_after_the_dialog_opened_is_not_deleted(page_data: PageData, admin: Client) -> None:
    address = f"{page_data.mirror_url('flights')}delete/"
    requested = hidden_in(admin.get(address, **htmx("dialog")))
    stop("flights")

    response = admin.post(address, {"confirm": "flights", **requested}, **htmx("dialog"))

    text = response.content.decode()
    assert response.status_code == 409
    assert "and is STOPPED now" in text
    assert "Applications may have written to it since" in text
    assert not is_being_deleted("flights")

    admin.post(address, {"confirm": "flights", **hidden_in(response)})
    assert is_being_deleted("flights")


def test_topic_that_was_stopped_again_is_not_deleted(page_data: PageData, admin: Client) -> None:
    address = f"{page_data.mirror_url('gates')}delete/"
    requested = hidden_in(admin.get(address))
    stop("gates")

    assert admin.post(address, {"confirm": "gates", **requested}).status_code == 409
    assert not is_being_deleted("gates")


def test_mistyped_name_does_not_confirm_the_changed_state(page_data: PageData, admin: Client) -> None:
    address = f"{page_data.mirror_url('flights')}delete/"
    requested = hidden_in(admin.get(address))
    stop("flights")

    mistyped = admin.post(address, {"confirm": "flight", **requested})

    assert mistyped.status_code == 422
    assert admin.post(address, {"confirm": "flights", **hidden_in(mistyped)}).status_code == 409


def test_deletion_without_the_seen_state_is_rejected(page_data: PageData, admin: Client) -> None:
    assert admin.post(f"{page_data.mirror_url('flights')}delete/", {"confirm": "flights"}).status_code == 409
    assert not is_being_deleted("flights")


def test_unchanged_mirror_is_deleted_without_a_warning(page_data: PageData, admin: Client) -> None:
    address = f"{page_data.mirror_url('flights')}delete/"
    requested = admin.get(address)

    assert "Applications may have written" not in requested.content.decode()
    assert admin.post(address, {"confirm": "flights", **hidden_in(requested)})["Location"] == page_data.link_url
    assert is_being_deleted("flights")


def test_state_change_between_check_and_deletion_is_a_conflict(page_data: PageData) -> None:
    mirror = MirrorTopic.objects.select_related("link__destination__environment").get(name="flights")
    seen = operation_actions.seen_state(mirror)
    stop("flights")

    with pytest.raises(ConflictError):
        operation_actions.delete_as_seen(mirror=mirror, seen=seen, by=SYSTEM, now=timezone.now())
    assert not is_being_deleted("flights")
