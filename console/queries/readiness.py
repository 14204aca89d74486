"""Whether a link could be failed over now, from stored rows and the current progress. The clusters are not contacted."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, FilteredRelation, Min, OuterRef, Q, QuerySet, Subquery

from console.mirrors import progress
from console.models import ClusterLink, Drill, MirrorTopic, SourceTopic, StateTransitionError, VerifiedRange
from console.models.mirrors import RECORDS_DIFFER
from console.queries.figures import Figures, figures_of
from console.queries.health import LinkHealth, health_of_link
from linkengine.domain.errors import ErrorCode
from linkengine.domain.failover import Readiness, StoredFacts, readiness
from linkengine.domain.groups import GroupStatus
from linkengine.domain.linkconfigs import LINK_CONFIGS
from linkengine.domain.linktasks import TASKS, TaskName

_OVER = (Drill.Status.PASSED, Drill.Status.FAILED)
_RIGHTS = ErrorCode.AUTHORIZATION_ERROR
_NOT_TO_SYNC = (GroupStatus.EXCLUDED, GroupStatus.NOT_LISTED, GroupStatus.NO_MIRROR_TOPIC, GroupStatus.UNSUPPORTED_TYPE)
_SYNC_OFFSETS = TASKS[TaskName.CONSUMER_OFFSETS].enable_config


def link_readiness(*, link: ClusterLink, now: datetime) -> Readiness:
    """Return the readiness of a link. The caller has checked the permission on the whole link. Six queries."""
    return readiness_with_health(link=link, now=now)[0]


def readiness_with_health(*, link: ClusterLink, now: datetime) -> tuple[Readiness, LinkHealth | None]:
    """Return the readiness of a link and the health from which it was derived, None without mirrors. Six queries.

    That health is of the mirrors that are neither stopped nor being deleted.
    """
    mirrors = link.mirrors.listed().unstopped().filter(deletion_requested_at=None)
    current = progress.current(mirrors, now=now)
    if not current:
        return readiness(StoredFacts(mirrors=0)), None
    tasks = {task.name: task for task in link.tasks.all()}
    failing = [task for task in tasks.values() if task.error_count]
    health = health_of_link(link, mirrors, now=now, failing=failing, shows_tasks=True, current=current)
    lag = Figures()
    for mirror in current:
        figures_of(mirror.partitions, now=now, into=lag)
    lag.add_unseen(sum(not mirror.partitions for mirror in current))
    drill = link.drills.filter(status__in=_OVER).first()
    drilled = set(drill.topics if drill else ())
    found = _of_mirrors(mirrors)
    refused = sum(error.get("code") == _RIGHTS for task in failing for error in task.errors)
    offsets = tasks.get(TaskName.CONSUMER_OFFSETS)
    stored = StoredFacts(
        mirrors=len(current),
        health=health.verdict.health,
        drill_passed=drill.status == Drill.Status.PASSED if drill else None,
        drill_age_ms=_age_ms(drill.finished_at if drill else None, now),
        not_drilled=sum(mirror.name not in drilled for mirror in current),
        differing=found["differing"],
        never_compared=len(current) - found["compared"],
        compared_age_ms=_age_ms(found["oldest_comparison"], now),
        source_reached=link.probed_at is not None,
        missing_rights=found["refused"] + refused + (link.error_code == _RIGHTS),
        **_groups(link),
        groups_age_ms=_age_ms(offsets.succeeded_at if offsets else None, now),
        lag_ms=lag.oldest_ms(now),
        retention_ms=_retention_ms(found, len(current)),
    )
    return readiness(stored), health


def _of_mirrors(mirrors: QuerySet[MirrorTopic]) -> dict[str, Any]:
    """Return counts and extremes over mirrors. One query."""
    errors = StateTransitionError.objects.filter(mirror=OuterRef("pk"))
    topic = SourceTopic.objects.filter(link=OuterRef("link"), name=OuterRef("source_topic"))
    ranges = VerifiedRange.objects.filter(mirror=OuterRef("pk")).order_by("-verified_at")
    annotated = mirrors.order_by().annotate(
        compared_at=Subquery(ranges.values("verified_at")[:1]),
        retention=Subquery(topic.values("retention_ms")[:1]),
        differs=Exists(errors.filter(code=RECORDS_DIFFER)),
        lacks_right=Exists(errors.filter(code=_RIGHTS)),
    )
    return annotated.aggregate(
        compared=Count("compared_at"),
        oldest_comparison=Min("compared_at"),
        differing=Count("pk", filter=Q(differs=True)),
        refused=Count("pk", filter=Q(lacks_right=True) | Q(error_code=_RIGHTS)),
        with_retention=Count("retention"),
        shortest_retention=Min("retention", filter=Q(retention__gte=0)),
    )


def _groups(link: ClusterLink) -> dict[str, Any]:
    """Return whether consumer offsets are synced, and the numbers of groups to sync and of those with errors. One query."""
    enabled = FilteredRelation("configs", condition=Q(configs__name=_SYNC_OFFSETS))
    to_sync, failed = ~Q(groups__status__in=_NOT_TO_SYNC), Q(groups__status=GroupStatus.FAILED)
    links = ClusterLink.objects.filter(pk=link.pk).annotate(enabled=enabled).order_by().values("enabled__value")
    found = links.annotate(to_sync=Count("groups", filter=to_sync), failed=Count("groups", filter=failed)).get()
    if (found["enabled__value"] or LINK_CONFIGS[_SYNC_OFFSETS].default) != "true":
        return {"groups_synced": False}
    return {"groups_synced": True, "groups": found["to_sync"], "groups_failing": found["failed"]}


def _retention_ms(found: dict[str, Any], mirrors: int) -> int | None:
    """Return the shortest retention of the source topics; -1 if all are unlimited, None if one is unknown."""
    if found["with_retention"] < mirrors:
        return None
    shortest: int | None = found["shortest_retention"]
    return -1 if shortest is None else shortest


def _age_ms(at: datetime | None, now: datetime) -> int | None:
    return None if at is None else int((now - at).total_seconds() * 1000)
