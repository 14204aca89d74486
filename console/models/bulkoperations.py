"""Operations on several mirror topics of a link, with a result per topic."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.urls import reverse

from console.models.links import ClusterLink


class BulkOperation(models.Model):
    """An operation on several mirror topics: who requested it, when, and with which options.

    ``operation`` is a ``MirrorEvent``, ``CREATE`` or ``VERIFY``. A worker checks the permissions of ``user`` for each topic, so
    a role that is revoked after the request no longer counts for the topics that are left.
    """

    CREATE, VERIFY = "create", "verify"

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="bulk_operations")
    operation = models.CharField(max_length=30)
    # Of mirrors to be created: replication_factor, start. Of a failover: reason, checklist ({"text", "confirmed"}).
    options = models.JSONField(default=dict)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="bulk_operations")
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    request_id = models.CharField(max_length=64, blank=True, default="")
    client_address = models.CharField(max_length=64, blank=True, default="")
    retry_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="retries")
    canceled_by = models.CharField(max_length=150, blank=True, default="")  # "" if it was not canceled
    finished_at = models.DateTimeField(null=True)  # no topic is waiting any more

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.link_id} {self.operation}"

    def get_absolute_url(self) -> str:
        """Return the URL of the operation's page."""
        return reverse("pages:operation", args=(self.pk,))


class BulkOperationTopic(models.Model):
    """A topic of a bulk operation: the mirror topic or, for ``CREATE``, the source topic."""

    class Status(models.TextChoices):
        WAITING = "WAITING"
        ACCEPTED = "ACCEPTED"  # as a request for this topic alone would be; the mirror's state shows what follows
        FAILED = "FAILED"
        CANCELED = "CANCELED"  # before it began

    operation = models.ForeignKey(BulkOperation, on_delete=models.CASCADE, related_name="topics")
    name = models.CharField(max_length=249)
    # The mirror that the confirmation showed, and its state then (``operations.seen_state``). A mirror that was added anew
    # under its name is another one.
    mirror_key = models.BigIntegerField(null=True)
    seen = models.CharField(max_length=80, blank=True, default="")
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING)
    error_code = models.CharField(max_length=60, blank=True, default="")
    message = models.TextField(blank=True, default="")
    done_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["operation", "name"], name="bulk_operation_names_a_topic_once")]

    def __str__(self) -> str:
        return f"{self.name} {self.status}"
