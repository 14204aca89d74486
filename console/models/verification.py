"""Runs of the verify job and what they saw."""

from __future__ import annotations

from django.db import models

from console.models.mirrors import MirrorTopic


class VerifyRun(models.Model):
    """One comparison of a mirror with its source, record by record."""

    class Status(models.TextChoices):
        QUEUED = "QUEUED"
        RUNNING = "RUNNING"
        EQUAL = "EQUAL"
        DIFFERENT = "DIFFERENT"
        ERROR = "ERROR"  # the comparison itself failed; says nothing about the data

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="verify_runs")
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    records_compared = models.BigIntegerField(null=True)
    differences = models.BigIntegerField(null=True)
    bytes_compared = models.BigIntegerField(null=True)
    duration_ms = models.BigIntegerField(null=True)
    first_differences = models.JSONField(default=list)  # of RecordDifference as dicts
    ranges = models.JSONField(default=list)  # [[partition, first offset, end offset], …]
    error_message = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["-requested_at", "-id"]

    def __str__(self) -> str:
        return f"{self.mirror_id} {self.status}"
