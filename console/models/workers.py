"""The copy workers that the pool has: one row per number, with the Spark job that has it now."""

from __future__ import annotations

from django.db import models


class CopyWorker(models.Model):
    """A place in the pool of copy workers, and its newest Spark job."""

    number = models.PositiveIntegerField(unique=True)
    worker_id = models.CharField(max_length=64, blank=True, default="")  # of the newest job; earlier ones are drained
    submitted_at = models.DateTimeField(null=True)
    left_at = models.DateTimeField(null=True)  # since when nobody waits for that job, though its worker lives
    ended_at = models.DateTimeField(null=True)  # when that job came back; null: it has not
    error = models.TextField(blank=True, default="")  # why it ended, or does not begin
    trouble = models.TextField(blank=True, default="")  # why it is not heard now; "": it is, or is about to be
    failures = models.PositiveIntegerField(default=0)  # in a row
    retry_at = models.DateTimeField(null=True)  # no job is submitted before

    class Meta:
        ordering = ["number"]

    def __str__(self) -> str:
        return self.worker_id or f"copy worker {self.number}"
