"""REST API of reparenting."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from console.models import Cluster, ClusterLink, MirrorTopic, RoleBinding
from linkengine.domain.states import MirrorState
from tests.console.api.actors import DESTINATION, NOW, Boundary, Rest, make_cluster, make_key

pytestmark = pytest.mark.django_db
PATH = f"/api/v1/clusters/{DESTINATION}/links/from-source/mirrors/orders/reparent"


@pytest.fixture
def onward(link: ClusterLink, source: Cluster, make_mirror: Any, boundary: Boundary) -> ClusterLink:
    """A link from another copy of the source topic, which was fenced at offset 12."""
    heir = make_cluster(link.destination.environment, name="Heir", cluster_id="heir-id")
    dated = {"state_since": NOW, "created_at": NOW, "created_by": "owner", "properties": {}}
    to_heir = ClusterLink.objects.create(
        name="to-heir", destination=heir, source=source, source_cluster_id=source.cluster_id, **dated
    )
    child = make_mirror("orders", lags=((15, 10),))
    MirrorTopic.objects.update(state=MirrorState.PAUSED, source_topic_id="a-id", mirror_topic_id="c-id")
    parent = MirrorTopic.objects.get(pk=child.pk)
    parent.pk, parent.link, parent.state, parent.mirror_topic_id = None, to_heir, MirrorState.STOPPED, "b-id"
    parent.save(force_insert=True)
    parent.partitions.create(partition=0, stopped_end=12)
    held = {"partition": 0, "start": 0, "end": 10, "stable_end": 10}
    boundary.response = {"topic_id": "c-id", "held": [held], "parent_id": "b-id", "parent": [{**held, "end": 20}]}
    return ClusterLink.objects.create(
        name="onward", destination=link.destination, source=heir, source_cluster_id="heir-id", **dated
    )


def test_a_mirror_is_reparented_after_a_preview(owner: Rest, onward: ClusterLink) -> None:
    preview = owner.post(f"{PATH}?validate_only=true", {"link_name": "onward"}).json()
    assert preview["partitions"] == [{"partition": 0, "end": 10, "fence": 12, "to_copy": 10}]
    assert (preview["moved"], preview["source_cluster_id"]) == (False, "heir-id")

    assert owner.post(PATH, {"link_name": "onward"}).json()["moved"] is True
    assert onward.mirrors.get().name == "orders"


def test_a_refused_reparenting_names_the_offsets(owner: Rest, onward: ClusterLink, boundary: Boundary) -> None:
    boundary.response["held"][0]["end"] = 13

    response = owner.post(PATH, {"link_name": onward.name})

    assert 400 <= response.status_code < 500
    assert "ends at offset 13, 1 beyond offset 12" in response.json()["message"]


def test_a_reader_may_not_reparent_mirrors(reader: Rest, onward: ClusterLink) -> None:
    assert reader.post(PATH, {"link_name": onward.name}).status_code == 403


def test_the_right_on_the_new_link_does_not_suffice_to_move_a_visible_mirror(onward: ClusterLink) -> None:
    user = User.objects.create_user("neighbour")
    for role, kind, name in (("DeveloperManage", "ClusterLink", "onward"), ("DeveloperRead", "Topic", "orders")):
        place = {"cluster": onward.destination, "resource_type": kind, "resource_name": name}
        RoleBinding.objects.create(user=user, role=role, granted_at=NOW, granted_by="test", **place)
    key, secret = make_key(user)

    response = Rest(key.key, secret).post(PATH, {"link_name": onward.name})

    assert response.status_code == 403
    assert "operate mirror topics" in response.json()["message"]
