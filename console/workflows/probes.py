"""Probes clusters, links and Spark, and stores lists of topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.clusters import actions as cluster_actions
from console.links import pairs
from console.models import Cluster, ClusterLink, SourceTopic
from console.models.links import LinkMode
from console.queue.scheduler import records_health
from console.reconciling import phases, plans
from console.redis import heartbeats as redis_health
from console.redis import locks
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import ReversalRisks
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TopicDescription
from linkengine.sparkclient import SparkUnavailableError, SparkUnresponsiveError, count_slots

_NO_LIST = {ErrorCode.AUTHORIZATION_ERROR, ErrorCode.AUTHENTICATION_ERROR, ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR}
_TOPIC_FIELDS = ("topic_id", "partitions", "replication_factor", "internal", "is_mirror", "retention_ms")
_log = structlog.get_logger(__name__)


def find_reversal_risks(link: ClusterLink, topics: Mapping[str, str]) -> dict[str, ReversalRisks]:
    """Return the risks of reversing mirrors, by mirror topic; ``topics`` maps mirrors to sources."""
    there = jobs.unclean_elections(plans.source_address(link), list(topics.values()))
    here = jobs.unclean_elections(link.destination.address, list(topics))
    writers = jobs.transactional_writers(plans.source_address(link), list(topics.values()))
    source = link.source.name if link.source else link.source_cluster_id
    found: dict[str, ReversalRisks] = {}
    for mirror, topic in topics.items():
        sides = ((source, there.get(topic)), (link.destination.name, here.get(mirror)))
        named = tuple(name for name, unclean in sides if unclean)
        known = named or all(unclean is not None for _, unclean in sides)
        found[mirror] = ReversalRisks(unclean_on=named if known else None, writers=writers.get(topic))
    return found


def probe_cluster(cluster: Cluster) -> None:
    """Probe a registered cluster and store the result."""
    try:
        probe = probe_address(cluster.address)
    except LinkEngineError as error:
        cluster_actions.note_failed_probe(cluster=cluster, error=error)
    else:
        cluster_actions.note_probe(cluster=cluster, probe=probe, now=timezone.now())


def probe_address(address: ClusterAddress) -> dict[str, Any]:
    """Probe a cluster, which need not be registered yet."""
    return asdict(jobs.probe_cluster(address)) | {"deletes_topics": jobs.deletes_topics(address)}


@records_health("probe_spark")
def probe_spark() -> None:
    """Store whether the Spark Connect server is available, and its slots. A hanging server blocks at most a single thread."""
    with locks.lock("probe_spark") as acquired:
        if not acquired:
            return
        try:
            redis_health.note_spark(slots=count_slots(settings.SPARK_URL))
        except SparkUnavailableError as error:
            _log.warning("spark.unavailable", error=str(error))
            silent = isinstance(error, SparkUnresponsiveError)
            redis_health.note_spark(problem="accepts connections but responds to no call" if silent else "does not respond")


def probe_link(link: ClusterLink) -> None:
    """Probe the source of a link with the link's own properties."""
    now = timezone.now()
    ClusterLink.objects.filter(pk=link.pk).update(probe_tried_at=now)
    try:
        _check_source(link)
        _choose_gap_filler(link)
    except LinkEngineError as error:
        phases.note_failure(link=link, error=error, now=now)
    else:
        phases.note_success(link=link, now=now)


def store_topics(topics: Sequence[TopicDescription], *, now: datetime, **owner: Any) -> None:
    """Make the stored topics of an owner those of a listing. Writes only rows that are new, changed or gone."""
    rows = {topic.name: _topic_row(topic, now=now, **owner) for topic in topics if topic.partitions}
    stored = {row[0]: row[1:] for row in SourceTopic.objects.filter(**owner).order_by().values_list("name", *_TOPIC_FIELDS)}
    changed = [row for name, row in rows.items() if stored.get(name) != _values_of(row)]
    gone = [name for name in stored if name not in rows]
    with transaction.atomic():
        SourceTopic.objects.bulk_create(
            changed,
            update_conflicts=True,
            unique_fields=[*owner, "name"],
            update_fields=[*_TOPIC_FIELDS, "seen_at"],
            batch_size=200,
        )
        for start in range(0, len(gone), 1_000):
            SourceTopic.objects.filter(**owner, name__in=gone[start : start + 1_000]).delete()


def _check_side(link: ClusterLink) -> None:
    if pairs.needs_other_side(link) and pairs.other_side(link) is None:
        raise LinkEngineError(ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR, pairs.missing_side(link))


def _check_source(link: ClusterLink) -> None:
    _check_side(link)
    probe = jobs.probe_cluster(plans.source_address(link))
    if probe.cluster_id != link.source_cluster_id:
        message = (
            f"bootstrap.servers leads to cluster {probe.cluster_id}, but the link's source is {link.source_cluster_id}. "
            "Correct bootstrap.servers, or delete the link and create it for the other cluster."
        )
        raise LinkEngineError(ErrorCode.CLUSTER_ID_MISMATCH, message)


def _choose_gap_filler(link: ClusterLink) -> None:
    """Choose the gap filler at the first successful probe, if the creation of the link did not (``validate_link=false``).

    It does not change once a mirror is set up, since ACLs and producers were created for it.
    """
    if link.probed_at is not None or link.mode == LinkMode.SOURCE:
        return
    found = jobs.find_gap_filler(link.destination.address)
    ClusterLink.objects.filter(pk=link.pk).exclude(mirrors__num_partitions__gt=0).update(gap_filler=found)


def refresh_cluster(cluster: Cluster) -> None:
    """List the topics of a cluster."""
    try:
        topics = jobs.list_topics(cluster.address)
    except LinkEngineError as error:
        cluster_actions.note_failed_probe(cluster=cluster, error=error)
        return
    store_topics(topics, now=timezone.now(), cluster=cluster)


def refresh_link(link: ClusterLink) -> None:
    """List the topics of a link's source."""
    now = timezone.now()
    try:
        _check_side(link)  # without it the source side does not allow its topics to be listed
        topics = jobs.list_topics(plans.source_address(link))
    except LinkEngineError as error:
        if error.code in _NO_LIST:  # after other errors the last list is still useful
            ClusterLink.objects.filter(pk=link.pk).update(topics_at=None)
        return
    store_topics(topics, now=now, link=link)
    ClusterLink.objects.filter(pk=link.pk).update(topics_at=now if topics else None)


def _values_of(row: SourceTopic) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in _TOPIC_FIELDS)


def _topic_row(topic: TopicDescription, *, now: datetime, **owner: Any) -> SourceTopic:
    retention = topic.configs.get("retention.ms")
    return SourceTopic(
        **owner,
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        internal=topic.internal,
        is_mirror=has_mirror_configs(topic.configs),
        retention_ms=int(retention) if retention else None,
        seen_at=now,
    )
