"""Tasks that read from clusters: checks with a waiting caller, probes, and lists of topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import structlog
from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.actions import clusters
from console.links import pairs
from console.models import Cluster, ClusterLink, MirrorTopic, SourceTopic
from console.models.fields import seal, unseal
from console.models.links import LinkMode
from console.queue import dispatch
from console.queue.schedule_health import records_health
from console.reconciling import linkhealth, plans
from console.redis import locks, spark_health
from console.tasks.calls import replying
from console.tasks.log_ranges import Topic, find_divergence
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress, address_from_properties
from linkengine.domain.clusterviews import ReversalRisks
from linkengine.domain.configs import looks_like_mirror
from linkengine.domain.connectionchecks import ConnectionRole
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TopicDescription
from linkengine.domain.restoring import CommonPart, RestorePoint
from linkengine.sparkclient import SparkSilentError, SparkUnavailableError, count_slots

_NO_LIST = {ErrorCode.AUTHORIZATION_ERROR, ErrorCode.AUTHENTICATION_ERROR, ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR}
_LINKS = ("destination", "source")
_TOPIC_FIELDS = ("topic_id", "partitions", "replication_factor", "internal", "is_mirror", "retention_ms")
_log = structlog.get_logger(__name__)


@shared_task(name="check_link")
@replying
def check_link(*, sealed: str, source_cluster_id: str, fills_gaps: bool = True, with_distances: bool = False) -> dict[str, Any]:
    """Check a link, which need not be stored yet."""
    properties = unseal(sealed)
    probe = jobs.check_link(
        source=address_from_properties(properties["source"]),
        destination=address_from_properties(properties["destination"]),
        expected_source_cluster_id=source_cluster_id or None,
        fills_gaps=fills_gaps,
        with_distances=with_distances,
    )
    return asdict(probe)


@shared_task(name="check_mirror")
@replying
def check_mirror(
    *, link_id: int, source_topic: str, mirror_topic: str, replication_factor: int | None, configs: dict[str, str]
) -> dict[str, Any]:
    """Check whether a topic can be mirrored."""
    link = ClusterLink.objects.select_related(*_LINKS).get(pk=link_id)
    mirror = MirrorTopic(
        link=link, name=mirror_topic, source_topic=source_topic, replication_factor=replication_factor, config_overrides=configs
    )
    return asdict(jobs.check_mirror(plans.setup_of(mirror)))


@shared_task(name="count_divergence")
@replying
def count_divergence(*, link_id: int, known: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, int]]]:
    """Return what restores would truncate, by topic of the link's own cluster: a row per partition."""
    link = ClusterLink.objects.select_related(*_LINKS).get(pk=link_id)
    return {topic: [asdict(point) for point in _points(link, topic, **facts)] for topic, facts in known.items()}


@shared_task(name="find_reversal_risks")
@replying
def find_reversal_risks(*, link_id: int, topics: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return ``ReversalRisks`` as JSON by mirror topic; ``topics`` maps mirrors to sources."""
    link = ClusterLink.objects.select_related(*_LINKS).get(pk=link_id)
    there = jobs.unclean_elections(plans.source_address(link), list(topics.values()))
    here = jobs.unclean_elections(link.destination.address, list(topics))
    writers = jobs.transactional_writers(plans.source_address(link), list(topics.values()))
    source = link.source.name if link.source else link.source_cluster_id
    found: dict[str, dict[str, Any]] = {}
    for mirror, topic in topics.items():
        sides = ((source, there.get(topic)), (link.destination.name, here.get(mirror)))
        named = tuple(name for name, unclean in sides if unclean)
        known = named or all(unclean is not None for _, unclean in sides)
        found[mirror] = asdict(ReversalRisks(unclean_on=named if known else None, writers=writers.get(topic)))
    return found


def _points(link: ClusterLink, topic: str, *, source_topic: str, parts: list[dict[str, Any]]) -> tuple[RestorePoint, ...]:
    known = [CommonPart.from_json(part) for part in parts]
    here, there = Topic(link.destination.address, topic), Topic(plans.source_address(link), source_topic)
    return find_divergence(here, there, parts=known).points


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
    if cluster is None:
        return
    try:
        probe = _probe(cluster.address)
    except LinkEngineError as error:
        clusters.note_failed_probe(cluster=cluster, error=error)
    else:
        clusters.note_probe(cluster=cluster, probe=probe, now=timezone.now())


def _probe(address: ClusterAddress) -> dict[str, Any]:
    return asdict(jobs.probe_cluster(address)) | {"deletes_topics": jobs.deletes_topics(address)}


@shared_task(name="probe_spark")
@records_health("probe_spark")
def probe_spark(**_: Any) -> None:
    """Store whether the Spark Connect server is available, and its slots. A hanging server blocks at most a single thread."""
    with locks.lock("probe_spark") as acquired:
        if not acquired:
            return
        try:
            spark_health.note(slots=count_slots(settings.SPARK_URL))
        except SparkUnavailableError as error:
            _log.warning("spark.unavailable", error=str(error))
            silent = isinstance(error, SparkSilentError)
            spark_health.note(problem="accepts connections but answers no call" if silent else "does not answer")


@shared_task(name="probe_link")
def probe_link(*, link_id: int, **_: Any) -> None:
    """Probe the source of a link with the link's own properties."""
    link = ClusterLink.objects.select_related(*_LINKS).filter(pk=link_id).first()
    if link is None:
        return
    now = timezone.now()
    ClusterLink.objects.filter(pk=link_id).update(looked_at=now)
    try:
        _check_source(link)
        _choose_gap_filler(link)
    except LinkEngineError as error:
        linkhealth.note_failure(link=link, error=error, now=now)
    else:
        linkhealth.note_success(link=link, now=now)


@shared_task(name="refresh_topics")
@records_health("refresh_topics")
def refresh_topics(*, cluster_pk: int | None = None, link_id: int | None = None, **_: Any) -> None:
    """List the topics of a cluster or of a link's source; without either, send a task for each of them."""
    if cluster_pk is not None:
        _refresh_cluster(cluster_pk)
    elif link_id is not None:
        _refresh_link(link_id)
    else:
        for pk in Cluster.objects.values_list("pk", flat=True):
            dispatch.send("refresh_topics", cluster_pk=pk)
        for pk in ClusterLink.objects.values_list("pk", flat=True):
            dispatch.send("refresh_topics", link_id=pk)


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


def _refresh_cluster(cluster_pk: int) -> None:
    cluster = Cluster.objects.filter(pk=cluster_pk).first()
    if cluster is None:
        return
    try:
        topics = jobs.list_topics(cluster.address)
    except LinkEngineError as error:
        clusters.note_failed_probe(cluster=cluster, error=error)
        return
    store_topics(topics, now=timezone.now(), cluster=cluster)


def _refresh_link(link_id: int) -> None:
    link = ClusterLink.objects.select_related(*_LINKS).filter(pk=link_id).first()
    if link is None:
        return
    now = timezone.now()
    try:
        _check_side(link)  # without it the source side does not allow its topics to be listed
        topics = jobs.list_topics(plans.source_address(link))
    except LinkEngineError as error:
        if error.code in _NO_LIST:  # after other errors the last list is still useful
            ClusterLink.objects.filter(pk=link_id).update(topics_at=None)
        return
    store_topics(topics, now=now, link=link)
    ClusterLink.objects.filter(pk=link_id).update(topics_at=now if topics else None)


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
        is_mirror=looks_like_mirror(topic.configs),
        retention_ms=int(retention) if retention else None,
        seen_at=now,
    )
