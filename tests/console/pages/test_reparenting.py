"""Moving a mirror topic to another link on its page."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from console.models import Cluster, ClusterLink, MirrorTopic
from linkengine.domain.states import MirrorState
from tests.browser.page_data import PageData
from tests.console.pages.conftest import Queue, states_in_headlines

NAME = "flights"


@pytest.fixture
def onward(page_data: PageData, queue: Queue) -> ClusterLink:
    """Return a link from a cluster where another mirror of the same topic was failed over. The mirror here is paused."""
    child = MirrorTopic.objects.select_related("link__destination", "link__source").get(name=NAME)
    MirrorTopic.objects.filter(pk=child.pk).update(state=MirrorState.PAUSED, source_topic_id="a-id", mirror_topic_id="c-id")
    ClusterLink.objects.filter(pk=child.link_id).update(state="ACTIVE")
    here, now = child.link.destination, timezone.now()
    heir = Cluster.objects.create(
        environment=here.environment, name="Heir", cluster_id="heir-id", bootstrap_servers="heir:1", created_at=now
    )
    fields = {"properties": {}, "state_since": now, "created_at": now, "created_by": "owner"}
    to_heir = ClusterLink.objects.create(
        name="to-heir", destination=heir, source=child.link.source, source_cluster_id=child.link.source_cluster_id, **fields
    )
    facts = {"state": MirrorState.STOPPED, "source_topic_id": "a-id", "mirror_topic_id": "b-id", "num_partitions": 1}
    parent = MirrorTopic.objects.create(
        link=to_heir, name=NAME, source_topic=NAME, state_since=now, created_at=now, created_by="owner", **facts
    )
    parent.partitions.create(partition=0, stopped_end=12)
    held = {"partition": 0, "start": 0, "end": 12, "stable_end": 12}
    queue.response = {"topic_id": "c-id", "held": [held], "parent_id": "b-id", "parent": [{**held, "end": 13}]}
    return ClusterLink.objects.create(name="onward", destination=here, source=heir, source_cluster_id="heir-id", **fields)


def test_mirror_page_offers_a_link_and_moves_the_mirror(page_data: PageData, admin: Client, onward: ClusterLink) -> None:
    assert "Move to link onward" in admin.get(page_data.mirror_url(NAME)).content.decode()

    response = admin.post(f"{page_data.mirror_url(NAME)}reparent/", {"link_name": onward.name})

    assert response.status_code == 302
    assert f"/{onward.name}/mirrors/{NAME}/" in response["Location"]
    assert admin.get(response["Location"]).status_code == 200
    assert onward.mirrors.get().name == NAME


@pytest.mark.usefixtures("undrawn")
def test_rejected_move_shows_the_reason(page_data: PageData, admin: Client, onward: ClusterLink, queue: Queue) -> None:
    queue.response["held"][0]["end"] = 14

    response = admin.post(f"{page_data.mirror_url(NAME)}reparent/", {"link_name": onward.name})

    assert response.status_code == 409
    assert "2 beyond offset 12" in response.content.decode()
    assert not states_in_headlines(response)


def test_reader_may_not_move_a_mirror(page_data: PageData, reader: Client, onward: ClusterLink) -> None:
    assert "Move to link" not in reader.get(page_data.mirror_url(NAME)).content.decode()
    assert reader.post(f"{page_data.mirror_url(NAME)}reparent/", {"link_name": onward.name}).status_code == 403
