"""Namespaces: reservation, following one link at a time, and what a reservation refuses."""

from __future__ import annotations

from typing import Any

import pytest

from console.actions import namespaces
from console.actions.mirrors import auto_create, create_mirror
from console.actors import Actor
from console.errors import ConflictError, DeniedError, InvalidInputError, NotFoundError
from console.models import AuditEvent, Cluster, ClusterLink, MirrorTopic, Namespace, SourceTopic
from console.queries.mirrorability import judge_topic
from linkengine.domain.mirrorability import CheckCode, Standing
from tests.console.conftest import NOW, Engine, choose_all

Sent = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def orders(destination: Cluster, owner: Actor, sent: Sent) -> Namespace:
    return namespaces.create_namespace(cluster=destination, prefix="orders.", by=owner, now=NOW)


@pytest.fixture
def other_link(link: ClusterLink) -> ClusterLink:
    fields: dict[str, Any] = {"source": link.source, "source_cluster_id": link.source_cluster_id, "properties": {}}
    dates = {"state_since": NOW, "created_at": NOW}
    return ClusterLink.objects.create(name="other", destination=link.destination, created_by="owner", **fields, **dates)


def attach(namespace: Namespace, link: ClusterLink, by: Actor, leader_prefix: str = "orders.") -> Namespace:
    return namespaces.attach(namespace=namespace, link=link, leader_prefix=leader_prefix, by=by, now=NOW)


def test_a_namespace_that_was_deleted_meanwhile_is_not_found(orders: Namespace, link: ClusterLink, owner: Actor) -> None:
    AuditEvent.objects.all().delete()
    Namespace.objects.filter(pk=orders.pk).delete()

    for change in (
        lambda: attach(orders, link, owner),
        lambda: namespaces.detach(namespace=orders, by=owner, now=NOW),
        lambda: namespaces.reserve(namespace=orders, reserved=True, by=owner, now=NOW),
    ):
        with pytest.raises(NotFoundError, match="has been deleted"):
            change()
    assert not AuditEvent.objects.exists()


def test_a_namespace_that_follows_is_reserved_and_guarded(
    orders: Namespace, link: ClusterLink, owner: Actor, sent: Sent
) -> None:
    found = attach(orders, link, owner)

    assert (found.reserved, found.link, found.guarded) == (True, link, None)
    assert sent[-1] == ("guard_namespace", {"namespace_id": orders.pk})
    assert AuditEvent.objects.filter(action="AttachNamespace").count() == 1


def test_a_detached_namespace_stays_reserved(orders: Namespace, link: ClusterLink, owner: Actor, sent: Sent) -> None:
    found = namespaces.detach(namespace=attach(orders, link, owner), by=owner, now=NOW)
    assert (found.reserved, found.link) == (True, None)


def test_a_following_namespace_can_be_neither_opened_nor_deleted(
    orders: Namespace, link: ClusterLink, owner: Actor, sent: Sent
) -> None:
    found = attach(orders, link, owner)
    with pytest.raises(ConflictError, match="detach it first"):
        namespaces.reserve(namespace=found, reserved=False, by=owner, now=NOW)
    with pytest.raises(ConflictError, match="detach it first"):
        namespaces.delete_namespace(namespace=found, by=owner, now=NOW)


def test_prefixes_must_fit_the_link(orders: Namespace, link: ClusterLink, owner: Actor, sent: Sent) -> None:
    with pytest.raises(InvalidInputError, match="arrive over"):
        attach(orders, link, owner, "bills.")


def test_topics_follow_one_link_at_a_time(
    orders: Namespace, link: ClusterLink, other_link: ClusterLink, owner: Actor, destination: Cluster, sent: Sent
) -> None:
    attach(orders, link, owner)
    inner = namespaces.create_namespace(cluster=destination, prefix="orders.eu.", by=owner, now=NOW)
    with pytest.raises(ConflictError, match="follows 'west-to-east' already"):
        attach(inner, other_link, owner, "orders.eu.")
    with pytest.raises(ConflictError, match="another link already"):
        attach(orders, other_link, owner)


def test_only_the_link_it_follows_creates_topics_in_it(
    orders: Namespace, link: ClusterLink, other_link: ClusterLink, owner: Actor, engine: Engine, sent: Sent
) -> None:
    attach(orders, link, owner)
    with pytest.raises(ConflictError, match="in the reserved namespace"):
        create_mirror(link=other_link, source_topic="orders.new", by=owner, now=NOW)
    assert create_mirror(link=link, source_topic="orders.new", by=owner, now=NOW).name == "orders.new"
    assert create_mirror(link=other_link, source_topic="bills", by=owner, now=NOW).name == "bills"


def test_auto_create_keeps_out_of_a_namespace_as_people_must(
    orders: Namespace, link: ClusterLink, other_link: ClusterLink, owner: Actor, sent: Sent
) -> None:
    attach(orders, link, owner)
    for one in (link, other_link):
        choose_all(one)

    with pytest.raises(
        ConflictError, match=r"reserved namespace 'orders\.\*', in which cluster link 'west-to-east'"
    ) as refused:
        auto_create(link=other_link, source_topic="orders.new", now=NOW)

    assert refused.value.code == "NAMESPACE_RESERVED"
    assert not MirrorTopic.objects.exists()
    assert auto_create(link=link, source_topic="orders.new", now=NOW).name == "orders.new"


@pytest.mark.parametrize(
    ("reserved", "follows", "standing"),
    [
        (False, False, Standing.WAITING),
        (True, False, Standing.NOT_MIRRORED),
        (True, True, Standing.NOT_MIRRORED),
    ],
)
def test_what_a_namespace_keeps_out_is_told_with_the_link_that_creates_it(
    orders: Namespace,
    link: ClusterLink,
    other_link: ClusterLink,
    owner: Actor,
    sent: Sent,
    *,
    reserved: bool,
    follows: bool,
    standing: Standing,
) -> None:
    namespaces.reserve(namespace=orders, reserved=reserved, by=owner, now=NOW)
    if follows:
        attach(orders, link, owner)
    for one in (link, other_link):
        SourceTopic.objects.create(link=one, name="orders.new", partitions=1, seen_at=NOW)
        choose_all(one)

    found = judge_topic(link=other_link, name="orders.new")

    assert found.standing is standing
    assert [one.code for one in found.failed] == ([CheckCode.NAMESPACE] if reserved else [])
    assert ("link west-to-east creates" in "".join(one.finding for one in found.failed)) is follows
    assert judge_topic(link=link, name="orders.new").standing is (Standing.WAITING if follows else standing)


def test_an_open_namespace_refuses_nothing(orders: Namespace, destination: Cluster) -> None:
    namespaces.check_free(cluster=destination, topic="orders.new")


def test_the_same_prefix_is_refused_twice(orders: Namespace, destination: Cluster, owner: Actor, sent: Sent) -> None:
    with pytest.raises(ConflictError, match="exists"):
        namespaces.create_namespace(cluster=destination, prefix="orders.", by=owner, now=NOW)


def test_a_prefix_that_no_topic_can_have_is_refused(destination: Cluster, owner: Actor) -> None:
    with pytest.raises(InvalidInputError):
        namespaces.create_namespace(cluster=destination, prefix="a b", by=owner, now=NOW)


def test_a_reader_creates_none(destination: Cluster, colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        namespaces.create_namespace(cluster=destination, prefix="x", by=colleague, now=NOW)
