"""The ACLs of a link with their sync status."""

from __future__ import annotations

from django.db.models import Count, F, Q

from console.models import ClusterLink, SyncedAcl
from linkengine.domain.acls import AclStatus

Sample = tuple[dict[str, str], float]
_CONFLICTS = Count("pk", filter=Q(is_conflict=True))


def count_acls(*, link: ClusterLink) -> tuple[dict[AclStatus, int], int]:
    """Return the number of ACLs by status, and the number of conflicts."""
    rows = SyncedAcl.objects.filter(link=link).order_by().values_list("status")
    found = {status: (count, bad) for status, count, bad in rows.annotate(n=Count("pk"), bad=_CONFLICTS)}
    counts = {status: found[status][0] for status in AclStatus if status in found}
    return counts, sum(bad for _, bad in found.values())


def acl_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Return (name, type, help, samples) of each Prometheus metric. One query."""
    named = SyncedAcl.objects.order_by().values("status", cluster=F("link__destination__cluster_id"), link_name=F("link__name"))
    rows = list(named.annotate(count=Count("pk"), bad=_CONFLICTS))
    counts: list[Sample] = [
        ({"cluster": row["cluster"], "link": row["link_name"], "status": row["status"]}, row["count"]) for row in rows
    ]
    conflicts: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["cluster"], row["link_name"])
        conflicts[key] = conflicts.get(key, 0) + row["bad"]
    conflict_samples: list[Sample] = [
        ({"cluster": cluster, "link": link}, count) for (cluster, link), count in conflicts.items()
    ]
    return [
        ("clusterlink_acls", "gauge", "ACLs of the source by sync status.", counts),
        (
            "clusterlink_acl_conflicts",
            "gauge",
            "ACLs that repeat or contradict a local ACL or one of another link.",
            conflict_samples,
        ),
    ]
