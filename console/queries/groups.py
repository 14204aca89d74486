"""Consumer groups of a link: which follow, which do not and why; and what stops did to their offsets."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count, F, QuerySet

from console.models import ClampedOffset, ClusterLink, GroupOffset, MirrorTopic, SyncedGroup
from linkengine.domain.groups import GroupStatus

Sample = tuple[dict[str, str], float]
# what a person has to look at first
_ORDER = (
    GroupStatus.FAILED,
    GroupStatus.IN_USE,
    GroupStatus.PARTLY_SYNCED,
    GroupStatus.SYNCED,
    GroupStatus.WAITING,
    GroupStatus.NOT_LISTED,
    GroupStatus.NO_MIRROR_TOPIC,
    GroupStatus.UNSUPPORTED_TYPE,
    GroupStatus.EXCLUDED,
)


def list_groups(*, link: ClusterLink, status: str = "", search: str = "") -> QuerySet[SyncedGroup]:
    """List the groups that the source lists, by name; the link has been looked up with the rights of who asks."""
    groups = SyncedGroup.objects.filter(link=link)
    if status:
        groups = groups.filter(status=status)
    return groups.filter(name__icontains=search) if search else groups


def offsets_of(groups: Sequence[SyncedGroup]) -> dict[int, list[GroupOffset]]:
    """Answer the partitions of these groups by the group's key; one query."""
    found: dict[int, list[GroupOffset]] = {}
    rows = GroupOffset.objects.filter(group__in=groups).select_related("mirror")
    for row in rows.order_by("mirror__name", "partition"):
        found.setdefault(row.group_id, []).append(row)
    return found


def count_groups(*, link: ClusterLink) -> dict[GroupStatus, int]:
    """Count the groups of a link by status, the ones to look at first; statuses nobody has are left out."""
    rows = SyncedGroup.objects.filter(link=link).order_by().values_list("status").annotate(count=Count("pk"))
    counts = dict(rows)
    return {status: counts[status] for status in _ORDER if status in counts}


def list_clamped(*, mirror: MirrorTopic, limit: int) -> list[ClampedOffset]:
    """List the offsets that the end of the mirror has limited at its stops, the latest stop first."""
    return list(ClampedOffset.objects.filter(mirror=mirror).order_by("-stopping_since", "group", "partition")[:limit])


def count_clamped(*, mirror: MirrorTopic) -> int:
    """Count what ``list_clamped`` lists without a limit."""
    return ClampedOffset.objects.filter(mirror=mirror).count()


def group_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Answer (name, kind, text, samples) for Prometheus; two queries."""
    groups = (
        SyncedGroup.objects.order_by()
        .values("status", cluster=F("link__destination__cluster_id"), link_name=F("link__name"))
        .annotate(count=Count("pk"))
    )
    clamped = (
        ClampedOffset.objects.filter(mirror__drill=None)
        .order_by()
        .values(cluster=F("mirror__link__destination__cluster_id"), link=F("mirror__link__name"))
        .annotate(count=Count("pk"))
    )
    by_status = [
        ({"cluster": row["cluster"], "link": row["link_name"], "status": row["status"]}, row["count"]) for row in groups
    ]
    by_link = [({"cluster": row["cluster"], "link": row["link"]}, row["count"]) for row in clamped]
    return [
        ("clusterlink_consumer_groups", "gauge", "Consumer groups of the source by how they stand.", by_status),
        ("clusterlink_clamped_offsets", "gauge", "Offsets of groups that stops have limited to the mirror's end.", by_link),
    ]
