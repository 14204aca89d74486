"""Access: role bindings, API keys and audit events."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from console.models.clusters import Cluster, Environment, Organization


def _once_at(scope: str) -> models.UniqueConstraint:
    """Return the constraint that a role is granted once per place of this level; a common one would need equal NULLs."""
    return models.UniqueConstraint(
        fields=["user", "role", scope, "resource_type", "resource_name", "prefixed"],
        condition=Q(**{f"{scope}__isnull": False}),
        name=f"binding_of_{scope}_is_unique",
        violation_error_message="The user has this role there already.",
    )


class RoleBinding(models.Model):
    """Grants a principal a role on a node of the tree organization > environment > cluster > resource.

    Bindings are added and removed, never edited. Exactly one of ``organization``, ``environment`` and ``cluster`` is set;
    ``resource_type`` and ``resource_name`` narrow a cluster binding down to topics, groups or links.
    """

    class Role(models.TextChoices):
        ORGANIZATION_ADMIN = "OrganizationAdmin"
        ENVIRONMENT_ADMIN = "EnvironmentAdmin"
        CLOUD_CLUSTER_ADMIN = "CloudClusterAdmin"
        RESOURCE_OWNER = "ResourceOwner"
        DEVELOPER_MANAGE = "DeveloperManage"
        DEVELOPER_READ = "DeveloperRead"

    class ResourceType(models.TextChoices):
        CLUSTER = "Cluster"
        TOPIC = "Topic"
        GROUP = "Group"
        CLUSTER_LINK = "ClusterLink"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="role_bindings")
    role = models.CharField(max_length=30, choices=Role)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, null=True, blank=True)
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, null=True, blank=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True)
    resource_type = models.CharField(max_length=20, choices=ResourceType, blank=True, default="")
    resource_name = models.CharField(max_length=249, blank=True, default="")
    prefixed = models.BooleanField(default=False)  # resource_name is a prefix
    granted_at = models.DateTimeField()
    granted_by = models.CharField(max_length=150)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=(
                    Q(organization__isnull=False, environment__isnull=True, cluster__isnull=True)
                    | Q(organization__isnull=True, environment__isnull=False, cluster__isnull=True)
                    | Q(organization__isnull=True, environment__isnull=True, cluster__isnull=False)
                ),
                name="binding_has_one_scope",
            ),
            models.CheckConstraint(
                condition=Q(resource_type="") | Q(cluster__isnull=False), name="only_cluster_bindings_name_resources"
            ),
            _once_at("organization"),
            _once_at("environment"),
            _once_at("cluster"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.role}"


class ApiKey(models.Model):
    """An API key of a user for REST (HTTP Basic: key and secret). The secret is stored as a hash and shown once."""

    key = models.CharField(max_length=32, unique=True)
    secret_hash = models.CharField(max_length=128)  # SHA-256 of a 256-bit random secret, hex
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys")
    description = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.key


class AuditEventQuerySet(models.QuerySet["AuditEvent"]):
    """Audit events."""

    def matching(
        self,
        *,
        search: str = "",
        action: str = "",
        result: str = "",
        resource: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> Self:
        """Return those that match every filter that is set. ``resource`` includes the resources below it.

        ``start`` is the earliest time; events at ``end`` or later are not included.
        """
        events = self
        if search:
            events = events.filter(Q(actor__icontains=search) | Q(resource__icontains=search) | Q(action__icontains=search))
        if action:
            events = events.filter(action=action)
        if result:
            events = events.filter(result=result)
        if resource:
            events = events.filter(Q(resource=resource) | Q(resource__startswith=f"{resource}/"))
        if start:
            events = events.filter(at__gte=start)
        if end:
            events = events.filter(at__lt=end)
        return events

    def actions(self) -> list[str]:
        """Return their distinct actions. One query."""
        return sorted(self.order_by().values_list("action", flat=True).distinct())


class AuditEvent(models.Model):
    """An action of a user or of the engine on a resource, with its result; written in the transaction of the change.

    Never edited, with one exception: a task that changes a cluster adds its row with the result UNKNOWN before it acts and
    completes it afterwards (``console.audit.carried_out``). A row stays UNKNOWN if the worker crashed in between.
    """

    class Result(models.TextChoices):
        SUCCESS = "SUCCESS"
        DENIED = "DENIED"
        FAILURE = "FAILURE"
        UNKNOWN = "UNKNOWN"

    at = models.DateTimeField(db_index=True)
    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=60)  # such as CreateClusterLink
    resource = models.CharField(max_length=600)  # crn-like path: cluster/<id>/link/<name>/mirror/<topic>
    result = models.CharField(max_length=10, choices=Result)
    detail = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, blank=True, default="")
    client_address = models.CharField(max_length=64, blank=True, default="")
    change_id = models.CharField(max_length=32, null=True, blank=True, unique=True)
    objects = AuditEventQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.resource}"
