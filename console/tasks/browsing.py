"""One task that asks a registered cluster something for somebody who waits; questions are ``linkengine.jobs.browsing``'s."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from types import MappingProxyType
from typing import Any

from celery import shared_task

from console.models import Cluster
from console.tasks.answers import answering
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import AclRule, LagView
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.jobs import browsing


@shared_task(name="ask_cluster")
@answering
def ask_cluster(*, cluster_pk: int, question: str, asked: dict[str, Any]) -> Any:
    """Answer a question of ``QUESTIONS`` about a cluster, with its registered principal."""
    cluster = Cluster.objects.filter(pk=cluster_pk).first()
    if cluster is None:
        raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, "The cluster is not registered any more.")
    return _plain(QUESTIONS[question](cluster.address, **asked))


def _topics(address: ClusterAddress) -> Any:
    return jobs.list_topics(address, with_configs=False)


def _list_acls(address: ClusterAddress, *, wanted: dict[str, Any]) -> Any:
    return browsing.list_acls(address, AclRule(**wanted))


def _create_acls(address: ClusterAddress, *, rules: Sequence[dict[str, Any]]) -> Any:
    return browsing.create_acls(address, [AclRule(**rule) for rule in rules])


def _delete_acls(address: ClusterAddress, *, wanted: dict[str, Any], guarded: Sequence[str]) -> Any:
    return browsing.delete_acls(address, AclRule(**wanted), guarded=guarded)


QUESTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
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
        "create_topic": browsing.create_topic,
        "delete_topic": browsing.delete_topic,
        "grow_topic": browsing.grow_topic,
        "alter_topic_configs": browsing.alter_topic_configs,
        "acls": _list_acls,
        "create_acls": _create_acls,
        "delete_acls": _delete_acls,
        "groups": browsing.list_groups,
        "group": browsing.show_group,
        "group_lags": browsing.group_lags,
        "offsets_for_time": browsing.offsets_for_time,
        "reset_group": browsing.reset_group,
    }
)


def _plain(found: Any) -> Any:
    if isinstance(found, list):
        return [_plain(one) for one in found]
    if isinstance(found, LagView):
        return {**asdict(found), "lag": found.lag}
    return asdict(found) if is_dataclass(found) and not isinstance(found, type) else found
