"""Runs of truncate-and-restore: where a topic diverged from its new source, and the file with the exported records."""

from __future__ import annotations

from typing import Any

from django.db import models

from console.models.mirrors import MirrorTopic
from linkengine.domain.mirrorjobs import CommonPart, RestorePoint


class RestoreRun(models.Model):
    """A restore of a topic; kept with the mirror, newest first.

    ``points`` has an object per partition: ``partition``, ``start`` (first offset the topic had), ``end`` (its log end),
    ``common`` (first offset that is not common to both sides), ``other_start`` (first offset the other side had) and
    ``records`` (exported; null until they are).
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="restores")
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    points: Any = models.JSONField(default=list, blank=True)
    agreed_at = models.DateTimeField(null=True)  # the points are known and final, since producers are kept out
    parts: Any = models.JSONField(default=list, blank=True)  # evidence of the common part (``domain.restoring.CommonPart``)
    in_place = models.BooleanField(default=False)  # nothing diverged: the topic itself is taken over
    diverged_topic_id = models.CharField(max_length=40, blank=True, default="")  # of the topic to be deleted
    source_topic_id = models.CharField(max_length=40, blank=True, default="")  # of the topic that is mirrored in its place
    export_name = models.CharField(max_length=200, blank=True, default="")  # in the export directory; "": nothing to export
    export_records = models.BigIntegerField(null=True)
    export_bytes = models.BigIntegerField(null=True)
    export_sha256 = models.CharField(max_length=64, blank=True, default="")
    exported_at = models.DateTimeField(null=True)  # the file is complete and on disk; only then the topic may be deleted
    doomed_at = models.DateTimeField(null=True)  # last decision to delete the diverged topic; not null: it may be deleted yet
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-requested_at", "-id"]

    def __str__(self) -> str:
        return f"restore {self.pk} of {self.mirror_id}"

    @property
    def messages_truncated(self) -> int:
        """Number of offsets that only this side had, over all partitions."""
        return sum(point.diverged for point in self.restore_points)

    @property
    def is_set_aside(self) -> bool:
        """Return whether the file has all diverged records as of the deletion of the topic."""
        return all(point.get("records") is not None for point in self.points)

    @property
    def common_parts(self) -> tuple[CommonPart, ...]:
        """What proves the common part; empty for a run whose points an earlier version agreed on."""
        return tuple(CommonPart.from_json(part) for part in self.parts)

    @property
    def restore_points(self) -> tuple[RestorePoint, ...]:
        """The points without the export counts."""
        names = ("partition", "start", "end", "common", "other_start")
        return tuple(RestorePoint(**{name: point[name] for name in names if name in point}) for point in self.points)
