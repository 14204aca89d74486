"""Warnings in the confirmations of operations, and transactional ids of producers in REST previews."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from django.test import Client

from console.actors import Actor
from console.errors import UnavailableError
from console.mirrors import bulk_pages, operation_pages
from console.models import ClusterLink, MirrorTopic
from linkengine.domain.clusterviews import ReversalRisks, TransactionalWriters
from tests.console.conftest import Engine, MakeMirror

NO_WRITERS = TransactionalWriters(ids=(), open_ids=(), unnamed_open=0, complete=True)


@pytest.fixture
def page(owner: Actor, client: Client) -> Client:
    """A signed-in client."""
    assert owner.user is not None
    client.force_login(owner.user)
    return client


def test_transactional_ids_are_shown_before_a_reversal(
    mirror: MirrorTopic, back: ClusterLink, owner: Actor, client: Client, engine: Engine
) -> None:
    writers = TransactionalWriters(ids=("billing-1", "shipping"), open_ids=("shipping",), unnamed_open=0, complete=True)
    engine.responses["find_reversal_risks"] = {mirror.name: asdict(ReversalRisks(unclean_on=(), writers=writers))}
    assert owner.user is not None
    client.force_login(owner.user)

    page = client.get(f"{mirror.link.get_absolute_url()}mirrors/{mirror.name}/reverse-and-start/").content.decode()
    previews = f"/api/v1/clusters/{back.source_cluster_id}/links/{mirror.link.name}/previews?operation=reverse-and-start"
    (preview,) = client.get(previews).json()["data"]

    expected = "wrote to &#x27;orders&#x27; recently: shipping (transaction open), billing-1."
    assert expected in page
    assert any("shipping (transaction open), billing-1" in sentence for sentence in preview["warnings"])


@pytest.mark.parametrize("operation", ["reverse-and-start", "reverse-and-pause"])
def test_bulk_reversal_shows_the_warnings_of_each_topic_before_it_is_confirmed(
    make_mirror: MakeMirror, back: ClusterLink, page: Client, engine: Engine, operation: str
) -> None:
    url = f"{make_mirror('orders').link.get_absolute_url()}bulk/"
    make_mirror("payments")
    unclean = {"orders": ("Source",), "payments": ()}
    risks = {name: asdict(ReversalRisks(unclean_on=on, writers=NO_WRITERS)) for name, on in unclean.items()}
    engine.responses["find_reversal_risks"] = risks

    text = page.post(url, {"operation": operation, "mirror": ["orders", "payments"]}).content.decode()

    assert '<span class="mono">orders</span>: unclean.leader.election.enable is on' in text
    assert '<span class="mono">payments</span>: ' not in text
    assert [kwargs["topics"] for name, kwargs in engine.calls if name == "find_reversal_risks"] == [
        {"orders": "orders", "payments": "payments"}
    ]
    assert MirrorTopic.objects.filter(state="ACTIVE").count() == 2


def test_bulk_reversal_shows_unread_risks_as_unknown_and_lists_topics_not_checked(
    make_mirror: MakeMirror, back: ClusterLink, page: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{make_mirror('orders').link.get_absolute_url()}bulk/"
    make_mirror("payments")
    engine.refuses("find_reversal_risks", UnavailableError("No worker responds."))
    for module in (bulk_pages, operation_pages):
        monkeypatch.setattr(module, "NAMES_SHOWN", 1)

    text = page.post(url, {"operation": "reverse-and-start", "mirror": ["orders", "payments"]}).content.decode()
    paused = page.post(url, {"operation": "pause", "mirror": ["orders", "payments"]}).content.decode()

    assert "could not be read on both clusters" in text
    assert "could not be read; there may be some" in text
    assert "Topics that are not listed here were not checked for warnings" in text
    assert "not checked for warnings" not in paused
    assert "could not be read" not in paused


def test_bulk_deletion_names_the_mirrors_that_copy_from_the_topics(
    make_mirror: MakeMirror, back: ClusterLink, page: Client, engine: Engine
) -> None:
    url = f"{make_mirror('orders').link.get_absolute_url()}bulk/"
    make_mirror("payments")
    make_mirror("orders", link=back)

    text = page.post(url, {"operation": "delete", "mirror": ["orders", "payments"]}).content.decode()

    assert '<span class="mono">orders</span>: Mirror topics copy from &#x27;orders&#x27;' in text
    assert '<span class="mono">payments</span>: ' not in text
