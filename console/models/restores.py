"""Truncate-and-restore of a topic: where it parted from its new source, what is set aside, and the file it is kept in."""

from __future__ import annotations

from typing import Any

from django.db import models

from console.models.mirrors import MirrorTopic
from linkengine.domain.restoring import CommonPart, RestorePoint


class RestoreRun(models.Model):
    """One restore of one topic; kept with the mirror, newest first.

    ``points`` holds one object per partition: ``partition``, ``start`` (first offset the topic held), ``end`` (its log end),
    ``common`` (first offset that is not common to both sides), ``other_start`` (first offset the other side held) and
    ``records`` (exported; null until they are).
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="restores")
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    points: Any = models.JSONField(default=list, blank=True)
    agreed_at = models.DateTimeField(null=True)  # points are known and will not change: nobody may write any more
    parts: Any = models.JSONField(default=list, blank=True)  # what proves the common part (``domain.restoring.CommonPart``)
    in_place = models.BooleanField(default=False)  # nothing diverged: the topic itself goes on
    diverged_topic_id = models.CharField(max_length=40, blank=True, default="")  # of the topic to be deleted
    source_topic_id = models.CharField(max_length=40, blank=True, default="")  # of the one that is mirrored in its place
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
        """Offsets that only this side held, over all partitions."""
        return sum(one.diverged for one in self.restore_points)

    @property
    def is_set_aside(self) -> bool:
        """Tell whether all that was apart is in the file, as it was when the topic went."""
        return all(one.get("records") is not None for one in self.points)

    @property
    def common_parts(self) -> tuple[CommonPart, ...]:
        """What proves the common part; nothing of a run whose points an earlier version has agreed."""
        return tuple(CommonPart.from_json(one) for one in self.parts)

    @property
    def restore_points(self) -> tuple[RestorePoint, ...]:
        """The points without what became of them."""
        names = ("partition", "start", "end", "common", "other_start")
        return tuple(RestorePoint(**{name: one[name] for name in names if name in one}) for one in self.points)
