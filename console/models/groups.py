"""Consumer groups of a link's source: their status on the destination, and what was done with their offsets."""

from __future__ import annotations

from django.db import models

from console.models.fields import AnyTextField, KeyOfField
from console.models.links import ClusterLink
from console.models.mirrors import MirrorTopic
from console.models.reports import StopReport
from linkengine.domain.groups import GroupStatus, OffsetOutcome


class SyncedGroup(models.Model):
    """A group that the source lists, synced or skipped. ``message`` says why, unless it is simply synced."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="groups")
    name = AnyTextField()  # Kafka allows 32,767 bytes of any characters, and none
    name_key = KeyOfField(of="name")
    destination_name = AnyTextField()
    kind = models.CharField(
        max_length=20, blank=True, default=""
    )  # classic, consumer, share, …; "": not reported by the broker
    status = models.CharField(max_length=20, choices=[(status.value, status.value) for status in GroupStatus])
    message = models.TextField(blank=True, default="")
    looked_at = models.DateTimeField(null=True)  # when a run over all mirrors last read its offsets
    listed_at = models.DateTimeField()  # when the source last listed it

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["link", "name_key"], name="group_is_unique_on_its_link")]
        indexes = [models.Index(fields=["link", "status"], name="group_by_status")]

    def __str__(self) -> str:
        return self.name


class GroupOffset(models.Model):
    """A partition of a mirror for a group. ``acted_*``: what the last successful run saw and left, for the next run."""

    group = models.ForeignKey(SyncedGroup, on_delete=models.CASCADE, related_name="offsets")
    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="group_offsets")
    partition = models.PositiveIntegerField()
    source_offset = models.BigIntegerField()
    destination_offset = models.BigIntegerField(null=True)  # null: the destination has none
    target = models.BigIntegerField()
    outcome = models.CharField(max_length=20, choices=[(outcome.value, outcome.value) for outcome in OffsetOutcome])
    message = models.TextField(blank=True, default="")
    acted_source = models.BigIntegerField(null=True)
    acted_destination = models.BigIntegerField(null=True)
    acted_at = models.DateTimeField(null=True)  # last commit by a run, or when both were first found equal

    class Meta:
        ordering = ["mirror", "partition"]
        constraints = [models.UniqueConstraint(fields=["group", "mirror", "partition"], name="group_offset_is_unique")]

    def __str__(self) -> str:
        return f"{self.group_id} {self.mirror_id}/{self.partition}"


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
