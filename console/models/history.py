"""The history of mirrors: restores, lineage, and samples for charts."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q

from console.models.links import ClusterLink
from console.models.mirrors import MirrorTopic
from linkengine.domain.mirrorjobs import CommonPart, RestorePoint

# --- restores ---------------------------------------------------------------------------------------------------------
#
# Where a topic diverged from its new source, and the file with the exported records.


class RestoreRun(models.Model):
    """A restore of a topic; kept with the mirror, newest first.

    ``points`` has an object per partition: ``partition``, ``start`` (first offset the topic had), ``end`` (its log end),
    ``common`` (first offset that is not common to both sides), ``other_start`` (first offset the other side had) and
    ``records`` (exported; null until they are).
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="restores")
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    points: Any = models.JSONField(default=list, blank=True)
    agreed_at = models.DateTimeField(null=True)  # the points are known and final, since producers are kept out
    parts: Any = models.JSONField(default=list, blank=True)  # evidence of the common part (``mirrorjobs.CommonPart``)
    in_place = models.BooleanField(default=False)  # nothing diverged: the topic itself is taken over
    diverged_topic_id = models.CharField(max_length=40, blank=True, default="")  # of the topic to be deleted
    source_topic_id = models.CharField(max_length=40, blank=True, default="")  # of the topic that is mirrored in its place
    export_name = models.CharField(max_length=200, blank=True, default="")  # in the export directory; "": nothing to export
    export_records = models.BigIntegerField(null=True)
    export_bytes = models.BigIntegerField(null=True)
    export_sha256 = models.CharField(max_length=64, blank=True, default="")
    exported_at = models.DateTimeField(null=True)  # the file is complete and on disk; only then the topic may be deleted
    deletion_decided_at = models.DateTimeField(null=True)  # last decision to delete the diverged topic
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-requested_at", "-id"]

    def __str__(self) -> str:
        return f"restore {self.pk} of {self.mirror_id}"

    @property
    def messages_truncated(self) -> int:
        """Number of offsets that only this side had, over all partitions."""
        return sum(point.diverged for point in self.restore_points)

    @property
    def is_set_aside(self) -> bool:
        """Return whether the file has all diverged records as of the deletion of the topic."""
        return all(point.get("records") is not None for point in self.points)

    @property
    def common_parts(self) -> tuple[CommonPart, ...]:
        """Return what proves the common part."""
        return tuple(CommonPart.from_json(part) for part in self.parts)

    @property
    def restore_points(self) -> tuple[RestorePoint, ...]:
        """The points without the export counts."""
        names = ("partition", "start", "end", "common", "other_start")
        return tuple(RestorePoint(**{name: point[name] for name in names if name in point}) for point in self.points)


# --- lineage ----------------------------------------------------------------------------------------------------------
#
# Which records of a topic came from where. Rows belong to the topic, so they outlive mirror and link.


class LineageRange(models.Model):
    """Offsets ``[start, end)`` of a partition of a topic that were copied from a topic of another cluster over a link.

    While the range is open (``closed_at`` null), the mirror is still copied and ``end`` is the last stored value; the mirror's
    own figures are newer (``mirrors.lineage``). Clusters and topics are stored by Kafka's names and ids, since the console's
    rows of them may be deleted before a query.
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.SET_NULL, null=True, related_name="lineage")
    cluster_id = models.CharField(max_length=64)
    topic = models.CharField(max_length=249)
    topic_id = models.CharField(max_length=40, blank=True, default="")
    partition = models.PositiveIntegerField()
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    origin_cluster_id = models.CharField(max_length=64)
    origin_topic = models.CharField(max_length=249)
    origin_topic_id = models.CharField(max_length=40, blank=True, default="")
    link_name = models.CharField(max_length=249)
    link_uuid = models.UUIDField()
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["partition", "start", "pk"]
        constraints = [
            models.CheckConstraint(condition=Q(start__gte=0) & Q(start__lte=F("end")), name="lineage_is_a_range"),
            models.UniqueConstraint(
                fields=["mirror", "partition"], condition=Q(closed_at__isnull=True), name="lineage_is_open_once"
            ),
        ]
        indexes = [models.Index(fields=["cluster_id", "topic", "topic_id"], name="lineage_by_topic")]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end}) from {self.origin_cluster_id}"


# --- samples ----------------------------------------------------------------------------------------------------------
#
# Of links and mirrors every 30 to 90 s, for charts, and summaries of them for longer ranges. The task ``forget_old_rows``
# summarizes the samples once an hour and deletes old rows; ``history.queries`` has the retention.


class Sample(models.Model):
    """Figures at a point of time. Unknown is null, never 0."""

    at = models.DateTimeField(db_index=True)
    lag = models.BigIntegerField(null=True)
    lag_ms = models.BigIntegerField(null=True)  # its age
    bytes_per_s = models.FloatField(null=True)
    records_per_s = models.FloatField(null=True)

    class Meta:
        abstract = True
        ordering = ["at"]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S}"


class LinkSample(Sample):
    """A link: ``lag`` is that of its worst partition, rates are sums."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="samples")

    class Meta(Sample.Meta):
        indexes = [models.Index(fields=["link", "at"], name="link_sample_by_time")]


class MirrorSample(Sample):
    """A mirror: ``lag`` is the sum over its partitions."""

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="samples")

    class Meta(Sample.Meta):
        indexes = [models.Index(fields=["mirror", "at"], name="mirror_sample_by_time")]


class SampleSummary(Sample):
    """The samples of an interval of ``seconds`` that begins at ``at``, a multiple of ``seconds``.

    ``lag`` and ``lag_ms`` are the largest *known* values, rates the mean of the known rates; null if none is known.
    ``unknown`` and ``unknown_ms`` count the samples without a lag and without a time lag.
    """

    seconds = models.PositiveIntegerField()
    samples = models.PositiveIntegerField()
    unknown = models.PositiveIntegerField()
    unknown_ms = models.PositiveIntegerField()

    class Meta(Sample.Meta):
        abstract = True

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.seconds} s"


class LinkSampleSummary(SampleSummary):
    """A summary of the samples of a link."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="sample_summaries")

    class Meta(SampleSummary.Meta):
        constraints = [models.UniqueConstraint(fields=["link", "seconds", "at"], name="link_summary_is_unique")]


class MirrorSampleSummary(SampleSummary):
    """A summary of the samples of a mirror."""

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="sample_summaries")

    class Meta(SampleSummary.Meta):
        constraints = [models.UniqueConstraint(fields=["mirror", "seconds", "at"], name="mirror_summary_is_unique")]
