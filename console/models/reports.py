"""Failover reports: a row per promotion or failover, kept while the mirror is listed."""

from __future__ import annotations

from django.db import models

from console.models.mirrors import MirrorTopic
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import StopReason


class StopReport(models.Model):
    """What a promotion or failover left behind; written in the transaction that sets the mirror to STOPPED.

    Unknown is null, never 0.
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="stop_reports")
    reason = models.CharField(max_length=10, choices=[(r.value, r.value) for r in StopReason])
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
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
        return f"{self.mirror_id} {self.reason} at {self.writable_at:%Y-%m-%d %H:%M:%S}"

    @property
    def unresolved(self) -> list[RefusedStep]:
        """Steps that the destination refused and no retry has resolved."""
        fields = ("name", "value", "code", "message")
        return [RefusedStep(**{name: row[name] for name in fields}) for row in self.refused if row["resolved_at"] is None]
