"""The pool of copy workers: a row per number, with its newest Spark job."""

from __future__ import annotations

from django.db import models


class CopyWorker(models.Model):
    """A number in the pool of copy workers, and its newest Spark job."""

    number = models.PositiveIntegerField(unique=True)
    worker_id = models.CharField(max_length=64, blank=True, default="")  # of the newest job; earlier ones are drained
    submitted_at = models.DateTimeField(null=True)
    left_at = models.DateTimeField(null=True)  # since when no thread waits for that job, while its worker is alive
    ended_at = models.DateTimeField(null=True)  # when that job returned; null: it has not
    error = models.TextField(blank=True, default="")  # why it ended or did not start
    trouble = models.TextField(blank=True, default="")  # why it sends no heartbeat now; "": it does, or will shortly
    failures = models.PositiveIntegerField(default=0)  # in a row
    retry_at = models.DateTimeField(null=True)  # no job is submitted before this time

    class Meta:
        ordering = ["number"]

    def __str__(self) -> str:
        return self.worker_id or f"copy worker {self.number}"
