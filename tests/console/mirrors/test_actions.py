"""Creation and deletion of mirror topics."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from console.actors import Actor
from console.errors import BadRequestError, ConflictError, DeniedError, InvalidInputError, NotFoundError
from console.mirrors import actions as mirror_actions
from console.mirrors.actions import create_mirror, request_deletion
from console.models import AuditEvent, Cluster, ClusterLink, LinkConfig, MirrorTopic, StateTransition
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, Engine, MakeActor, MakeMirror, choose_all

Sent = list[tuple[str, dict[str, Any]]]


def create(link: ClusterLink, by: Actor, **values: Any) -> MirrorTopic:
    return create_mirror(link=link, by=by, now=NOW, **{"source_topic": "orders", **values})


def test_a_new_mirror_is_pending_setup_audited_and_queued(link: ClusterLink, owner: Actor, engine: Engine, sent: Sent) -> None:
    mirror = create(link, owner, replication_factor=3, configs={"retention.ms": "1000", "unset": None})

    assert (mirror.state, mirror.name, mirror.replication_factor) == (MirrorState.PENDING_SETUP, "orders", 3)
    assert mirror.config_overrides == {"retention.ms": "1000"}
    assert StateTransition.objects.get().event == "create"
    assert AuditEvent.objects.get().action == "CreateMirrorTopic"
    assert sent == [("setup_mirror", {"mirror_id": mirror.pk})]
    assert engine.calls[0][1]["link_id"] == link.pk


def test_the_mirror_name_has_the_prefix_of_the_link(link: ClusterLink, owner: Actor, engine: Engine) -> None:
    link.prefix = "west."

    assert create(link, owner).name == "west.orders"
    with pytest.raises(BadRequestError, match=r"must be named 'west.planes'"):
        create(link, owner, source_topic="planes", mirror_topic="planes")


def test_a_mirror_name_without_a_prefix_must_be_the_source_name(link: ClusterLink, owner: Actor, engine: Engine) -> None:
    with pytest.raises(BadRequestError, match="renaming for mirroring is not supported"):
        create(link, owner, mirror_topic="other")
    assert create(link, owner, mirror_topic="orders").name == "orders"


def test_an_unknown_source_topic_is_not_found(link: ClusterLink, owner: Actor, engine: Engine) -> None:
    engine.refuses("check_mirror", LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "No such topic."))

    with pytest.raises(NotFoundError) as caught:
        create(link, owner)

    assert (caught.value.code, caught.value.message) == ("UNKNOWN_TOPIC_OR_PARTITION_ERROR", "No such topic.")
    assert not MirrorTopic.objects.exists()


def test_a_topic_that_exists_is_refused(link: ClusterLink, owner: Actor, engine: Engine) -> None:
    engine.refuses("check_mirror", LinkEngineError(ErrorCode.TOPIC_EXISTS_ERROR, "Topic 'orders' already exists."))
    with pytest.raises(BadRequestError, match=r"Topic 'orders' already exists\."):
        create(link, owner)


@pytest.mark.parametrize("by_filter", [False, True], ids=["by request", "by filter"])
def test_one_of_two_links_that_create_the_same_name_concurrently_succeeds(
    link: ClusterLink, owner: Actor, engine: Engine, monkeypatch: pytest.MonkeyPatch, by_filter: bool
) -> None:
    """While the clusters are contacted, a request for another link is completed."""
    other = ClusterLink.objects.get(pk=link.pk)
    other.pk, other.name, other.link_uuid = None, "other", uuid4()
    other.save()
    choose_all(other)
    check = mirror_actions._check_on_clusters

    def check_slowly(*args: Any, **values: Any) -> None:
        check(*args, **values)
        monkeypatch.setattr(mirror_actions, "_check_on_clusters", check)
        if by_filter:
            mirror_actions.auto_create(link=other, source_topic="orders", now=NOW)
        else:
            create(other, owner)

    monkeypatch.setattr(mirror_actions, "_check_on_clusters", check_slowly)

    with pytest.raises(BadRequestError, match="It is a mirror topic of cluster link 'other'"):
        create(link, owner)

    assert MirrorTopic.objects.get().link == other


def test_a_name_is_mirrored_once_per_destination(
    link: ClusterLink, owner: Actor, engine: Engine, make_mirror: MakeMirror
) -> None:
    make_mirror("orders")
    MirrorTopic.objects.update(created_by="colleague")

    with pytest.raises(BadRequestError, match=r"Topic 'orders' already exists\. It is a mirror topic of cluster link"):
        create(link, owner)


@pytest.mark.parametrize(("state", "words"), [("PAUSED", "is paused"), ("FAILED", "is failed"), ("UNAVAILABLE", "unavailable")])
def test_no_mirror_can_be_created_on_a_link_that_does_not_copy(
    state: str, words: str, link: ClusterLink, owner: Actor, engine: Engine
) -> None:
    link.state = state
    with pytest.raises(ConflictError, match=words):
        create(link, owner)
    assert not engine.calls


@pytest.mark.parametrize("values", [{"source_topic": ""}, {"replication_factor": 0}])
def test_invalid_input_is_refused(values: dict[str, Any], link: ClusterLink, owner: Actor, engine: Engine) -> None:
    with pytest.raises(InvalidInputError):
        create(link, owner, **values)


def test_a_role_on_the_topic_suffices_to_create_its_mirror(link: ClusterLink, make_actor: MakeActor, engine: Engine) -> None:
    place = {"cluster": link.destination, "resource_type": "Topic", "resource_name": "orders"}
    developer = make_actor("developer", "DeveloperManage", **place)

    assert create(link, developer).created_by == "developer"
    with pytest.raises(DeniedError):
        create(link, developer, source_topic="planes")


BECOMING_MIRROR = (
    MirrorState.PENDING_MIRROR,
    MirrorState.PENDING_SETUP_FOR_RESTORE,
    MirrorState.PENDING_RESTORE_MIRROR,
)


@pytest.mark.parametrize("state", BECOMING_MIRROR)
def test_a_topic_that_is_becoming_a_mirror_cannot_be_deleted(state: MirrorState, make_mirror: MakeMirror, owner: Actor) -> None:
    with pytest.raises(ConflictError, match="Allowed now: failover"):
        request_deletion(mirror=make_mirror("orders", state), by=owner, now=NOW)

    assert MirrorTopic.objects.get().deletion_requested_at is None


@pytest.mark.parametrize("state", sorted(set(MirrorState) - {*BECOMING_MIRROR}))
def test_deletion_is_idempotent_in_every_other_state(
    state: MirrorState, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    mirror = make_mirror("orders", state)

    request_deletion(mirror=mirror, by=owner, now=NOW)
    request_deletion(mirror=mirror, by=owner, now=NOW)

    row = MirrorTopic.objects.get()
    assert (row.state, row.deletion_requested_at) == (state, NOW)
    assert AuditEvent.objects.filter(action="DeleteMirrorTopic").count() == 1
    assert [name for name, _ in sent] == ["reconcile_link"]


def test_a_reader_may_not_delete_mirrors(mirror: MirrorTopic, colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        request_deletion(mirror=mirror, by=colleague, now=NOW)
    assert AuditEvent.objects.get().result == "DENIED"


def test_the_start_of_a_mirror_is_its_own_or_else_that_of_the_link(link: ClusterLink, owner: Actor, engine: Engine) -> None:
    assert create(link, owner).start_spec == "earliest"
    LinkConfig.objects.create(link=link, name="mirror.start.offset.spec", value="latest")

    assert create(link, owner, source_topic="planes").start_spec == "latest"
    mirror = create(link, owner, source_topic="ships", configs={"mirror.start.offset.spec": "2026-11-21T03:00:00Z"})
    assert (mirror.start_spec, mirror.config_overrides) == ("2026-11-21T03:00:00Z", {})


def test_a_malformed_start_offset_spec_is_refused(link: ClusterLink, owner: Actor, engine: Engine) -> None:
    with pytest.raises(InvalidInputError, match=r"must be earliest, latest, a time") as caught:
        create(link, owner, configs={"mirror.start.offset.spec": "yesterday"})
    assert caught.value.field == "mirror.start.offset.spec"
    assert not engine.calls


def test_a_ring_of_mirrors_is_refused_and_named(
    link: ClusterLink, destination: Cluster, source: Cluster, owner: Actor, engine: Engine, make_mirror: MakeMirror
) -> None:
    make_mirror("orders")
    back = ClusterLink.objects.create(
        name="east-to-west",
        destination=source,
        source=destination,
        source_cluster_id=destination.cluster_id,
        properties={},
        prefix="e.",
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )

    with pytest.raises(BadRequestError, match=r"Source:orders → Destination:orders → Source:e\.orders") as caught:
        create_mirror(link=back, source_topic="orders", by=owner, now=NOW)
    assert caught.value.code == "MIRROR_RING"

    MirrorTopic.objects.update(state=MirrorState.STOPPED)
    assert create_mirror(link=back, source_topic="orders", by=owner, now=NOW).name == "e.orders"


@pytest.mark.parametrize(("role", "shown"), [("", False), ("DeveloperRead", True)])
def test_the_ring_message_hides_topics_that_the_actor_may_not_see(
    link: ClusterLink,
    destination: Cluster,
    source: Cluster,
    make_actor: MakeActor,
    engine: Engine,
    make_mirror: MakeMirror,
    role: str,
    shown: bool,
) -> None:
    """source → destination → third → source; the actor may see the source and, with a role, the destination."""
    make_mirror("orders")
    common = {"properties": {}, "state_since": NOW, "created_at": NOW, "created_by": "owner"}
    third = Cluster.objects.create(
        environment=destination.environment, name="Third", cluster_id="third-id", bootstrap_servers="x:1", created_at=NOW
    )
    onward = ClusterLink.objects.create(
        name="onward", destination=third, source=destination, source_cluster_id="destination-id", **common
    )
    make_mirror("orders", link=onward)
    back = ClusterLink.objects.create(
        name="back", destination=source, source=third, source_cluster_id="third-id", prefix="e.", **common
    )
    by = make_actor("link-owner", "ResourceOwner", cluster=source)
    if role:
        by = make_actor("link-owner", role, cluster=destination)

    with pytest.raises(BadRequestError) as caught:
        create_mirror(link=back, source_topic="orders", by=by, now=NOW)

    middle = "Destination:orders" if shown else "a topic that you may not see"
    assert f"Source:orders → {middle} → third-id:orders → Source:e.orders" in caught.value.message
    assert ("Destination" in caught.value.message) is shown


def test_the_message_of_an_existing_mirror_hides_links_that_the_actor_may_not_see(
    link: ClusterLink, source: Cluster, make_actor: MakeActor, engine: Engine, make_mirror: MakeMirror, owner: Actor
) -> None:
    make_mirror("orders")
    common = {"properties": {}, "state_since": NOW, "created_at": NOW, "created_by": "owner"}
    other = ClusterLink.objects.create(
        name="other", destination=link.destination, source=source, source_cluster_id="source-id", **common
    )
    place = {"cluster": link.destination, "resource_type": "ClusterLink", "resource_name": "other"}
    narrow = make_actor("narrow", "ResourceOwner", **place)

    for by, words in ((narrow, "a mirror topic of another cluster link"), (owner, "of cluster link 'west-to-east'")):
        with pytest.raises(BadRequestError, match=words) as caught:
            create_mirror(link=other, source_topic="orders", by=by, now=NOW)
        assert ("west-to-east" in caught.value.message) is (by is owner)
