"""Which records of a topic came from where. Rows belong to the topic, so they outlive mirror and link."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from console.models.mirrors import MirrorTopic


class LineageRange(models.Model):
    """Offsets ``[start, end)`` of a partition of a topic that were copied from a topic of another cluster over a link.

    While the range is open (``closed_at`` null), the mirror is still copied and ``end`` is the last stored value; the mirror's
    own figures are newer (``queries.lineage``). Clusters and topics are stored by Kafka's names and ids, since the console's
    rows of them may be deleted before a query.
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.SET_NULL, null=True, related_name="lineage")
    cluster_id = models.CharField(max_length=64)
    topic = models.CharField(max_length=249)
    topic_id = models.CharField(max_length=40, blank=True, default="")
    partition = models.PositiveIntegerField()
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    origin_cluster_id = models.CharField(max_length=64)
    origin_topic = models.CharField(max_length=249)
    origin_topic_id = models.CharField(max_length=40, blank=True, default="")
    link_name = models.CharField(max_length=249)
    link_uuid = models.UUIDField()
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["partition", "start", "pk"]
        constraints = [
            models.CheckConstraint(condition=Q(start__gte=0) & Q(start__lte=F("end")), name="lineage_is_a_range"),
            models.UniqueConstraint(
                fields=["mirror", "partition"], condition=Q(closed_at__isnull=True), name="lineage_is_open_once"
            ),
        ]
        indexes = [models.Index(fields=["cluster_id", "topic", "topic_id"], name="lineage_by_topic")]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end}) from {self.origin_cluster_id}"
