"""Creates, reserves, attaches, detaches and deletes namespaces, and refuses topics of others in reserved namespaces.

A namespace is a prefix of topic names on a cluster. In a reserved namespace only the attached link may create topics; a worker
enforces that on the cluster with a DENY ACL for CREATE (task ``guard_namespace``). An attached namespace follows the namespace
with the prefix ``leader_prefix`` at the link's source (KIP-986).
"""

from __future__ import annotations

from datetime import datetime

from django.db import IntegrityError, transaction

from console import audit
from console.access import Permission, check_permission, link_words
from console.actors import Actor
from console.errors import ConflictError, InvalidInputError, NotFoundError
from console.models import Cluster, ClusterLink, Namespace
from console.queue import dispatch
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.names import check_topic_name, contains, overlap

LONGEST_PREFIX = 200


def create_namespace(*, cluster: Cluster, prefix: str, reserved: bool = False, by: Actor, now: datetime) -> Namespace:
    """Create a namespace; if it is reserved, only the link attached to it later may create topics in it."""
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
        raise ConflictError(f"Namespace '{prefix}*' already exists on cluster {cluster.name}. Choose another prefix.") from None
    _guard(found)
    return found


def reserve(*, namespace: Namespace, reserved: bool, by: Actor, now: datetime) -> Namespace:
    """Reserve a namespace, or end the reservation; raise ConflictError if an attached namespace would lose it."""
    _check_rights(namespace.cluster, by)
    if namespace.link_id and not reserved:
        raise ConflictError(f"Namespace '{namespace}' is attached to a cluster link and stays reserved. Detach it first.")
    with transaction.atomic():
        _change(namespace, reserved=reserved, guarded=None, guard_problem="")
        _audit("ReserveNamespace", namespace, by=by, now=now, reserved=reserved)
    return _fresh(namespace)


def attach(*, namespace: Namespace, link: ClusterLink, leader_prefix: str, by: Actor, now: datetime) -> Namespace:
    """Attach a namespace to a link, so that it follows the namespace ``leader_prefix`` of the source; it becomes reserved.

    Raises InvalidInputError if the link's prefix plus ``leader_prefix`` is not the namespace's prefix, and ConflictError if an
    overlapping namespace is attached to another link.
    """
    check_permission(by, Permission.MANAGE_LINK, link=link)
    _check_rights(namespace.cluster, by)
    if link.destination_id != namespace.cluster_id:
        raise InvalidInputError(
            f"This cluster is not the destination of cluster link '{link.name}'. Choose a link to this cluster.",
            field="link_name",
        )
    expected = link.prefix + leader_prefix
    if expected != namespace.prefix:
        message = (
            f"Cluster link '{link.name}' mirrors topics '{leader_prefix}*' as '{expected}*', not as '{namespace}'. Change "
            "leader_prefix, or attach a namespace with that prefix."
        )
        raise InvalidInputError(message, field="leader_prefix")
    with transaction.atomic():
        Cluster.objects.select_for_update().get(pk=namespace.cluster_id)  # serializes the check for overlapping namespaces
        _check_overlaps(namespace, link, by=by)
        values = {"link": link, "leader_prefix": leader_prefix, "reserved": True, "guarded": None, "guard_problem": ""}
        _change(namespace, **values)
        _audit("AttachNamespace", namespace, by=by, now=now, link=link.name, leader_prefix=leader_prefix)
    return _fresh(namespace)


def detach(*, namespace: Namespace, by: Actor, now: datetime) -> Namespace:
    """Detach a namespace from its link. It stays reserved until that is changed separately; mirrors are not touched."""
    _check_rights(namespace.cluster, by)
    with transaction.atomic():
        _change(namespace, link=None, leader_prefix="")
        _audit("DetachNamespace", namespace, by=by, now=now)
    return _fresh(namespace)


def delete_namespace(*, namespace: Namespace, by: Actor, now: datetime) -> None:
    """Delete a namespace but not its topics; the row stays, marked as being deleted, until its ACLs are removed. Idempotent."""
    _check_rights(namespace.cluster, by)
    with transaction.atomic():
        found = Namespace.objects.select_for_update().filter(pk=namespace.pk).first()
        if found is None:
            raise _gone(namespace)
        if found.link_id:
            raise ConflictError(f"Namespace '{namespace}' is attached to a cluster link. Detach it first.")
        if found.deletion_requested_at is None:
            _audit("DeleteNamespace", namespace, by=by, now=now)
        _remove(found, now=now)


def _remove(namespace: Namespace, *, now: datetime) -> None:
    if namespace.may_have_rule:
        Namespace.objects.filter(pk=namespace.pk).update(
            reserved=False, guarded=None, guard_problem="", deletion_requested_at=now
        )
        _guard(namespace)
    else:
        namespace.delete()


def check_free(*, cluster: Cluster, topic: str, link: ClusterLink | None = None, by: Actor) -> None:
    """Raise ConflictError if the topic is in a reserved namespace that is not attached to ``link``."""
    for namespace in Namespace.objects.filter(cluster=cluster, reserved=True).select_related("link"):
        if contains(namespace.prefix, topic) and (link is None or namespace.link_id != link.pk):
            if namespace.link:
                rule = f"only {link_words(by, cluster)(namespace.link.name)} can create topics"
            else:
                rule = "no topics can be created until a cluster link is attached"
            message = f"'{topic}' is in the reserved namespace '{namespace}', in which {rule}. Choose another name."
            raise ConflictError(message, code="NAMESPACE_RESERVED")


def _check_rights(cluster: Cluster, by: Actor) -> None:
    """Check MANAGE_LINK and MANAGE_ACLS, since a namespace is enforced by ACLs for all principals of the cluster."""
    check_permission(by, Permission.MANAGE_LINK, cluster=cluster)
    check_permission(by, Permission.MANAGE_ACLS, cluster=cluster)


def _check_prefix(prefix: str) -> None:
    if len(prefix) > LONGEST_PREFIX:
        message = f"The prefix has {len(prefix)} characters; at most {LONGEST_PREFIX} are allowed. Give a shorter prefix."
        raise InvalidInputError(message, field="prefix")
    try:
        if prefix:
            check_topic_name(prefix)
    except LinkEngineError as error:
        raise InvalidInputError(error.message, field="prefix") from error


def _check_overlaps(namespace: Namespace, link: ClusterLink, *, by: Actor) -> None:
    others = Namespace.objects.filter(cluster=namespace.cluster_id).exclude(link=None).exclude(pk=namespace.pk)
    for other in others.select_related("link"):
        if other.link_id != link.pk and overlap(other.prefix, namespace.prefix):
            assert other.link is not None
            owner = link_words(by, namespace.cluster)(other.link.name)
            raise ConflictError(f"Namespace '{other}' overlaps with '{namespace}' and is attached to {owner}. Detach it first.")
    if Namespace.objects.filter(pk=namespace.pk).exclude(link=None).exclude(link=link).exists():
        raise ConflictError(f"Namespace '{namespace}' is attached to another cluster link. Detach it first.")


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
