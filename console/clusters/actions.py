"""Registers, updates, probes and unregisters Kafka clusters; creates, attaches and deletes their namespaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, ProtectedError, Q

from console import audit
from console.access import Permission, check_permission, link_words
from console.actors import Actor
from console.errors import BadRequestError, ConflictError, InvalidInputError, NotFoundError, from_engine
from console.models import Cluster, ClusterLink, Environment, Namespace
from console.models.fields import seal
from console.models.row_changes import lock_clusters
from console.queue import dispatch
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linkrules import redirected_by
from linkengine.domain.messages import gettext_lazy, listed_names
from linkengine.domain.names import check_topic_name, contains, overlap
from linkengine.domain.states import LinkMode

# --- clusters ---------------------------------------------------------------------------------------------------------


LINKS_SHOWN = 5  # in a message that lists links
_CLUSTER_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}")  # Kafka's own ids have 22 of these characters
PROBE_TIMEOUT_S = 15.0  # one cluster, for which the engine's own timeout is 8 s


def register_cluster(
    *, environment: Environment, name: str, properties: Mapping[str, str], by: Actor, now: datetime
) -> Cluster:
    """Connect to a cluster with the properties and register it under the cluster id that its brokers return."""
    check_permission(by, Permission.MANAGE_CLUSTER, environment=environment)
    _check_name(name)
    probe = probe_properties(properties)
    _check_id(probe["cluster_id"])
    cluster = Cluster(
        environment=environment,
        name=name.strip(),
        cluster_id=probe["cluster_id"],
        properties=dict(properties),
        bootstrap_servers=address_from_properties(properties).bootstrap_servers,
        created_at=now,
    )
    _apply_probe(cluster, probe, now=now)
    return _store(cluster, by=by, now=now)


def update_properties(*, cluster: Cluster, properties: Mapping[str, str], by: Actor, now: datetime) -> Cluster:
    """Replace a cluster's client properties after connecting with the new properties; raise BadRequestError if the id differs.

    Raises InvalidInputError (SECRET_NEEDED), without a connection, if stored secrets of links would be sent elsewhere.
    """
    check_permission(by, Permission.MANAGE_CLUSTER, cluster=cluster)
    _check_links(cluster, properties)
    probe = probe_properties(properties)
    if probe["cluster_id"] != cluster.cluster_id:
        message = gettext_lazy(
            "These bootstrap servers belong to cluster %(found)s, not to %(cluster)s. Register that cluster separately.",
            found=probe["cluster_id"],
            cluster=cluster.cluster_id,
        )
        raise BadRequestError(message, code="CLUSTER_ID_MISMATCH", field="bootstrap.servers")
    with transaction.atomic():
        lock_clusters(cluster.cluster_id)  # as the creation of a link does
        links = ClusterLink.objects.filter(Q(source=cluster) | Q(destination=cluster))
        list(links.select_for_update().order_by("pk").values_list("pk"))
        cluster.refresh_from_db(fields=["properties"])
        _check_links(cluster, properties)  # a link may have been created or changed since
        cluster.properties = dict(properties)
        cluster.bootstrap_servers = address_from_properties(properties).bootstrap_servers
        _apply_probe(cluster, probe, now=now)
        cluster.save()
        links.update(revision=F("revision") + 1)  # copy workers reconnect with the new properties
        audit.record(by=by, action="UpdateCluster", resource=audit.path_of(cluster), now=now)
    return cluster


def rename(*, cluster: Cluster, name: str, by: Actor, now: datetime) -> Cluster:
    """Rename a cluster; do nothing if it already has the name."""
    check_permission(by, Permission.MANAGE_CLUSTER, cluster=cluster)
    _check_name(name)
    if name == cluster.name:
        return cluster
    try:
        with transaction.atomic():
            before, cluster.name = cluster.name, name
            cluster.save(update_fields=["name"])
            detail = {"from": before, "to": name}
            audit.record(by=by, action="RenameCluster", resource=audit.path_of(cluster), now=now, detail=detail)
    except IntegrityError:
        message = gettext_lazy(
            "Another cluster of the environment is already named '%(name)s'. Choose another name.", name=name
        )
        raise BadRequestError(message, code="CLUSTER_EXISTS", field="name") from None
    return cluster


def unregister(*, cluster: Cluster, by: Actor, now: datetime) -> None:
    """Delete a cluster without links from the registry, with the roles granted on it; the Kafka cluster is not contacted."""
    check_permission(by, Permission.MANAGE_CLUSTER, cluster=cluster)
    resource, name = audit.path_of(cluster), cluster.name
    try:
        with transaction.atomic():
            cluster.delete()
            audit.record(by=by, action="UnregisterCluster", resource=resource, now=now, detail={"name": name})
    except ProtectedError:
        message = gettext_lazy(
            "Cluster '%(name)s' has cluster links, so it cannot be unregistered. Delete its links first.", name=name
        )
        raise ConflictError(message, code="CLUSTER_IN_USE") from None


def refresh(*, cluster: Cluster, by: Actor) -> None:
    """Queue a probe of the cluster and a refresh of its topic list."""
    check_permission(by, Permission.VIEW, cluster=cluster)
    dispatch.send("probe_cluster", cluster_pk=cluster.pk)
    dispatch.send("refresh_topics", cluster_pk=cluster.pk)


def probe_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Probe a cluster in a worker; return the fields of ``ClusterProbe``."""
    try:
        address_from_properties(properties)
        probe: dict[str, Any] = dispatch.call("probe_address", timeout_s=PROBE_TIMEOUT_S, sealed=seal(dict(properties)))
    except LinkEngineError as error:
        raise from_engine(error, field="bootstrap.servers") from error
    return probe


