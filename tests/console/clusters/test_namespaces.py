"""Namespaces: reservation, attachment to one link at a time, refused topics, and the ACLs that enforce a reservation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from console.actors import Actor
from console.clusters import actions as cluster_actions
from console.errors import ConflictError, DeniedError, InvalidInputError, NotFoundError
from console.links.topic_queries import check_source_topic
from console.mirrors.actions import auto_create, create_mirror
from console.models import AuditEvent, Cluster, ClusterLink, MirrorTopic, Namespace, SourceTopic
from console.tasks.clusters import guard_namespace
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorability import CheckCode, MirrorabilityStatus
from tests.console.conftest import NOW, Engine, MakeActor, choose_all

Sent = list[tuple[str, dict[str, Any]]]
Rules = dict[str, Any]


@pytest.fixture
def orders(destination: Cluster, owner: Actor, sent: Sent) -> Namespace:
    return cluster_actions.create_namespace(cluster=destination, prefix="orders.", by=owner, now=NOW)


@pytest.fixture
def other_link(link: ClusterLink) -> ClusterLink:
    fields: dict[str, Any] = {"source": link.source, "source_cluster_id": link.source_cluster_id, "properties": {}}
    dates = {"state_since": NOW, "created_at": NOW}
    return ClusterLink.objects.create(name="other", destination=link.destination, created_by="owner", **fields, **dates)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Rules:
    """ACLs that the cluster has created and deleted; set ``error`` to be raised, or ``refusal`` as the result of each ACL."""
    cluster: Rules = {"create": [], "delete": [], "error": None, "refusal": None}

    def change_acls(_address: object, *, create: Any = (), delete: Any = ()) -> dict[Any, Any]:
        if cluster["error"] is not None:
            raise cluster["error"]
        if cluster["refusal"] is not None:
            return dict.fromkeys([*create, *delete], cluster["refusal"])
        cluster["create"] += create
        cluster["delete"] += delete
        return {}

    monkeypatch.setattr(jobs, "change_acls", change_acls)
    return cluster


def attach(namespace: Namespace, link: ClusterLink, by: Actor, leader_prefix: str = "orders.") -> Namespace:
    return cluster_actions.attach(namespace=namespace, link=link, leader_prefix=leader_prefix, by=by, now=NOW)


def test_managing_namespaces_needs_the_permission_to_manage_acls(
    orders: Namespace, destination: Cluster, link: ClusterLink, make_actor: MakeActor, sent: Sent
) -> None:
    """A reservation creates an ACL, with the cluster's stored credentials, that denies all principals to create topics."""
    by = make_actor("link-owner", "ResourceOwner", cluster=destination)
    sent.clear()
    for attempt in (
        lambda: cluster_actions.create_namespace(cluster=destination, prefix="", reserved=True, by=by, now=NOW),
        lambda: cluster_actions.reserve(namespace=orders, reserved=True, by=by, now=NOW),
        lambda: attach(orders, link, by),
        lambda: cluster_actions.delete_namespace(namespace=orders, by=by, now=NOW),
        lambda: cluster_actions.detach(namespace=orders, by=by, now=NOW),
    ):
        with pytest.raises(DeniedError, match="manage ACLs"):
            attempt()
    assert not sent


def test_a_prefix_of_more_than_200_characters_is_refused(destination: Cluster, owner: Actor, sent: Sent) -> None:
    assert cluster_actions.create_namespace(cluster=destination, prefix="a" * 200, by=owner, now=NOW).pk

    with pytest.raises(InvalidInputError, match="201 characters; at most 200 are allowed"):
        cluster_actions.create_namespace(cluster=destination, prefix="b" * 201, by=owner, now=NOW)


def test_changing_a_deleted_namespace_raises_not_found(orders: Namespace, link: ClusterLink, owner: Actor) -> None:
    AuditEvent.objects.all().delete()
    Namespace.objects.filter(pk=orders.pk).delete()

    changes: tuple[Callable[[], object], ...] = (
        lambda: attach(orders, link, owner),
        lambda: cluster_actions.detach(namespace=orders, by=owner, now=NOW),
        lambda: cluster_actions.reserve(namespace=orders, reserved=True, by=owner, now=NOW),
    )
    for change in changes:
        with pytest.raises(NotFoundError, match="has been deleted"):
            change()
    assert not AuditEvent.objects.exists()


def test_an_attached_namespace_is_reserved_and_its_guard_queued(
    orders: Namespace, link: ClusterLink, owner: Actor, sent: Sent
) -> None:
    found = attach(orders, link, owner)

    assert (found.reserved, found.link, found.guarded) == (True, link, None)
    assert sent[-1] == ("guard_namespace", {"namespace_id": orders.pk})
    assert AuditEvent.objects.filter(action="AttachNamespace").count() == 1


