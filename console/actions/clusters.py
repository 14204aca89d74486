"""Register Kafka clusters, look at them again, and let go of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, ProtectedError, Q

from console import audit, dispatch
from console.access import Permission, check_permission
from console.actors import Actor
from console.errors import BadRequestError, ConflictError, InvalidInputError, from_engine
from console.models import Cluster, ClusterLink, Environment
from console.models.fields import seal
from linkengine.domain.addresses import address_from_properties
from linkengine.domain.errors import LinkEngineError

PROBE_TIMEOUT_S = 15.0  # one cluster; the engine gives up on it after 8 s


def register_cluster(
    *, environment: Environment, name: str, properties: Mapping[str, str], by: Actor, now: datetime
) -> Cluster:
    """Register a cluster that answers; its id comes from its brokers."""
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
    _take_over(cluster, probe, now=now)
    return _store(cluster, by=by, now=now)


def update_properties(*, cluster: Cluster, properties: Mapping[str, str], by: Actor, now: datetime) -> Cluster:
    """Replace how a cluster is reached, once it answers under the new properties and is still the same cluster."""
    check_permission(by, Permission.MANAGE_CLUSTER, cluster=cluster)
    probe = probe_properties(properties)
    if probe["cluster_id"] != cluster.cluster_id:
        message = f"Behind these addresses is cluster {probe['cluster_id']}, not {cluster.cluster_id}. Register it on its own."
        raise BadRequestError(message, code="CLUSTER_ID_MISMATCH", field="bootstrap.servers")
    with transaction.atomic():
        cluster.properties = dict(properties)
        cluster.bootstrap_servers = address_from_properties(properties).bootstrap_servers
        _take_over(cluster, probe, now=now)
        cluster.save()
        links = ClusterLink.objects.filter(Q(source=cluster) | Q(destination=cluster))
        links.update(revision=F("revision") + 1)  # running copies end, the next ones sign in anew
        audit.record(by=by, action="UpdateCluster", resource=audit.path_of(cluster), now=now)
    return cluster


def rename(*, cluster: Cluster, name: str, by: Actor, now: datetime) -> Cluster:
    """Give a cluster another name; the one it has changes nothing."""
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
        message = f"Another cluster of the environment is already named '{name}'."
        raise BadRequestError(message, code="CLUSTER_EXISTS", field="name") from None
    return cluster


def unregister(*, cluster: Cluster, by: Actor, now: datetime) -> None:
    """Let go of a cluster that no link uses, and of the roles granted on it; nothing happens to the cluster itself."""
    check_permission(by, Permission.MANAGE_CLUSTER, cluster=cluster)
    resource, name = audit.path_of(cluster), cluster.name
    try:
        with transaction.atomic():
            cluster.delete()
            audit.record(by=by, action="UnregisterCluster", resource=resource, now=now, detail={"name": name})
    except ProtectedError:
        message = f"Cluster '{name}' has cluster links. Delete its links first."
        raise ConflictError(message, code="CLUSTER_IN_USE") from None


def refresh(*, cluster: Cluster, by: Actor, now: datetime) -> None:
    """Have the cluster and its topics looked at again soon."""
    check_permission(by, Permission.VIEW, cluster=cluster)
    dispatch.send("probe_cluster", cluster_pk=cluster.pk)
    dispatch.send("refresh_topics", cluster_pk=cluster.pk)


def probe_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Look at a cluster through a worker; answers a ClusterProbe as a dictionary."""
    try:
        address_from_properties(properties)
        probe: dict[str, Any] = dispatch.call("probe_address", timeout_s=PROBE_TIMEOUT_S, sealed=seal(dict(properties)))
    except LinkEngineError as error:
        raise from_engine(error, field="bootstrap.servers") from error
    return probe


def note_probe(*, cluster: Cluster, probe: Mapping[str, Any], now: datetime) -> None:
    """Keep what a look at a cluster told."""
    _take_over(cluster, probe, now=now)
    fields = ["brokers", "kafka_version", "has_authorizer", "deletes_topics", "probed_at", "error_code", "error_message"]
    cluster.save(update_fields=fields)


def note_failed_probe(*, cluster: Cluster, error: LinkEngineError) -> None:
    """Keep why a cluster could not be looked at; what was known before stays."""
    cluster.error_code, cluster.error_message = error.code, error.message
    cluster.save(update_fields=["error_code", "error_message"])


def _check_name(name: str) -> None:
    if not name.strip():
        raise InvalidInputError("A cluster needs a name.", field="name")


def _take_over(cluster: Cluster, probe: Mapping[str, Any], *, now: datetime) -> None:
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
        message = f"Cluster {cluster.cluster_id}, or another one named '{cluster.name}', is already registered."
        raise BadRequestError(message, code="CLUSTER_EXISTS", field="name") from None
    dispatch.send("refresh_topics", cluster_pk=cluster.pk)
    return cluster
