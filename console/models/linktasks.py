"""The recurring tasks of a link as of their last run, and the source topics that auto-create could not mirror."""

from __future__ import annotations

from django.db import models

from console.models.links import ClusterLink
from linkengine.domain.linktasks import TaskName


class LinkTask(models.Model):
    """A recurring task of a link. Created by its first run or request; the status shown is derived from it.

    ``errors`` has the first errors of the last run, as ``{"code", "message"}``; ``error_count`` counts all.
    """

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="tasks")
    name = models.CharField(max_length=40, choices=[(task.value, task.value) for task in TaskName])
    started_at = models.DateTimeField(null=True)  # of the last run
    finished_at = models.DateTimeField(null=True)  # null during the first run
    succeeded_at = models.DateTimeField(null=True)  # end of the last run without an error
    failing_since = models.DateTimeField(null=True)  # first of the latest uninterrupted runs with errors
    next_run_at = models.DateTimeField(null=True)  # null: at once
    requested_at = models.DateTimeField(null=True)  # when a user requested a run
    requested_by = models.CharField(max_length=150, blank=True, default="")
    errors = models.JSONField(default=list, blank=True)
    error_count = models.PositiveIntegerField(default=0)
    summary = models.TextField(blank=True, default="")
    runs = models.PositiveBigIntegerField(default=0)
    failures = models.PositiveBigIntegerField(default=0)  # runs that ended with an error
    changes = models.PositiveBigIntegerField(default=0)  # things changed by all runs

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["link", "name"], name="link_task_is_unique")]

    def __str__(self) -> str:
        return self.name


class AutoCreateFailure(models.Model):
    """Why the last attempt to create a mirror topic automatically failed. Deleted with the cause."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="auto_create_failures")
    source_topic = models.CharField(max_length=249)
    code = models.CharField(max_length=60)
    message = models.TextField()
    since = models.DateTimeField()
    tried_at = models.DateTimeField()

    class Meta:
        ordering = ["source_topic"]
        constraints = [models.UniqueConstraint(fields=["link", "source_topic"], name="auto_create_failure_is_unique")]

    def __str__(self) -> str:
        return f"{self.source_topic}: {self.code}"
