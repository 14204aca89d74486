"""Verification runs, the ledger of verified ranges, and runs of the migration gate."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from console.models.mirrors import MirrorTopic


class VerifyRun(models.Model):
    """A comparison of a mirror with its source, record by record."""

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
    not_copied = models.BigIntegerField(null=True)  # offsets that the source had when the run started and the mirror had not
    first_differences = models.JSONField(default=list)  # of RecordDifference as dicts
    ranges = models.JSONField(default=list)  # [[partition, first offset, end offset], …]
    error_message = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["-id"]  # in the order of the requests, independent of clocks

    def __str__(self) -> str:
        return f"{self.mirror_id} {self.status}"


class VerifiedRange(models.Model):
    """Offsets ``[start, end)`` that were compared; equal neighbours are merged into a single row. Outlives the mirroring.

    ``hash`` and ``records`` are of what the mirror had then (``linkengine.domain.ranges``); unknown if a later comparison
    replaced a part of the range.
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="verified_ranges")
    partition = models.PositiveIntegerField()
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    records = models.BigIntegerField(null=True)
    hash = models.CharField(max_length=32, blank=True)
    differences = models.BigIntegerField(default=0)  # above 0: the range differs and is not verified
    first_difference = models.JSONField(null=True)  # a RecordDifference as dict
    first_verified_at = models.DateTimeField()
    verified_at = models.DateTimeField()

    class Meta:
        ordering = ["partition", "start"]
        constraints = [
            models.UniqueConstraint(fields=["mirror", "partition", "start"], name="verified_range_is_noted_once"),
            models.CheckConstraint(condition=Q(start__lt=F("end")), name="verified_range_is_not_empty"),
        ]

    def __str__(self) -> str:
        return f"{self.partition}: [{self.start}, {self.end})"


class VerifyWatch(models.Model):
    """When the next range of a mirror is compared, and how the last attempt ended."""

    mirror = models.OneToOneField(MirrorTopic, on_delete=models.CASCADE, related_name="verify_watch")
    next_at = models.DateTimeField(db_index=True)
    finished_at = models.DateTimeField(null=True)  # last attempt
    duration_ms = models.BigIntegerField(null=True)
    error_message = models.TextField(blank=True, default="")  # of the last attempt; "" if it succeeded

    def __str__(self) -> str:
        return f"{self.mirror_id} at {self.next_at}"


class GateRun(models.Model):
    """A run of the checklist, or a user's decision to override it."""

    class Status(models.TextChoices):
        RUNNING = "RUNNING"
        GREEN = "GREEN"
        RED = "RED"
        OVERRIDDEN = "OVERRIDDEN"  # a user takes the responsibility, with a reason

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="gate_runs")
    status = models.CharField(max_length=10, choices=Status)
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    verify_run = models.ForeignKey(VerifyRun, on_delete=models.SET_NULL, null=True, related_name="+")
    checks = models.JSONField(default=list)  # of GateCheck as dicts
    reason = models.TextField(blank=True, default="")  # of an override

    class Meta:
        ordering = ["-id"]  # in the order of the requests, independent of clocks
        constraints = [
            models.CheckConstraint(condition=~Q(status="OVERRIDDEN") | ~Q(reason=""), name="override_has_a_reason"),
        ]

    def __str__(self) -> str:
        return f"{self.mirror_id} {self.status}"

    @property
    def opens(self) -> bool:
        """Return whether the run opened the gate when it ended; ``verification.rules`` decides whether it still does."""
        return self.status in {self.Status.GREEN, self.Status.OVERRIDDEN}
