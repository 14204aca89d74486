"""Consumer groups of a link with their sync status, and the offsets that promotions and failovers clamped."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count, F

from console.models import ClampedOffset, ClusterLink, GroupOffset, MirrorTopic, SyncedGroup
from linkengine.domain.groups import GroupStatus

Sample = tuple[dict[str, str], float]
# statuses that need attention first
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


def offsets_of(groups: Sequence[SyncedGroup]) -> dict[int, list[GroupOffset]]:
    """Return the offsets of these groups by primary key of the group. One query."""
    offsets: dict[int, list[GroupOffset]] = {}
    rows = GroupOffset.objects.filter(group__in=groups).select_related("mirror")
    for row in rows.order_by("mirror__name", "partition"):
        offsets.setdefault(row.group_id, []).append(row)
    return offsets


def count_groups(*, link: ClusterLink) -> dict[GroupStatus, int]:
    """Count the groups of a link by status, those that need attention first. Statuses without groups are omitted."""
    rows = SyncedGroup.objects.filter(link=link).order_by().values_list("status").annotate(count=Count("pk"))
    counts = dict(rows)
    return {status: counts[status] for status in _ORDER if status in counts}


def list_clamped(*, mirror: MirrorTopic, limit: int) -> list[ClampedOffset]:
    """Return the offsets that were clamped to the end of the mirror, those of the newest stop first."""
    return list(ClampedOffset.objects.filter(mirror=mirror).order_by("-stopping_since", "group", "partition")[:limit])


def count_clamped(*, mirror: MirrorTopic) -> int:
    """Count all clamped offsets of the mirror."""
    return ClampedOffset.objects.filter(mirror=mirror).count()


def group_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Return (name, type, help, samples) of each Prometheus metric. Two queries."""
    groups = (
        SyncedGroup.objects.order_by()
        .values("status", cluster=F("link__destination__cluster_id"), link_name=F("link__name"))
        .annotate(count=Count("pk"))
    )
    clamped = (
        ClampedOffset.objects.filter(mirror__isnull=False, mirror__drill=None)
        .order_by()
        .values(cluster=F("mirror__link__destination__cluster_id"), link=F("mirror__link__name"))
        .annotate(count=Count("pk"))
    )
    by_status = [
        ({"cluster": row["cluster"], "link": row["link_name"], "status": row["status"]}, row["count"]) for row in groups
    ]
    by_link = [({"cluster": row["cluster"], "link": row["link"]}, row["count"]) for row in clamped]
    return [
        ("clusterlink_consumer_groups", "gauge", "Consumer groups of the source by sync status.", by_status),
        (
            "clusterlink_clamped_offsets",
            "gauge",
            "Consumer offsets clamped to the end of the mirror at a stop.",
            by_link,
        ),
    ]
