"""Requests for a second approver."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.urls import reverse

from console.models.links import ClusterLink


class ApprovalRequestQuerySet(models.QuerySet["ApprovalRequest"]):
    """Approval requests."""

    def in_force(self, now: datetime) -> Self:
        """Return those that are approved and have not expired."""
        return self.filter(status=ApprovalRequest.Status.APPROVED, expires_at__gt=now)


class ApprovalRequest(models.Model):
    """A user asks that another user approves an operation on topics of a link.

    An approval lets the requester carry out the operation on these topics until ``expires_at``. The operation itself is
    requested afterwards, with its own confirmation and checks.
    """

    class Status(models.TextChoices):
        REQUESTED = "REQUESTED"
        APPROVED = "APPROVED"
        REJECTED = "REJECTED"
        WITHDRAWN = "WITHDRAWN"

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="approval_requests")
    operation = models.CharField(max_length=30)  # a MirrorEvent
    topics = models.JSONField(default=list)  # names of mirror topics; empty: all of the link
    reason = models.CharField(max_length=500)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="approval_requests"
    )  # who asks, and may carry it out
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()  # of the request, and then of the approval
    status = models.CharField(max_length=10, choices=Status, default=Status.REQUESTED)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True)
    decision_reason = models.CharField(max_length=500, blank=True, default="")
    objects = ApprovalRequestQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(status="APPROVED") | Q(decided_by=None) | ~Q(decided_by=F("user")),
                name="nobody_approves_own_requests",
            )
        ]

    def __str__(self) -> str:
        return f"{self.operation} on {self.link_id}"

    def get_absolute_url(self) -> str:
        """Return the URL of its page."""
        return reverse("pages:approval", args=(self.pk,))

    def covers(self, name: str) -> bool:
        """Return whether the request is for the mirror topic of this name."""
        return not self.topics or name in self.topics
