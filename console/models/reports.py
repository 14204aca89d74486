"""Failover reports: a row per promotion or failover. A report outlives its mirror and its link."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.urls import reverse

from console.models.clusters import Cluster
from console.models.drills import Drill
from console.models.links import ClusterLink
from console.models.mirrors import MirrorTopic
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import StopReason


class StopReport(models.Model):
    """What a promotion or failover left behind; written in the transaction that sets the mirror to STOPPED.

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
        """Store the report; a new one gets the names of its mirror."""
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
