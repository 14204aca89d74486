"""Figures of links and mirrors every half minute, for charts. ``forget_old_rows`` deletes old ones."""

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
