"""Requests for a second approver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from django.conf import settings
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import JSONObject
from django.urls import reverse

from console.models.clusters import Cluster, Environment
from console.models.links import ClusterLink

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from console.models.mirrors import MirrorTopic


class ApprovalRequestQuerySet(models.QuerySet["ApprovalRequest"]):
    """Requests and approvals."""

    def waiting(self, now: datetime) -> Self:
        """Return the requests that are neither decided nor withdrawn, and have not expired."""
        return self.filter(status=ApprovalRequest.Status.REQUESTED, expires_at__gt=now)

    def as_json(self) -> Self:
        """Return a query of one value, for a subquery: the array of the requests that ``from_json`` creates again."""
        cluster = "link__destination"
        request = JSONObject(
            operation="operation",
            user_id="user_id",
            link="link__name",
            cluster=cluster,
            environment=f"{cluster}__environment",
            organization=f"{cluster}__environment__organization",
        )
        return self.order_by().annotate(json=AsArray(request)).values("json")  # type: ignore[return-value]

    @staticmethod
    def from_json(rows: Iterable[dict[str, Any]]) -> list[ApprovalRequest]:
        """Return requests of which only the requester, the operation and the place of the link are known."""
        found = []
        for row in rows:
            environment = Environment(pk=row["environment"], organization_id=row["organization"])
            link = ClusterLink(name=row["link"], destination=Cluster(pk=row["cluster"], environment=environment))
            found.append(ApprovalRequest(operation=row["operation"], user_id=row["user_id"], link=link))
        return found


class AsArray(Func):
    """All values of a column as a JSON array."""

    function = "JSON_GROUP_ARRAY"
    output_field = models.JSONField()

    def as_postgresql(self, compiler: Any, connection: Any) -> Any:
        return self.as_sql(compiler, connection, function="JSONB_AGG")


class ApprovalRequest(models.Model):
    """A request of a user that another user approves an operation on mirror topics of a link.

    An approval lets the requester carry out the operation on each of these mirror topics once, until ``expires_at``. The
    operation itself is requested afterwards, with its own confirmation and checks. What a request covers never changes: no
    field except the decision is updated, and mirrors that were created after the request are not covered, whatever their names.
    """

    class Status(models.TextChoices):
        REQUESTED = "REQUESTED"
        APPROVED = "APPROVED"
        REJECTED = "REJECTED"
        WITHDRAWN = "WITHDRAWN"

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="approval_requests")
    operation = models.CharField(max_length=30)  # a MirrorEvent
    topics = models.JSONField(default=list)  # names of mirror topics; empty: all that the link had at ``requested_at``
    reason = models.CharField(max_length=500)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="approval_requests"
    )  # the requester, who may carry it out
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()  # of the request, and then of the approval
    status = models.CharField(max_length=10, choices=Status, default=Status.REQUESTED)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True)
    decision_reason = models.CharField(max_length=500, blank=True, default="")

    objects = ApprovalRequestQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["expires_at"], condition=Q(status="REQUESTED"), name="waiting_requests")
        ]  # read by every page
        constraints = [
            models.CheckConstraint(
                condition=~Q(status="APPROVED") | Q(decided_by=None) | ~Q(decided_by=F("user")),
                name="approver_is_not_the_requester",
            )
        ]

    def __str__(self) -> str:
        return f"{self.operation} on {self.link_id}"

    def get_absolute_url(self) -> str:
        """Return the URL of its page."""
        return reverse("pages:approval", args=(self.pk,))

    @property
    def is_approved(self) -> bool:
        """Return whether a second user has approved it. It may have expired."""
        return self.status == self.Status.APPROVED

    def covers(self, mirror: MirrorTopic) -> bool:
        """Return whether the request is for this mirror topic, which has to be older than the request.

        A topic that is restored may have no row yet. Then only its name counts.
        """
        if mirror.pk is not None and mirror.created_at > self.requested_at:
            return False
        return not self.topics or mirror.name in self.topics
