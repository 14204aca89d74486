"""Runs of the migration gate: a checklist for a mirror that is to be promoted."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from console.models.mirrors import MirrorTopic
from console.models.verification import VerifyRun


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
        """Return whether the run opened the gate when it ended. ``gatepolicies`` decide whether it still does."""
        return self.status in {self.Status.GREEN, self.Status.OVERRIDDEN}
