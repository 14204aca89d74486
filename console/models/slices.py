"""The copy jobs that were submitted to Spark, so that the next one is submitted in time and a dead one is noticed."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from console.models.links import ClusterLink


class CopySlice(models.Model):
    """One Spark copy job: a set of partitions of one link for a stretch of time."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="slices")
    slice_id = models.CharField(max_length=64, unique=True)
    revision = models.PositiveBigIntegerField()  # of the link's settings it was planned with
    keys = models.JSONField(default=list)  # of PartitionAssignment
    started_at = models.DateTimeField()
    ends_at = models.DateTimeField()  # when its tasks let go
    taken_at = models.DateTimeField(null=True)  # when a worker's thread took it to Spark; one does
    finished_at = models.DateTimeField(null=True)  # when its driver came back
    error = models.TextField(blank=True, default="")
    # What its tasks said last, a partition a line, until a round has taken it in: their last reports may never be read, since
    # the next slice reports by then.
    endings = models.TextField(blank=True, default="", editable=False)

    class Meta:
        ordering = ["-started_at", "-id"]
        constraints = [models.CheckConstraint(condition=Q(ends_at__gt=F("started_at")), name="slice_lasts")]
        indexes = [models.Index(fields=["link", "finished_at"], name="slice_by_link")]

    def __str__(self) -> str:
        return self.slice_id
