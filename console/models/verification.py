"""Verification runs, the ledger of verified ranges, the migration gate, failover drills and failover reports."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q
from django.urls import reverse

from console.models.clusters import Cluster
from console.models.fields import AnyTextField, KeyOfField
from console.models.links import ClusterLink
from console.models.mirrors import MirrorTopic
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import StopReason

# --- verification runs and verified ranges ----------------------------------------------------------------------------


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


# --- the migration gate -----------------------------------------------------------------------------------------------


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


# --- failover drills --------------------------------------------------------------------------------------------------
#
# Scratch copies of mirrors are failed over, checked and deleted.


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
    topics = models.JSONField(default=list)  # names of all mirrors of the drill, which copies them in batches
    rto_ms = models.BigIntegerField(null=True)  # from the failover until the last scratch copy was writable; slowest batch
    canceled_by = models.CharField(max_length=150, blank=True, default="")  # set while it still cleans up; "": not canceled
    problem = models.TextField(blank=True, default="")
    report = models.JSONField(default=list)  # of DrillRow as dicts; grows by batches
    groups = models.JSONField(default=list)  # of GroupRow as dicts

    class Meta:
        ordering = ["-requested_at", "-id"]

    def __str__(self) -> str:
        return f"{self.link_id} {self.status}"


# --- failover reports -------------------------------------------------------------------------------------------------
#
# A row per promotion or failover. A report outlives its mirror and its link.


class StopReport(models.Model):
    """The result of a promotion or failover; written in the transaction that sets the mirror to STOPPED.

    Unknown is null, never 0. The keys become null when their rows are deleted; the names stay, and permissions apply to them.
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.SET_NULL, null=True, related_name="stop_reports")
    link = models.ForeignKey(ClusterLink, on_delete=models.SET_NULL, null=True, related_name="stop_reports")
    destination = models.ForeignKey(Cluster, on_delete=models.SET_NULL, null=True, related_name="stop_reports")
    # Of a scratch copy; such reports are not listed, and are deleted with the drill.
    drill = models.ForeignKey(Drill, on_delete=models.CASCADE, null=True, related_name="stop_reports")
    mirror_name = models.CharField(max_length=249)
    source_topic = models.CharField(max_length=249, blank=True, default="")
    link_name = models.CharField(max_length=249)
    source_cluster_id = models.CharField(max_length=64, blank=True, default="")
    destination_cluster_id = models.CharField(max_length=64, blank=True, default="")
    reason = models.CharField(max_length=10, choices=[(r.value, r.value) for r in StopReason])
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    # Number of the operation on several topics that requested the stop. The report outlives it, too. Null: a single topic.
    operation_number = models.PositiveBigIntegerField(null=True, db_index=True)
    request_reason = models.TextField(blank=True, default="")  # entered by the user
    checklist = models.JSONField(default=list)  # of {"text", "confirmed"}, as the user left it
    approved_by = models.CharField(max_length=150, blank=True, default="")  # the second approver; "" if none was needed
    writable_at = models.DateTimeField()
    records_not_copied = models.BigIntegerField(null=True)  # as last seen at source_seen_at; an upper bound
    source_seen_at = models.DateTimeField(null=True)  # oldest of the last readings of the source, over all partitions
    rpo_ms = models.BigIntegerField(null=True)
    rto_ms = models.BigIntegerField()
    partitions = models.JSONField(default=list)  # of PartitionAtStop as dicts
    refused = models.JSONField(default=list)  # of RefusedStep as dicts, each with resolved_at (ISO 8601; null: still refused)

    class Meta:
        ordering = ["-writable_at", "-id"]

    def __str__(self) -> str:
        return f"{self.mirror_name} {self.reason} at {self.writable_at:%Y-%m-%d %H:%M:%S}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store the report; a new report gets the names of its mirror."""
        if self._state.adding or self.pk is None:
            self.keep_names()
        super().save(*args, **kwargs)

    def get_absolute_url(self) -> str:
        """Return the URL of the report's page."""
        return reverse("pages:report", args=(self.pk,))

    def keep_names(self) -> None:
        """Copy what identifies the mirror, its link and its clusters. ``bulk_create`` does not call ``save``."""
        if self.mirror is None:
            return
        link = self.mirror.link
        self.link, self.destination, self.drill_id = link, link.destination, self.mirror.drill_id
        self.mirror_name, self.source_topic = self.mirror.name, self.mirror.source_topic
        self.link_name, self.source_cluster_id = link.name, link.source_cluster_id
        self.destination_cluster_id = link.destination.cluster_id

    @property
    def unresolved(self) -> list[RefusedStep]:
        """Steps that the destination refused and no retry has resolved."""
        fields = ("name", "value", "code", "message")
        return [RefusedStep(**{name: row[name] for name in fields}) for row in self.refused if row["resolved_at"] is None]


class ClampedOffset(models.Model):
    """A group that was ahead of the mirrored records when its mirror was stopped. One row per stop, group and partition.

    The row stays with the failover report, which is written later in the same stop and outlives the mirror.
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.SET_NULL, null=True, related_name="clamped_offsets")
    report = models.ForeignKey(StopReport, on_delete=models.CASCADE, null=True, related_name="clamped")
    stopping_since = models.DateTimeField()  # identifies the stop
    group = AnyTextField()  # at the destination
    group_key = KeyOfField(of="group")
    partition = models.PositiveIntegerField()
    source_offset = models.BigIntegerField(null=True)  # as last seen
    before = models.BigIntegerField(null=True)  # at the destination; null: none, or it could not be read
    after = models.BigIntegerField(null=True)
    message = models.TextField(blank=True, default="")  # why it could not be moved
    at = models.DateTimeField()

    class Meta:
        ordering = ["group", "partition"]
        constraints = [
            models.UniqueConstraint(
                fields=["mirror", "stopping_since", "group_key", "partition"], name="offset_is_clamped_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.mirror_id}/{self.partition}"
