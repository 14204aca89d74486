"""Actions on a link or mirror that is deleted after the request looked it up raise NotFoundError and store nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from django.db import transaction

from console.actors import Actor
from console.errors import ConflictError, NotFoundError
from console.links.actions import LinkConfigChange, alter_configs, delete_link, remove_link
from console.mirrors.actions import request_deletion
from console.models import AuditEvent, ClusterLink, MirrorTopic
from console.tasks import mirrors
from console.tasks.links import reconcile_link
from console.verification.actions import override_gate, start_gate, start_verify
from console.verification.drill_actions import start_drill
from linkengine import jobs
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror

pytestmark = pytest.mark.usefixtures("sent")
PAUSE = LinkConfigChange(name="cluster.link.paused", value="true")
OF_LINKS = (remove_link, delete_link, start_drill, partial(alter_configs, changes=[PAUSE]))
OF_MIRRORS = (start_verify, start_gate, partial(override_gate, reason="the topic is not used now"))


def refused(action: Callable[..., object], **values: object) -> str:
    """Check that the action raises NotFoundError without an audit row; return the error's code."""
    with transaction.atomic(), pytest.raises(NotFoundError, match="has been deleted") as caught:
        action(**values, now=NOW)
    assert not AuditEvent.objects.exists()
    return caught.value.code


@pytest.mark.parametrize("action", OF_LINKS)
def test_actions_on_a_deleted_link_raise_not_found(action: Callable[..., object], link: ClusterLink, owner: Actor) -> None:
    ClusterLink.objects.filter(pk=link.pk).delete()

    assert refused(action, link=link, by=owner) == "UNKNOWN_LINK"


@pytest.mark.parametrize("action", OF_MIRRORS)
def test_actions_on_a_deleted_mirror_raise_not_found(action: Callable[..., object], mirror: MirrorTopic, owner: Actor) -> None:
    MirrorTopic.objects.filter(pk=mirror.pk).delete()

    assert refused(action, mirror=mirror, by=owner) == "UNKNOWN_MIRROR"


@pytest.mark.parametrize("action", OF_MIRRORS[:2])
def test_actions_on_a_mirror_deleted_with_its_link_name_the_link(
    action: Callable[..., object], mirror: MirrorTopic, owner: Actor
) -> None:
    mirror.link.mirrors.all().delete()
    ClusterLink.objects.filter(pk=mirror.link_id).delete()

    assert refused(action, mirror=mirror, by=owner) == "UNKNOWN_LINK"


def test_a_pending_topic_deletion_is_completed_before_the_link_is_deleted(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[str] = []
    monkeypatch.setattr(jobs, "delete_mirror_topic", lambda *, mirror_topic, **_: deleted.append(mirror_topic))
    mirror, _ = make_mirror("done", MirrorState.STOPPED), make_mirror("stays", MirrorState.STOPPED)
    request_deletion(mirror=mirror, by=owner, now=NOW)

    delete_link(link=link, by=owner, now=NOW)
    with pytest.raises(ConflictError, match="'done' of cluster link 'west-to-east' is being deleted"):
        remove_link(link=link, by=owner, now=NOW)
    reconcile_link(link_id=link.pk)
    assert (deleted, ClusterLink.objects.count()) == ([], 1)
    mirrors.delete_mirror(mirror_id=mirror.pk)
    reconcile_link(link_id=link.pk)

    assert (deleted, ClusterLink.objects.count()) == (["done"], 0)
    actions = AuditEvent.objects.order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["DeleteMirrorTopic", "RequestClusterLinkDeletion", "DeleteClusterLink"]
