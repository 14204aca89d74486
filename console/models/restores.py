"""Truncate-and-restore of a topic: where it parted from its new source, what is set aside, and the file it is kept in."""

from __future__ import annotations

from typing import Any

from django.db import models

from console.models.mirrors import MirrorTopic


class RestoreRun(models.Model):
    """One restore of one topic; kept with the mirror, newest first.

    ``points`` holds one object per partition: ``partition``, ``start`` (first offset the topic held), ``end`` (its log end),
    ``common`` (first offset that is not common to both sides) and ``records`` (exported; null until they are).
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="restores")
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    points: Any = models.JSONField(default=list, blank=True)
    agreed_at = models.DateTimeField(null=True)  # points are known and will not change: nobody may write any more
    in_place = models.BooleanField(default=False)  # nothing diverged: the topic itself goes on
    diverged_topic_id = models.CharField(max_length=40, blank=True, default="")  # of the topic to be deleted
    export_name = models.CharField(max_length=200, blank=True, default="")  # file in the export directory; "": nothing to keep
    export_records = models.BigIntegerField(null=True)
    export_bytes = models.BigIntegerField(null=True)
    export_sha256 = models.CharField(max_length=64, blank=True, default="")
    exported_at = models.DateTimeField(null=True)  # the file is complete and on disk; only then the topic may be deleted
    doomed_at = models.DateTimeField(null=True)  # from here on the diverged topic is deleted, whatever else happens
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-requested_at", "-id"]

    def __str__(self) -> str:
        return f"restore {self.pk} of {self.mirror_id}"

    @property
    def messages_truncated(self) -> int:
        """Offsets beyond the point, over all partitions."""
        return sum(max(0, one["end"] - max(one["start"], one["common"])) for one in self.points)