def test_a_detached_namespace_stays_reserved(orders: Namespace, link: ClusterLink, owner: Actor, sent: Sent) -> None:
    found = cluster_actions.detach(namespace=attach(orders, link, owner), by=owner, now=NOW)
    assert (found.reserved, found.link) == (True, None)


def test_an_attached_namespace_can_be_neither_opened_nor_deleted(
    orders: Namespace, link: ClusterLink, owner: Actor, sent: Sent
) -> None:
    found = attach(orders, link, owner)
    with pytest.raises(ConflictError, match="Detach it first"):
        cluster_actions.reserve(namespace=found, reserved=False, by=owner, now=NOW)
    with pytest.raises(ConflictError, match="Detach it first"):
        cluster_actions.delete_namespace(namespace=found, by=owner, now=NOW)


def test_a_leader_prefix_that_does_not_fit_the_link_is_refused(
    orders: Namespace, link: ClusterLink, owner: Actor, sent: Sent
) -> None:
    with pytest.raises(InvalidInputError, match=r"mirrors topics 'bills\.\*' as 'bills\.\*', not as"):
        attach(orders, link, owner, "bills.")


def test_overlapping_namespaces_cannot_be_attached_to_two_links(
    orders: Namespace, link: ClusterLink, other_link: ClusterLink, owner: Actor, destination: Cluster, sent: Sent
) -> None:
    attach(orders, link, owner)
    inner = cluster_actions.create_namespace(cluster=destination, prefix="orders.eu.", by=owner, now=NOW)
    with pytest.raises(ConflictError, match="is attached to cluster link 'west-to-east'"):
        attach(inner, other_link, owner, "orders.eu.")
    with pytest.raises(ConflictError, match="is attached to another cluster link"):
        attach(orders, other_link, owner)


def test_only_the_attached_link_creates_mirrors_in_a_namespace(
    orders: Namespace, link: ClusterLink, other_link: ClusterLink, owner: Actor, engine: Engine, sent: Sent
) -> None:
    attach(orders, link, owner)
    with pytest.raises(ConflictError, match="in the reserved namespace"):
        create_mirror(link=other_link, source_topic="orders.new", by=owner, now=NOW)
    assert create_mirror(link=link, source_topic="orders.new", by=owner, now=NOW).name == "orders.new"
    assert create_mirror(link=other_link, source_topic="bills", by=owner, now=NOW).name == "bills"


def test_auto_create_is_refused_in_a_namespace_of_another_link(
    orders: Namespace, link: ClusterLink, other_link: ClusterLink, owner: Actor, sent: Sent
) -> None:
    attach(orders, link, owner)
    for each in (link, other_link):
        choose_all(each)

    with pytest.raises(
        ConflictError, match=r"reserved namespace 'orders\.\*', in which only cluster link 'west-to-east'"
    ) as refused:
        auto_create(link=other_link, source_topic="orders.new", now=NOW)

    assert refused.value.code == "NAMESPACE_RESERVED"
    assert not MirrorTopic.objects.exists()
    assert auto_create(link=link, source_topic="orders.new", now=NOW).name == "orders.new"


@pytest.mark.parametrize(
    ("reserved", "follows", "standing"),
    [
        (False, False, MirrorabilityStatus.WAITING),
        (True, False, MirrorabilityStatus.NOT_MIRRORED),
        (True, True, MirrorabilityStatus.NOT_MIRRORED),
    ],
)
def test_mirrorability_names_the_link_that_is_attached_to_the_namespace(
    orders: Namespace,
    link: ClusterLink,
    other_link: ClusterLink,
    owner: Actor,
    sent: Sent,
    *,
    reserved: bool,
    follows: bool,
    standing: MirrorabilityStatus,
) -> None:
    cluster_actions.reserve(namespace=orders, reserved=reserved, by=owner, now=NOW)
    if follows:
        attach(orders, link, owner)
    for each in (link, other_link):
        SourceTopic.objects.create(link=each, name="orders.new", partitions=1, seen_at=NOW)
        choose_all(each)

    found = check_source_topic(link=other_link, name="orders.new", by=owner)

    assert found.standing is standing
    assert [check.code for check in found.failed] == ([CheckCode.NAMESPACE] if reserved else [])
    assert ("cluster link 'west-to-east' may create topics" in "".join(check.finding for check in found.failed)) is follows
    assert check_source_topic(link=link, name="orders.new").standing is (MirrorabilityStatus.WAITING if follows else standing)


