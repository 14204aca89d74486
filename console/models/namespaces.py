"""Topic namespaces of a cluster: a prefix, whether it is reserved, and the link it is reserved for."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from console.models.clusters import Cluster
from console.models.links import ClusterLink


class Namespace(models.Model):
    """All topics of a cluster whose names begin with ``prefix``. If reserved, only its link creates topics in it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="namespaces")
    prefix = models.CharField(max_length=200, blank=True)  # "" means all topics except internal ones
    reserved = models.BooleanField(default=False)
    guarded = models.BooleanField(null=True)  # the cluster has the DENY CREATE ACL; null: no response from the cluster yet
    guard_problem = models.TextField(blank=True, default="")
    link = models.ForeignKey(ClusterLink, on_delete=models.SET_NULL, null=True, related_name="namespaces")  # reserved for it
    leader_prefix = models.CharField(max_length=200, blank=True, default="")  # of the namespace at the source
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    deletion_requested_at = models.DateTimeField(null=True)  # deleted once the cluster has deleted its ACL

    class Meta:
        ordering = ["prefix"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "prefix"], name="namespace_is_unique"),
            models.CheckConstraint(condition=Q(link=None) | Q(reserved=True), name="a_following_namespace_is_reserved"),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}*"

    @property
    def may_have_rule(self) -> bool:
        """Return whether the cluster may have the DENY CREATE ACL: it has, did not respond, or refused to delete it."""
        return self.guarded is not False or (not self.reserved and self.guard_problem != "")
