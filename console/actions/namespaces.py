"""Create, reserve, attach, detach and delete namespaces, and keep others out of reserved ones."""

from __future__ import annotations

from datetime import datetime

from django.db import IntegrityError, transaction

from console import audit, dispatch
from console.access import Permission, check_permission, link_words
from console.actors import Actor
from console.errors import ConflictError, InvalidInputError, NotFoundError
from console.models import Cluster, ClusterLink, Namespace
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.namespaces import contains, overlap
from linkengine.domain.naming import check_topic_name

LONGEST_PREFIX = 200


def create_namespace(*, cluster: Cluster, prefix: str, reserved: bool = False, by: Actor, now: datetime) -> Namespace:
    """Name a group of topics; a reserved one lets nobody create topics in it but the link it follows."""
    _check_rights(cluster, by)
    _check_prefix(prefix)
    try:
        with transaction.atomic():
            Namespace.objects.filter(cluster=cluster, prefix=prefix).exclude(deletion_requested_at=None).delete()
            found = Namespace.objects.create(
                cluster=cluster, prefix=prefix, reserved=reserved, created_at=now, created_by=by.name
            )
            _audit("CreateNamespace", found, by=by, now=now, reserved=reserved)
    except IntegrityError:
        raise ConflictError(f"Namespace '{prefix}*' exists on cluster {cluster.name} already.") from None
    _guard(found)
    return found


def reserve(*, namespace: Namespace, reserved: bool, by: Actor, now: datetime) -> Namespace:
    """Reserve a namespace, or let everybody create topics in it again; one that follows a link stays reserved."""
    _check_rights(namespace.cluster, by)
    if namespace.link_id and not reserved:
        raise ConflictError(f"Namespace '{namespace}' follows a link: detach it first.")
    with transaction.atomic():
        _change(namespace, reserved=reserved, guarded=None, guard_problem="")
        _audit("ReserveNamespace", namespace, by=by, now=now, reserved=reserved)
    return _fresh(namespace)


def attach(*, namespace: Namespace, link: ClusterLink, leader_prefix: str, by: Actor, now: datetime) -> Namespace:
    """Let a namespace follow the one that begins with ``leader_prefix`` at the link's source; it becomes reserved."""
    check_permission(by, Permission.MANAGE_LINK, link=link)
    _check_rights(namespace.cluster, by)
    if link.destination_id != namespace.cluster_id:
        raise InvalidInputError(f"Cluster link '{link.name}' does not end at this cluster.", field="link_name")
    expected = link.prefix + leader_prefix
    if expected != namespace.prefix:
        message = f"Topics '{leader_prefix}*' arrive over '{link.name}' as '{expected}*', not as '{namespace}'."
        raise InvalidInputError(message, field="leader_prefix")
    with transaction.atomic():
        Cluster.objects.select_for_update().get(pk=namespace.cluster_id)  # one at a time looks for neighbours
        _check_neighbours(namespace, link, by=by)
        values = {"link": link, "leader_prefix": leader_prefix, "reserved": True, "guarded": None, "guard_problem": ""}
        _change(namespace, **values)
        _audit("AttachNamespace", namespace, by=by, now=now, link=link.name, leader_prefix=leader_prefix)
    return _fresh(namespace)


def detach(*, namespace: Namespace, by: Actor, now: datetime) -> Namespace:
    """End the following; the namespace stays reserved until somebody says otherwise. Mirrors are not touched."""
    _check_rights(namespace.cluster, by)
    with transaction.atomic():
        _change(namespace, link=None, leader_prefix="")
        _audit("DetachNamespace", namespace, by=by, now=now)
    return _fresh(namespace)


def delete_namespace(*, namespace: Namespace, by: Actor, now: datetime) -> None:
    """Forget a namespace; its topics stay. Until the cluster keeps nobody out any more the row says so; safe to repeat."""
    _check_rights(namespace.cluster, by)
    with transaction.atomic():
        found = Namespace.objects.select_for_update().filter(pk=namespace.pk).first()
        if found is None:
            raise _gone(namespace)
        if found.link_id:
            raise ConflictError(f"Namespace '{namespace}' follows a link: detach it first.")
        if found.deletion_requested_at is None:
            _audit("DeleteNamespace", namespace, by=by, now=now)
        _let_go(found, now=now)


def _let_go(namespace: Namespace, *, now: datetime) -> None:
    if namespace.may_have_rule:
        Namespace.objects.filter(pk=namespace.pk).update(
            reserved=False, guarded=None, guard_problem="", deletion_requested_at=now
        )
        _guard(namespace)
    else:
        namespace.delete()


def check_free(*, cluster: Cluster, topic: str, link: ClusterLink | None = None, by: Actor) -> None:
    """Raise ConflictError where a topic would be created in a reserved namespace by anybody but the link it follows."""
    for one in Namespace.objects.filter(cluster=cluster, reserved=True).select_related("link"):
        if contains(one.prefix, topic) and (link is None or one.link_id != link.pk):
            owner = link_words(by, cluster)(one.link.name) if one.link else "nobody yet"
            message = f"'{topic}' is in the reserved namespace '{one}', in which {owner} creates topics. Choose another name."
            raise ConflictError(message, code="NAMESPACE_RESERVED")


def _check_rights(cluster: Cluster, by: Actor) -> None:
    """A namespace is kept by ACLs that the cluster's stored credentials create and delete, for all principals."""
    check_permission(by, Permission.MANAGE_LINK, cluster=cluster)
    check_permission(by, Permission.MANAGE_ACLS, cluster=cluster)


def _check_prefix(prefix: str) -> None:
    if len(prefix) > LONGEST_PREFIX:
        message = f"The prefix has {len(prefix)} characters, of {LONGEST_PREFIX} at most. Name a shorter beginning."
        raise InvalidInputError(message, field="prefix")
    try:
        if prefix:
            check_topic_name(prefix)
    except LinkEngineError as error:
        raise InvalidInputError(error.message, field="prefix") from error


def _check_neighbours(namespace: Namespace, link: ClusterLink, *, by: Actor) -> None:
    others = Namespace.objects.filter(cluster=namespace.cluster_id).exclude(link=None).exclude(pk=namespace.pk)
    for one in others.select_related("link"):
        if one.link_id != link.pk and overlap(one.prefix, namespace.prefix):
            assert one.link is not None
            other = link_words(by, namespace.cluster)(one.link.name)
            raise ConflictError(f"Namespace '{one}' shares topics with '{namespace}' and follows {other} already.")
    if Namespace.objects.filter(pk=namespace.pk).exclude(link=None).exclude(link=link).exists():
        raise ConflictError(f"Namespace '{namespace}' follows another link already: a namespace follows one at a time.")


def _change(namespace: Namespace, **values: object) -> None:
    if not Namespace.objects.filter(pk=namespace.pk, deletion_requested_at=None).update(**values):
        raise _gone(namespace)


def _gone(namespace: Namespace) -> NotFoundError:
    return NotFoundError(f"Namespace '{namespace}' has been deleted.", code="UNKNOWN_NAMESPACE")


def _fresh(namespace: Namespace) -> Namespace:
    found = Namespace.objects.select_related("link", "cluster__environment").get(pk=namespace.pk)
    _guard(found)
    return found


def _guard(namespace: Namespace) -> None:
    dispatch.send("guard_namespace", namespace_id=namespace.pk)


def _audit(action: str, namespace: Namespace, *, by: Actor, now: datetime, **detail: object) -> None:
    resource = audit.path_of(namespace.cluster)
    audit.record(by=by, action=action, resource=resource, now=now, detail={"prefix": namespace.prefix, **detail})
