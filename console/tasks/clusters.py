"""Tasks on registered clusters: a query and a change for a process that waits, guards of namespaces, and probes.

Query and change call ``linkengine.jobs.browsing``. A change writes its audit row before it acts, and is made once, however
often its message is delivered. A reserved namespace is guarded on the cluster itself, by a DENY CREATE ACL on its prefix; super
users are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from types import MappingProxyType
from typing import Any

import structlog
from celery import shared_task
from django.utils import timezone

from console import audit
from console.clusters import actions as cluster_actions
from console.models import Cluster, ClusterLink, Namespace, SourceTopic
from console.models.fields import seal, unseal
from console.queue import dispatch, transport
from console.queue.dispatch import replying
from console.queue.scheduler import records_health
from console.redis import locks
from console.workflows import links, pool
from linkengine import jobs
from linkengine.domain.acls import namespace_guard
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.clusterviews import AclRule, LagDescription
from linkengine.domain.connectionchecks import ConnectionRole
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.jobs import browsing

GUARD_RESEND_MS = 30_000
_log = structlog.get_logger(__name__)


@shared_task(name="query_cluster")
@replying
def query_cluster(*, cluster_pk: int, query: str, arguments: dict[str, Any]) -> Any:
    """Return the result of a query of ``QUERIES`` on a cluster, with its registered principal."""
    return _plain(QUERIES[query](_registered(cluster_pk).address, **arguments))


@shared_task(name="change_cluster")
@replying
def change_cluster(*, cluster_pk: int, query: str, arguments: dict[str, Any], entry: dict[str, Any], change_id: str) -> Any:
    """Make a change of ``CHANGES`` on a cluster, with its registered principal. ``entry`` is the audit row."""
    cluster = _registered(cluster_pk)
    try:
        with audit.carried_out(entry, change_id=change_id) as attempt:
            attempt.found = _plain(CHANGES[query](cluster.address, **arguments))
    except audit.RepeatedChangeError:
        _log.error("change.repeated", action=entry["action"], change_id=change_id)
        transport.count_refused("change")
        raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, "The change was made before.") from None
    return attempt.found


def _registered(cluster_pk: int) -> Cluster:
    cluster = Cluster.objects.filter(pk=cluster_pk).first()
    if cluster is None:
        raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, "The cluster is no longer registered.")
    return cluster


def _check_topic(address: ClusterAddress, **arguments: Any) -> Any:
    return browsing.create_topic(address, **{**arguments, "validate_only": True})


def _check_configs(address: ClusterAddress, **arguments: Any) -> Any:
    return browsing.alter_topic_configs(address, **{**arguments, "validate_only": True})


def _check_reset(address: ClusterAddress, **arguments: Any) -> Any:
    return browsing.reset_group(address, **{**arguments, "execute": False})


def _topics(address: ClusterAddress) -> Any:
    return jobs.list_topics(address, with_configs=False)


def _list_acls(address: ClusterAddress, *, wanted: dict[str, Any]) -> Any:
    return browsing.list_acls(address, AclRule(**wanted))


def _create_acls(address: ClusterAddress, *, rules: Sequence[dict[str, Any]]) -> Any:
    return browsing.create_acls(address, [AclRule(**rule) for rule in rules])


def _delete_acls(address: ClusterAddress, *, wanted: dict[str, Any], guarded: Sequence[str]) -> Any:
    return browsing.delete_acls(address, AclRule(**wanted), guarded=guarded)


QUERIES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "brokers": browsing.list_brokers,
        "broker_configs": browsing.broker_configs,
        "broker_replicas": browsing.broker_replicas,
        "reassignments": browsing.list_reassignments,
        "topics": _topics,
        "topic": browsing.show_topic,
        "topic_rights": browsing.topic_rights,
        "partitions": browsing.topic_partitions,
        "topic_configs": browsing.topic_configs,
        "topic_groups": browsing.topic_groups,
        "create_topic": _check_topic,
        "alter_topic_configs": _check_configs,
        "acls": _list_acls,
        "groups": browsing.list_groups,
        "group": browsing.show_group,
        "group_lags": browsing.group_lags,
        "offsets_for_time": browsing.offsets_for_time,
        "reset_group": _check_reset,
    }
)
CHANGES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "create_topic": browsing.create_topic,
        "delete_topic": browsing.delete_topic,
        "grow_topic": browsing.grow_topic,
        "alter_topic_configs": browsing.alter_topic_configs,
        "create_acls": _create_acls,
        "delete_acls": _delete_acls,
        "reset_group": browsing.reset_group,
    }
)


def _plain(found: Any) -> Any:
    if isinstance(found, list):
        return [_plain(item) for item in found]
    if isinstance(found, LagDescription):
        return {**asdict(found), "lag": found.lag}
    return asdict(found) if is_dataclass(found) and not isinstance(found, type) else found


# --- reserved namespaces ----------------------------------------------------------------------------------------------


@shared_task(name="guard_namespace")
def guard_namespace(*, namespace_id: int, **_: Any) -> None:
    """Create or delete the ACL, as the row says. If the cluster refuses, the reason is stored in the row.

    If the cluster is not available, the task is sent again. A row that is to be deleted stays until its ACL is deleted.
    """
    namespace = Namespace.objects.select_related("cluster").filter(pk=namespace_id).first()
    if namespace is None:
        return
    as_read = {"reserved": namespace.reserved, "deletion_requested_at": namespace.deletion_requested_at}
    rows = Namespace.objects.filter(pk=namespace_id, **as_read)  # if changed since, the task is sent again
    try:
        problem = _refusal(namespace)
    except LinkEngineError as error:
        _log.info("namespace.not_guarded", prefix=namespace.prefix, code=error.code)
        rows.update(guard_problem=error.message)
        return
    if namespace.deletion_requested_at is None:
        rows.update(guarded=namespace.reserved and not problem, guard_problem=problem)
    elif problem:
        rows.update(guard_problem=problem)
    else:
        rows.delete()


def refresh_namespaces() -> None:
    """Send the task again for namespaces whose ACL is not as it should be."""
    for namespace_id in Namespace.objects.filter(guarded=None).values_list("pk", flat=True):
        if locks.claim(f"namespace:{namespace_id}", ttl_ms=GUARD_RESEND_MS):
            dispatch.send("guard_namespace", namespace_id=namespace_id)


def _refusal(namespace: Namespace) -> str:
    """Change the ACL. Return why the cluster refuses, or "". Raises LinkEngineError if the cluster is not available."""
    prefix, reserved = namespace.prefix, namespace.reserved
    if not prefix:
        return "Kafka has no ACL for all topics except internal ones, so only this console reserves it." if reserved else ""
    rule = namespace_guard(prefix)
    changes = {"create": [rule]} if reserved else {"delete": [rule]}
    refused = jobs.change_acls(namespace.cluster.address, **changes).get(rule)
    if refused is None or (not reserved and refused.code == ErrorCode.SECURITY_DISABLED_ERROR):  # nothing to delete
        return ""
    return refused.message


# --- probes -----------------------------------------------------------------------------------------------------------


@shared_task(name="probe_address")
@replying
def probe_address(*, sealed: str) -> dict[str, Any]:
    """Probe a cluster that is not registered yet."""
    return _probe(address_from_properties(unseal(sealed)))


@shared_task(name="check_connection")
@replying
def check_connection(*, sealed: str, role: str, expected_cluster_id: str, other_cluster_id: str) -> list[dict[str, Any]]:
    """Test the connection to a cluster; return the checklist. Neither cluster nor link need be stored."""
    checks = jobs.check_connection(
        address_from_properties(unseal(sealed)),
        role=ConnectionRole(role),
        expected_cluster_id=expected_cluster_id,
        other_cluster_id=other_cluster_id,
    )
    return [asdict(check) for check in checks]


@shared_task(name="list_source")
@replying
def list_source(*, sealed: str) -> str:
    """List topics, consumer groups and ACLs of a source; return ``SourceListing`` as JSON, sealed."""
    return seal(jobs.list_source(address_from_properties(unseal(sealed))).to_json())


@shared_task(name="probe_clusters")
@records_health("probe_clusters")
def probe_clusters(**_: Any) -> None:
    """Send a probe task for each registered cluster."""
    for cluster_pk in Cluster.objects.values_list("pk", flat=True):
        dispatch.send("probe_cluster", cluster_pk=cluster_pk)


@shared_task(name="probe_cluster")
@records_health("probe_clusters")
def probe_cluster(*, cluster_pk: int, **_: Any) -> None:
    """Probe a registered cluster and store the result."""
    cluster = Cluster.objects.filter(pk=cluster_pk).first()
    if cluster is not None:
        _store_probe(cluster)


@shared_task(name="probe_spark")
def probe_spark(**_: Any) -> None:
    """Store whether the Spark Connect server is available, and its slots."""
    pool.probe_spark()


@shared_task(name="refresh_topics")
@records_health("refresh_topics")
def refresh_topics(*, cluster_pk: int | None = None, link_id: int | None = None, **_: Any) -> None:
    """List the topics of a cluster or of a link's source; without either, send a task for each of them."""
    if cluster_pk is not None:
        cluster = Cluster.objects.filter(pk=cluster_pk).first()
        if cluster is not None:
            _store_topics(cluster)
    elif link_id is not None:
        link = ClusterLink.objects.select_related("destination", "source").filter(pk=link_id).first()
        if link is not None:
            links.refresh_topics(link)
    else:
        for pk in Cluster.objects.values_list("pk", flat=True):
            dispatch.send("refresh_topics", cluster_pk=pk)
        for pk in ClusterLink.objects.values_list("pk", flat=True):
            dispatch.send("refresh_topics", link_id=pk)


def _probe(address: ClusterAddress) -> dict[str, Any]:
    """Probe a cluster, which need not be registered yet."""
    return asdict(jobs.probe_cluster(address)) | {"deletes_topics": jobs.deletes_topics(address)}


def _store_probe(cluster: Cluster) -> None:
    """Probe a registered cluster and store the result."""
    try:
        probe = _probe(cluster.address)
    except LinkEngineError as error:
        cluster_actions.note_failed_probe(cluster=cluster, error=error)
    else:
        cluster_actions.note_probe(cluster=cluster, probe=probe, now=timezone.now())


def _store_topics(cluster: Cluster) -> None:
    """List the topics of a cluster and store them."""
    try:
        topics = jobs.list_topics(cluster.address)
    except LinkEngineError as error:
        cluster_actions.note_failed_probe(cluster=cluster, error=error)
        return
    SourceTopic.objects.store_listing(topics, now=timezone.now(), cluster=cluster)
