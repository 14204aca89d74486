"""Registers, updates, probes and unregisters Kafka clusters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, ProtectedError, Q

from console import audit
from console.access import Permission, check_permission
from console.actions.row_locks import lock_clusters
from console.actors import Actor
from console.errors import BadRequestError, ConflictError, InvalidInputError, from_engine
from console.models import Cluster, ClusterLink, Environment
from console.models.fields import seal
from console.models.links import LinkMode
from console.queue import dispatch
from linkengine.domain.addresses import address_from_properties
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linkrules import redirected_by

LINKS_SHOWN = 5  # in a message that lists links
PROBE_TIMEOUT_S = 15.0  # one cluster, for which the engine's own timeout is 8 s


def register_cluster(
    *, environment: Environment, name: str, properties: Mapping[str, str], by: Actor, now: datetime
) -> Cluster:
    """Connect to a cluster with the properties and register it under the cluster id that its brokers return."""
    check_permission(by, Permission.MANAGE_CLUSTER, environment=environment)
    _check_name(name)
    probe = probe_properties(properties)
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
    """Replace a cluster's client properties after connecting with the new ones; raise BadRequestError if the id differs.

    Raises InvalidInputError (SECRET_NEEDED), without a connection, if stored secrets of links would be sent elsewhere.
    """
    check_permission(by, Permission.MANAGE_CLUSTER, cluster=cluster)
    _check_links(cluster, properties)
    probe = probe_properties(properties)
    if probe["cluster_id"] != cluster.cluster_id:
        message = (
            f"These bootstrap servers belong to cluster {probe['cluster_id']}, not to {cluster.cluster_id}. Register that "
            "cluster separately."
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
        message = f"Another cluster of the environment is already named '{name}'. Choose another name."
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
        message = f"Cluster '{name}' has cluster links, so it cannot be unregistered. Delete its links first."
        raise ConflictError(message, code="CLUSTER_IN_USE") from None


def refresh(*, cluster: Cluster, by: Actor, now: datetime) -> None:
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

    The actor may not know these secrets, and the cluster id proves nothing: a server of the actor can return it too. A secret
    counts also while it is not used, since the destination side of its link may be created later.
    """
    sides = ClusterLink.objects.filter(destination=cluster, mode=LinkMode.SOURCE)
    moved = {link.name: configs for link in sides if (configs := _redirected(link, cluster, properties))}
    if not moved:
        return
    names, config = list(moved), next(iter(moved.values()))[0]
    more = f" and {len(names) - LINKS_SHOWN} more" if len(names) > LINKS_SHOWN else ""
    listed = ", ".join(f"'{name}'" for name in names[:LINKS_SHOWN])
    raise InvalidInputError(
        f"Nothing was changed: another {config} could send stored secrets to another server, namely the local.* configs of "
        f"these source-initiated links: {listed}{more}. Delete these links on cluster '{cluster.name}', change the properties, "
        "and create the links again with their secrets. Their destination sides and mirror topics stay; nothing is copied in "
        "between.",
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
        raise InvalidInputError("A cluster needs a name.", field="name")


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
        message = (
            f"Cluster {cluster.cluster_id} is already registered, or its environment has another cluster named "
            f"'{cluster.name}'. Use the registered cluster, or choose another name."
        )
        raise BadRequestError(message, code="CLUSTER_EXISTS", field="name") from None
    dispatch.send("refresh_topics", cluster_pk=cluster.pk)
    return cluster
