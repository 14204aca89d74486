"""The namespaces page of a cluster: each action, each error, and no actions for readers."""

from __future__ import annotations

import pytest
from django.test import Client

from console.clusters.presenters import REPLICATION_BADGES
from console.models import Namespace
from linkengine.domain.names import ReplicationState
from tests.browser.page_data import EAST, PageData
from tests.console.pages.conftest import client_of

URL = f"/clusters/{EAST}/namespaces/"


def test_every_replication_state_has_a_display() -> None:
    assert set(REPLICATION_BADGES) == set(ReplicationState)


def test_namespaces_page_shows_replication_states(admin: Client, page_data: PageData) -> None:
    text = admin.get(URL).content.decode()

    for words in (
        "fl*",
        "Catching up",
        "Not mirrored: fleet.",
        "bo*",
        "Disconnected",
        "Not attached",
        "enforced by the cluster",
        "It has no authorizer.",
    ):
        assert words in text


def test_namespace_is_created_attached_detached_and_deleted(admin: Client, page_data: PageData) -> None:
    admin.post(URL, {"intent": "create", "prefix": "new.", "reserved": "1"})
    namespace = Namespace.objects.get(prefix="new.")
    assert (namespace.reserved, namespace.created_by) == (True, "amelia")

    def press(intent: str, **more: str) -> Namespace:
        assert admin.post(URL, {"intent": intent, "namespace": namespace.pk, **more}).status_code == 302
        return Namespace.objects.get(pk=namespace.pk)

    assert press("release").reserved is False
    attached = press("attach", link=page_data.link.name)
    assert (attached.link, attached.leader_prefix, attached.reserved) == (page_data.link, "new.", True)
    assert press("detach").link is None
    assert press("reserve").reserved is True
    deleted = admin.post(URL, {"intent": "delete", "namespace": namespace.pk}, follow=True)
    assert "Being deleted" in deleted.content.decode()  # until the cluster has removed the ACL


@pytest.mark.parametrize(
    ("posted", "status"),
    [
        ({"intent": "create", "prefix": "fl"}, 409),
        ({"intent": "create", "prefix": "no spaces"}, 422),
        ({"intent": "delete", "namespace": "x"}, 422),
        ({"intent": "delete", "namespace": "999999"}, 404),
        ({"intent": "attach", "namespace": "1", "link": "no-such-link"}, 404),
    ],
)
def test_invalid_namespace_request_shows_its_status(
    admin: Client, page_data: PageData, posted: dict[str, str], status: int
) -> None:
    first = Namespace.objects.order_by("pk").first()
    assert first is not None
    if posted.get("namespace") == "1":
        posted = {**posted, "namespace": str(first.pk)}

    response = admin.post(URL, posted)

    assert response.status_code == status
    assert Namespace.objects.count() == 4


def test_attached_namespace_is_not_deleted(admin: Client, page_data: PageData) -> None:
    number = Namespace.objects.get(prefix="fl").pk

    response = admin.post(URL, {"intent": "delete", "namespace": number})

    assert (response.status_code, "Detach it first" in response.content.decode()) == (409, True)


def test_reader_may_not_manage_namespaces(page_data: PageData) -> None:
    reader = client_of(page_data.reader)

    assert 'name="intent"' not in reader.get(URL).content.decode()
    assert reader.post(URL, {"intent": "create", "prefix": "mine."}).status_code == 403


def test_link_that_is_being_deleted_is_not_offered_for_attachment(page_data: PageData, admin: Client) -> None:
    offered = f"<option>{page_data.link.name}</option>"
    assert offered in admin.get(f"/clusters/{EAST}/namespaces/").content.decode()

    type(page_data.link).objects.filter(pk=page_data.link.pk).update(deletion_requested_at=page_data.now)

    assert offered not in admin.get(f"/clusters/{EAST}/namespaces/").content.decode()