def test_an_unreserved_namespace_refuses_no_topics(orders: Namespace, destination: Cluster, owner: Actor) -> None:
    cluster_actions.check_free(cluster=destination, topic="orders.new", by=owner)


def test_a_second_namespace_with_the_same_prefix_is_refused(
    orders: Namespace, destination: Cluster, owner: Actor, sent: Sent
) -> None:
    with pytest.raises(ConflictError, match="exists"):
        cluster_actions.create_namespace(cluster=destination, prefix="orders.", by=owner, now=NOW)


def test_a_prefix_that_is_no_valid_topic_name_is_refused(destination: Cluster, owner: Actor) -> None:
    with pytest.raises(InvalidInputError):
        cluster_actions.create_namespace(cluster=destination, prefix="a b", by=owner, now=NOW)


def test_a_reader_may_not_create_namespaces(destination: Cluster, colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        cluster_actions.create_namespace(cluster=destination, prefix="x", by=colleague, now=NOW)


def test_a_deleted_namespace_is_removed_after_its_acl(
    orders: Namespace, owner: Actor, rules: Rules, destination: Cluster
) -> None:
    cluster_actions.reserve(namespace=orders, reserved=True, by=owner, now=NOW)
    guard_namespace(namespace_id=orders.pk)
    cluster_actions.reserve(namespace=orders, reserved=False, by=owner, now=NOW)

    cluster_actions.delete_namespace(namespace=orders, by=owner, now=NOW)
    with pytest.raises(NotFoundError, match="has been deleted"):
        cluster_actions.reserve(namespace=orders, reserved=True, by=owner, now=NOW)
    guard_namespace(namespace_id=orders.pk)

    assert rules["delete"] == rules["create"] != []
    assert not Namespace.objects.exists()


@pytest.mark.parametrize("delete", [True, False])
def test_deleting_an_acl_is_retried_while_the_cluster_is_unavailable(
    orders: Namespace, owner: Actor, rules: Rules, *, delete: bool
) -> None:
    cluster_actions.reserve(namespace=orders, reserved=True, by=owner, now=NOW)
    guard_namespace(namespace_id=orders.pk)
    if delete:
        cluster_actions.delete_namespace(namespace=orders, by=owner, now=NOW)
    else:
        cluster_actions.reserve(namespace=orders, reserved=False, by=owner, now=NOW)
    rules["error"] = LinkEngineError(ErrorCode.DESTINATION_UNAVAILABLE, "No broker responds.")

    guard_namespace(namespace_id=orders.pk)
    row = Namespace.objects.get()
    assert (row.guarded, row.guard_problem) == (None, "No broker responds.")
    rules["error"] = None
    guard_namespace(namespace_id=orders.pk)

    assert len(rules["delete"]) == 1
    assert list(Namespace.objects.values_list("guarded", flat=True)) == ([] if delete else [False])


def test_a_namespace_stays_while_the_cluster_refuses_to_delete_its_acl(orders: Namespace, owner: Actor, rules: Rules) -> None:
    cluster_actions.reserve(namespace=orders, reserved=True, by=owner, now=NOW)
    guard_namespace(namespace_id=orders.pk)
    cluster_actions.delete_namespace(namespace=orders, by=owner, now=NOW)
    rules["refusal"] = LinkEngineError(ErrorCode.AUTHORIZATION_ERROR, "Not authorized.")

    guard_namespace(namespace_id=orders.pk)

    row = Namespace.objects.get()
    assert (row.guarded, row.guard_problem) == (None, "Not authorized.")


def test_a_namespace_without_an_acl_is_deleted_immediately(orders: Namespace, owner: Actor, rules: Rules) -> None:
    rules["refusal"] = LinkEngineError(ErrorCode.SECURITY_DISABLED_ERROR, "There is no authorizer.")
    cluster_actions.reserve(namespace=orders, reserved=True, by=owner, now=NOW)
    guard_namespace(namespace_id=orders.pk)
    assert Namespace.objects.get().guard_problem == "There is no authorizer."

    cluster_actions.delete_namespace(namespace=orders, by=owner, now=NOW)

    assert not Namespace.objects.exists()


def test_the_prefix_of_a_namespace_that_is_being_deleted_can_be_used_again(
    orders: Namespace, owner: Actor, destination: Cluster, sent: Sent, rules: Rules
) -> None:
    cluster_actions.delete_namespace(namespace=orders, by=owner, now=NOW)

    again = cluster_actions.create_namespace(cluster=destination, prefix="orders.", reserved=True, by=owner, now=NOW)
    for namespace_id in (orders.pk, again.pk):
        guard_namespace(namespace_id=namespace_id)

    assert (Namespace.objects.get(), rules["delete"]) == (again, [])