def note_probe(*, cluster: Cluster, probe: Mapping[str, Any], now: datetime) -> None:
    """Store the result of a probe."""
    _apply_probe(cluster, probe, now=now)
    fields = ["brokers", "kafka_version", "has_authorizer", "deletes_topics", "probed_at", "error_code", "error_message"]
    cluster.save(update_fields=fields)


def note_failed_probe(*, cluster: Cluster, error: LinkEngineError) -> None:
    """Store the error of a failed probe; the results of the last successful probe are kept."""
    cluster.error_code, cluster.error_message = error.code, error.message
    cluster.save(update_fields=["error_code", "error_message"])


def _check_links(cluster: Cluster, properties: Mapping[str, str]) -> None:
    """Raise InvalidInputError if links store ``local.*`` secrets that the new properties would send to another recipient.

    The actor may not be allowed to see these secrets, and the cluster id proves nothing: a server of the actor can return it.
    A secret counts also while it is not used, since the destination side of its link may be created later.
    """
    sides = ClusterLink.objects.filter(destination=cluster, mode=LinkMode.SOURCE)
    moved = {link.name: configs for link in sides if (configs := _redirected(link, cluster, properties))}
    if not moved:
        return
    names, config = list(moved), next(iter(moved.values()))[0]
    raise InvalidInputError(
        gettext_lazy(
            "Nothing was changed: another %(config)s could send stored secrets to another server, namely the "
            "local.* configs of these source-initiated links: %(listed)s. Delete these links on cluster "
            "'%(cluster)s', change the properties, and create the links again with their secrets. Their "
            "destination sides and mirror topics stay; nothing is copied in between.",
            config=config,
            listed=listed_names(names, most=LINKS_SHOWN),
            cluster=cluster.name,
        ),
        code="SECRET_NEEDED",
        field=config,
    )


