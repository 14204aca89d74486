"""Two tasks on registered clusters for a process that waits: a query and a change.

They call ``linkengine.jobs.browsing``.

A change writes its audit row before it acts, and is made once, however often its message is delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from types import MappingProxyType
from typing import Any

import structlog
from celery import shared_task

from console import audit
from console.models import Cluster
from console.redis import replies
from console.tasks.calls import replying
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import AclRule, LagView
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.jobs import browsing

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
        replies.count_refused("change")
        raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, "The change was made before.") from None
    return attempt.found


def _registered(cluster_pk: int) -> Cluster:
    cluster = Cluster.objects.filter(pk=cluster_pk).first()
    if cluster is None:
        raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, "The cluster is not registered any more.")
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
    if isinstance(found, LagView):
        return {**asdict(found), "lag": found.lag}
    return asdict(found) if is_dataclass(found) and not isinstance(found, type) else found
