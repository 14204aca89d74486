"""The tree above links (organization > environment > cluster), topics of clusters, and the pool of copy workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import models, transaction
from django.db.models import Q
from django.urls import reverse

from console.models.fields import EncryptedJSONField
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.plans import TopicDescription

_LISTED_FIELDS = ("topic_id", "partitions", "replication_factor", "internal", "is_mirror", "retention_ms")

# --- organizations, environments, clusters and their topics -----------------------------------------------------------


class Organization(models.Model):
    """The root of the tree on which roles are granted."""

    name = models.CharField(max_length=120, unique=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class Environment(models.Model):
    """A group of clusters that belong together, such as production."""

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="environments")
    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=120, unique=True)
    approval_operations = models.JSONField(default=list, blank=True)  # operations that need a second approver
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organization", "name"], name="environment_name_is_unique")]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """Return the URL of the environment's page."""
        return reverse("pages:environment", args=(self.slug,))


class Cluster(models.Model):
    """A stock Kafka cluster. ``cluster_id`` is Kafka's own; it is what REST paths carry.

    ``properties`` are Kafka client properties of the principal the product uses there: bootstrap.servers, security.protocol,
    sasl.mechanism, sasl.jaas.config, ssl.*.
    """

    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="clusters")
    name = models.CharField(max_length=120)
    cluster_id = models.CharField(max_length=64, unique=True)
    bootstrap_servers = models.CharField(max_length=1000)  # shown; the secret part is in properties
    properties = EncryptedJSONField()
    kafka_version = models.CharField(max_length=40, blank=True, default="")
    brokers = models.PositiveIntegerField(null=True)
    has_authorizer = models.BooleanField(default=True)
    deletes_topics = models.BooleanField(null=True)  # delete.topic.enable of its brokers; null: unknown
    probed_at = models.DateTimeField(null=True)  # last successful probe
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["environment", "name"], name="cluster_name_is_unique")]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """Return the URL of the cluster's page."""
        return reverse("pages:cluster", args=(self.cluster_id,))

    @property
    def is_reachable(self) -> bool | None:
        """Whether the last probe succeeded; None before the first one."""
        return None if self.probed_at is None and not self.error_code else not self.error_code

    @property
    def address(self) -> ClusterAddress:
        return replace(address_from_properties(self.properties), cluster_id=self.cluster_id)


class SourceTopicQuerySet(models.QuerySet["SourceTopic"]):
    """Stored topics of clusters and of sources of links."""

    def store_listing(self, topics: Sequence[TopicDescription], *, now: datetime, **owner: Any) -> None:
        """Make the stored topics of an owner those of a listing. Writes only rows that are new, changed or gone."""
        rows = {topic.name: _row_of(topic, now=now, **owner) for topic in topics if topic.partitions}
        stored = {row[0]: row[1:] for row in self.filter(**owner).order_by().values_list("name", *_LISTED_FIELDS)}
        changed = [row for name, row in rows.items() if stored.get(name) != _values_of(row)]
        gone = [name for name in stored if name not in rows]
        with transaction.atomic():
            self.bulk_create(
                changed,
                update_conflicts=True,
                unique_fields=[*owner, "name"],
                update_fields=[*_LISTED_FIELDS, "seen_at"],
                batch_size=200,
            )
            for start in range(0, len(gone), 1_000):
                self.filter(**owner, name__in=gone[start : start + 1_000]).delete()


class SourceTopic(models.Model):
    """A topic as of the last listing; pages offer these without a request to Kafka.

    Either on a registered ``cluster``, with the cluster's principal, or on the source of a ``link``, as far as the link may
    list it.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="topics", null=True)
    link = models.ForeignKey("ClusterLink", on_delete=models.CASCADE, related_name="source_topics", null=True)
    name = models.CharField(max_length=249)
    topic_id = models.CharField(max_length=40, blank=True, default="")
    partitions = models.PositiveIntegerField()
    replication_factor = models.PositiveIntegerField(default=1)
    internal = models.BooleanField(default=False)
    is_mirror = models.BooleanField(default=False)  # has the configs of a mirror topic
    retention_ms = models.BigIntegerField(null=True)  # null: the broker's default
    seen_at = models.DateTimeField()  # the listing that added or last changed the row; unchanged rows are not written

    objects = SourceTopicQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="source_topic_is_unique"),
            models.UniqueConstraint(fields=["link", "name"], name="source_topic_of_link_is_unique"),
            models.CheckConstraint(
                condition=Q(cluster__isnull=False, link__isnull=True) | Q(cluster__isnull=True, link__isnull=False),
                name="source_topic_was_seen_one_way",
            ),
            models.CheckConstraint(condition=Q(partitions__gte=1), name="source_topic_has_partitions"),
        ]

    def __str__(self) -> str:
        return self.name


def _values_of(row: SourceTopic) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in _LISTED_FIELDS)


def _row_of(topic: TopicDescription, *, now: datetime, **owner: Any) -> SourceTopic:
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


# --- the pool of copy workers -----------------------------------------------------------------------------------------
#
# A row per number, with its newest Spark job.


class CopyWorker(models.Model):
    """A number in the pool of copy workers, and its newest Spark job."""

    number = models.PositiveIntegerField(unique=True)
    worker_id = models.CharField(max_length=64, blank=True, default="")  # of the newest job; earlier jobs are drained
    submitted_at = models.DateTimeField(null=True)
    left_at = models.DateTimeField(null=True)  # since when no thread waits for that job, while its worker is alive
    ended_at = models.DateTimeField(null=True)  # when that job returned; null: it has not
    error = models.TextField(blank=True, default="")  # why it ended or did not start
    problem = models.TextField(blank=True, default="")  # why it sends no heartbeat now; "": it does, or will shortly
    failures = models.PositiveIntegerField(default=0)  # in a row
    retry_at = models.DateTimeField(null=True)  # no job is submitted before this time

    class Meta:
        ordering = ["number"]

    def __str__(self) -> str:
        return self.worker_id or f"copy worker {self.number}"