def _redirected(link: ClusterLink, cluster: Cluster, properties: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return redirected_by(link.properties, cluster.properties, properties)
    except LinkEngineError:  # no key decrypts the properties of the link or of the cluster: what would be sent is unknown
        return ("bootstrap.servers",)


def _check_name(name: str) -> None:
    if not name.strip():
        raise InvalidInputError(gettext_lazy("A cluster needs a name."), field="name")


def _check_id(cluster_id: str) -> None:
    """Raise InvalidInputError for an id that is no segment of a path.

    The server chooses its id. A slash would place the cluster below another one in the audit log, whose readers
    are found by the beginning of the path, and no URL of a page could contain it.
    """
    if not _CLUSTER_ID.fullmatch(cluster_id):
        raise InvalidInputError(
            gettext_lazy(
                "The brokers return the cluster id %(id)s. A cluster id must have 1 to 64 letters, digits, '.', '_' or '-'.",
                id=repr(cluster_id[:64]),
            ),
            field="bootstrap.servers",
        )


def _apply_probe(cluster: Cluster, probe: Mapping[str, Any], *, now: datetime) -> None:
    cluster.brokers, cluster.kafka_version = probe["brokers"], probe["kafka_version"]
    cluster.has_authorizer, cluster.probed_at = probe["authorizer"], now
    cluster.deletes_topics = probe.get("deletes_topics")
    cluster.error_code = cluster.error_message = ""


def _store(cluster: Cluster, *, by: Actor, now: datetime) -> Cluster:
    try:
        with transaction.atomic():
            cluster.save(force_insert=True)
            audit.record(
                by=by, action="RegisterCluster", resource=audit.path_of(cluster), now=now, detail={"name": cluster.name}
            )
    except IntegrityError:
        message = gettext_lazy(
            "Cluster %(id)s is already registered, or its environment has another cluster named "
            "'%(name)s'. Use the registered cluster, or choose another name.",
            id=cluster.cluster_id,
            name=cluster.name,
        )
        raise BadRequestError(message, code="CLUSTER_EXISTS", field="name") from None
    dispatch.send("refresh_topics", cluster_pk=cluster.pk)
    return cluster


# --- namespaces -------------------------------------------------------------------------------------------------------
#
# A namespace is a prefix of topic names on a cluster. In a reserved namespace only the attached link may create topics; a
# worker enforces that on the cluster with a DENY ACL for CREATE (task ``guard_namespace``). An attached namespace follows the
# namespace with the prefix ``leader_prefix`` at the link's source (KIP-986).


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
        raise ConflictError(
            gettext_lazy(
                "Namespace '%(prefix)s*' already exists on cluster %(cluster)s. Choose another prefix.",
                prefix=prefix,
                cluster=cluster.name,
            )
        ) from None
    _guard(found)
    return found


def reserve(*, namespace: Namespace, reserved: bool, by: Actor, now: datetime) -> Namespace:
    """Reserve a namespace, or end the reservation; raise ConflictError if an attached namespace would lose it."""
    _check_rights(namespace.cluster, by)
    if namespace.link_id and not reserved:
        raise ConflictError(
            gettext_lazy(
                "Namespace '%(namespace)s' is attached to a cluster link and stays reserved. Detach it first.",
                namespace=namespace,
            )
        )
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
            gettext_lazy(
                "This cluster is not the destination of cluster link '%(link)s'. Choose a link to this cluster.", link=link.name
            ),
            field="link_name",
        )
    expected = link.prefix + leader_prefix
    if expected != namespace.prefix:
        message = gettext_lazy(
            "Cluster link '%(link)s' mirrors topics '%(leader_prefix)s*' as '%(expected)s*', not as "
            "'%(namespace)s'. Change leader_prefix, or attach a namespace with that prefix.",
            link=link.name,
            leader_prefix=leader_prefix,
            expected=expected,
            namespace=namespace,
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
            raise ConflictError(
                gettext_lazy("Namespace '%(namespace)s' is attached to a cluster link. Detach it first.", namespace=namespace)
            )
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
                message = gettext_lazy(
                    "'%(topic)s' is in the reserved namespace '%(namespace)s', in which only %(link)s can create topics. "
                    "Choose another name.",
                    topic=topic,
                    namespace=namespace,
                    link=link_words(by, cluster)(namespace.link.name),
                )
            else:
                message = gettext_lazy(
                    "'%(topic)s' is in the reserved namespace '%(namespace)s', in which no topics can be created until a "
                    "cluster link is attached. Choose another name.",
                    topic=topic,
                    namespace=namespace,
                )
            raise ConflictError(message, code="NAMESPACE_RESERVED")


def _check_rights(cluster: Cluster, by: Actor) -> None:
    """Check MANAGE_LINK and MANAGE_ACLS, since a namespace is enforced by ACLs for all principals of the cluster."""
    check_permission(by, Permission.MANAGE_LINK, cluster=cluster)
    check_permission(by, Permission.MANAGE_ACLS, cluster=cluster)


def _check_prefix(prefix: str) -> None:
    if len(prefix) > LONGEST_PREFIX:
        message = gettext_lazy(
            "The prefix has %(count)s characters; at most %(most)s are allowed. Give a shorter prefix.",
            count=len(prefix),
            most=LONGEST_PREFIX,
        )
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
            raise ConflictError(
                gettext_lazy(
                    "Namespace '%(other)s' overlaps with '%(namespace)s' and is attached to %(owner)s. Detach it first.",
                    other=other,
                    namespace=namespace,
                    owner=owner,
                )
            )
    if Namespace.objects.filter(pk=namespace.pk).exclude(link=None).exclude(link=link).exists():
        raise ConflictError(
            gettext_lazy("Namespace '%(namespace)s' is attached to another cluster link. Detach it first.", namespace=namespace)
        )


def _change(namespace: Namespace, **values: object) -> None:
    if not Namespace.objects.filter(pk=namespace.pk, deletion_requested_at=None).update(**values):
        raise _gone(namespace)


def _gone(namespace: Namespace) -> NotFoundError:
    return NotFoundError(
        gettext_lazy("Namespace '%(namespace)s' has been deleted.", namespace=namespace), code="UNKNOWN_NAMESPACE"
    )


def _fresh(namespace: Namespace) -> Namespace:
    found = Namespace.objects.select_related("link", "cluster__environment").get(pk=namespace.pk)
    _guard(found)
    return found


def _guard(namespace: Namespace) -> None:
    dispatch.send("guard_namespace", namespace_id=namespace.pk)


def _audit(action: str, namespace: Namespace, *, by: Actor, now: datetime, **detail: object) -> None:
    resource = audit.path_of(namespace.cluster)
    audit.record(by=by, action=action, resource=resource, now=now, detail={"prefix": namespace.prefix, **detail})
