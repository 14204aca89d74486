"""Creating and deleting mirror topics."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from console.actions import mirrors
from console.actions.mirrors import create_mirror, delete_mirror
from console.actors import Actor
from console.errors import BadRequestError, ConflictError, DeniedError, InvalidInputError, NotFoundError
from console.models import AuditEvent, Cluster, ClusterLink, LinkConfig, MirrorTopic, StateTransition
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, Engine, MakeActor, MakeMirror, choose_all

Sent = list[tuple[str, dict[str, Any]]]


def create(link: ClusterLink, by: Actor, **values: Any) -> MirrorTopic:
    return create_mirror(link=link, by=by, now=NOW, **{"source_topic": "orders", **values})


def test_a_mirror_begins_with_its_topic_being_created(link: ClusterLink, owner: Actor, engine: Engine, sent: Sent) -> None:
    mirror = create(link, owner, replication_factor=3, configs={"retention.ms": "1000", "unset": None})

    assert (mirror.state, mirror.name, mirror.replication_factor) == (MirrorState.PENDING_SETUP, "orders", 3)
    assert mirror.config_overrides == {"retention.ms": "1000"}
    assert StateTransition.objects.get().event == "create"
    assert AuditEvent.objects.get().action == "CreateMirrorTopic"
    assert sent == [("setup_mirror", {"mirror_id": mirror.pk})]
    assert engine.calls[0][1]["link_id"] == link.pk


def test_the_prefix_is_put_before_the_name(link: ClusterLink, owner: Actor, engine: Engine) -> None:
    link.prefix = "west."

    assert create(link, owner).name == "west.orders"
    with pytest.raises(BadRequestError, match=r"must be named 'west.planes'"):
        create(link, owner, source_topic="planes", mirror_topic="planes")


def test_renaming_needs_a_prefix(link: ClusterLink, owner: Actor, engine: Engine) -> None:
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


@pytest.mark.parametrize("by_filter", [False, True], ids=["asked for", "chosen by a filter"])
def test_of_two_links_that_ask_for_one_name_at_once_one_gets_it(
    link: ClusterLink, owner: Actor, engine: Engine, monkeypatch: pytest.MonkeyPatch, by_filter: bool
) -> None:
    """While the clusters are asked, another link's request comes and is answered."""
    other = ClusterLink.objects.get(pk=link.pk)
    other.pk, other.name, other.link_uuid = None, "other", uuid4()
    other.save()
    choose_all(other)
    asked = mirrors._ask_clusters

    def ask_slowly(*args: Any, **values: Any) -> None:
        asked(*args, **values)
        monkeypatch.setattr(mirrors, "_ask_clusters", asked)
        if by_filter:
            mirrors.auto_create(link=other, source_topic="orders", now=NOW)
        else:
            create(other, owner)

    monkeypatch.setattr(mirrors, "_ask_clusters", ask_slowly)

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
def test_a_link_that_does_not_copy_gets_no_mirror(
    state: str, words: str, link: ClusterLink, owner: Actor, engine: Engine
) -> None:
    link.state = state
    with pytest.raises(ConflictError, match=words):
        create(link, owner)
    assert not engine.calls


@pytest.mark.parametrize("values", [{"source_topic": ""}, {"replication_factor": 0}])
def test_input_that_cannot_work_is_refused(values: dict[str, Any], link: ClusterLink, owner: Actor, engine: Engine) -> None:
    with pytest.raises(InvalidInputError):
        create(link, owner, **values)


def test_a_role_on_the_topic_is_enough(link: ClusterLink, make_actor: MakeActor, engine: Engine) -> None:
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
def test_a_topic_that_holds_records_of_its_own_is_not_deleted(
    state: MirrorState, make_mirror: MakeMirror, owner: Actor
) -> None:
    with pytest.raises(ConflictError, match="Allowed now: failover"):
        delete_mirror(mirror=make_mirror("orders", state), by=owner, now=NOW)

    assert MirrorTopic.objects.get().deletion_requested_at is None


@pytest.mark.parametrize("state", sorted(set(MirrorState) - {*BECOMING_MIRROR}))
def test_a_mirror_is_deleted_in_every_other_state(
    state: MirrorState, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    mirror = make_mirror("orders", state)

    delete_mirror(mirror=mirror, by=owner, now=NOW)
    delete_mirror(mirror=mirror, by=owner, now=NOW)

    row = MirrorTopic.objects.get()
    assert (row.state, row.deletion_requested_at) == (state, NOW)
    assert AuditEvent.objects.filter(action="DeleteMirrorTopic").count() == 1
    assert [name for name, _ in sent] == ["reconcile_link"]


def test_who_may_only_look_deletes_nothing(mirror: MirrorTopic, colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        delete_mirror(mirror=mirror, by=colleague, now=NOW)
    assert AuditEvent.objects.get().result == "DENIED"


def test_a_mirror_starts_where_it_is_told_else_where_its_link_says(link: ClusterLink, owner: Actor, engine: Engine) -> None:
    assert create(link, owner).start_spec == "earliest"
    LinkConfig.objects.create(link=link, name="mirror.start.offset.spec", value="latest")

    assert create(link, owner, source_topic="planes").start_spec == "latest"
    asked = create(link, owner, source_topic="ships", configs={"mirror.start.offset.spec": "2026-11-21T03:00:00Z"})
    assert (asked.start_spec, asked.config_overrides) == ("2026-11-21T03:00:00Z", {})


def test_a_start_that_names_no_moment_is_refused(link: ClusterLink, owner: Actor, engine: Engine) -> None:
    with pytest.raises(InvalidInputError, match=r"must be earliest, latest, a time") as caught:
        create(link, owner, configs={"mirror.start.offset.spec": "yesterday"})
    assert caught.value.field == "mirror.start.offset.spec"
    assert not engine.calls


def test_a_mirror_that_would_feed_its_own_cluster_is_refused_and_the_ring_named(
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
def test_the_ring_message_names_no_topic_that_the_reader_may_not_see(
    link: ClusterLink,
    destination: Cluster,
    source: Cluster,
    make_actor: MakeActor,
    engine: Engine,
    make_mirror: MakeMirror,
    role: str,
    shown: bool,
) -> None:
    """source → destination → third, and back to the source over a link whose owner sees the source and one topic of third."""
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


def test_a_taken_name_does_not_tell_which_link_has_it_to_a_person_who_may_not_see_that_link(
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
