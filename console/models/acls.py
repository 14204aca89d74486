"""The ledger of ACL sync: the ACLs of the source that a link has created on the destination, and why it skipped others."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q

from console.models.links import ClusterLink
from linkengine.domain.acls import AclStatus


class SyncedAclQuerySet(models.QuerySet["SyncedAcl"]):
    """ACLs of a link's source."""

    def matching(self, *, status: str = "", conflicts: bool = False, search: str = "") -> Self:
        """Return those with a status, that conflict, and with a text in resource or principal, as far as these are set."""
        acls = self.filter(status=status) if status else self
        if conflicts:
            acls = acls.filter(is_conflict=True)
        return acls.filter(Q(resource_name__icontains=search) | Q(principal__icontains=search)) if search else acls


class SyncedAcl(models.Model):
    """An ACL of the source and its status on the destination. Only ACLs that links created are ever deleted there."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="acls")
    resource_type = models.CharField(max_length=30)
    resource_name = models.CharField(max_length=500)
    pattern_type = models.CharField(max_length=20)
    principal = models.CharField(max_length=1000)
    host = models.CharField(max_length=255)
    operation = models.CharField(max_length=30)
    permission = models.CharField(max_length=10)
    status = models.CharField(max_length=20, choices=[(status.value, status.value) for status in AclStatus])
    message = models.TextField(blank=True, default="")
    is_conflict = models.BooleanField(default=False)  # a local ACL or another link has the same or the opposite ACL
    since = models.DateTimeField()  # in the ledger
    objects = SyncedAclQuerySet.as_manager()

    class Meta:
        ordering = ["resource_type", "resource_name", "principal", "operation", "permission"]
        constraints = [
            models.UniqueConstraint(
                fields=[
                    "link", "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission",
                ],
                name="acl_is_unique_on_its_link",
            )
        ]  # fmt: skip
        indexes = [models.Index(fields=["link"], condition=Q(is_conflict=True), name="acl_conflicts")]

    def __str__(self) -> str:
        return f"{self.permission} {self.operation} {self.resource_type} {self.resource_name} {self.principal}"
