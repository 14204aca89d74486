"""Failover drills: scratch copies of mirrors are failed over, checked and deleted."""

from __future__ import annotations

from django.db import models

from console.models.links import ClusterLink


class Drill(models.Model):
    """A failover drill. The steps up to CLEANING are taken once per batch of topics.

    Its scratch copies are mirror topics with ``drill`` set; lists of mirrors do not show them.
    """

    class Status(models.TextChoices):
        PREPARING = "PREPARING"  # scratch copies are being made and caught up
        FAILING_OVER = "FAILING_OVER"
        CHECKING = "CHECKING"  # compared with the source, written to, read back
        CLEANING = "CLEANING"  # scratch copies are being deleted
        PASSED = "PASSED"
        FAILED = "FAILED"
        CANCELED = "CANCELED"  # by a user; its scratch copies are deleted

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="drills")
    status = models.CharField(max_length=15, choices=Status, default=Status.PREPARING)
    status_since = models.DateTimeField()
    start_spec = models.CharField(max_length=40)  # how much the scratch copies hold: mirror.start.offset.spec
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    failover_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    topics = models.JSONField(default=list)  # names of all mirrors to be rehearsed, in batches
    rto_ms = models.BigIntegerField(null=True)  # from the failover until the last scratch copy was writable; slowest batch
    canceled_by = models.CharField(max_length=150, blank=True, default="")  # set while it still cleans up; "": not canceled
    problem = models.TextField(blank=True, default="")
    report = models.JSONField(default=list)  # of DrillRow as dicts; grows by batches
    groups = models.JSONField(default=list)  # of GroupRow as dicts

    class Meta:
        ordering = ["-requested_at", "-id"]

    def __str__(self) -> str:
        return f"{self.link_id} {self.status}"
