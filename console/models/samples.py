"""Samples of links and mirrors every 30 s, for charts, and summaries of them for longer ranges.

``forget_old_rows`` summarizes the samples once an hour and deletes old rows; ``reconciling.history`` has the retention.
"""

from __future__ import annotations

from django.db import models

from console.models.links import ClusterLink
from console.models.mirrors import MirrorTopic


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

    ``lag`` and ``lag_ms`` are the largest *known* values, rates the mean of the known ones; null if none is known.
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
