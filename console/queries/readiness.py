"""Whether a link could be failed over now, from stored rows. The clusters are not contacted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet, Subquery

from console.mirrors.rules import syncs_offsets
from console.models import ClusterLink, Drill, MirrorPartition, MirrorTopic, SourceTopic, StateTransitionError, VerifiedRange
from console.models.mirrors import RECORDS_DIFFER
from console.queries.links import oldest_lag_ms
from linkengine.domain.errors import ErrorCode
from linkengine.domain.groups import GroupStatus
from linkengine.domain.linktasks import TaskName
from linkengine.domain.readiness import Readiness, StoredFacts, readiness
from linkengine.domain.states import MirrorState

_OVER = (Drill.Status.PASSED, Drill.Status.FAILED)
_RIGHTS = ErrorCode.AUTHORIZATION_ERROR
_NOT_TO_SYNC = (GroupStatus.EXCLUDED, GroupStatus.NOT_LISTED, GroupStatus.NO_MIRROR_TOPIC, GroupStatus.UNSUPPORTED_TYPE)


def link_readiness(*, link: ClusterLink, now: datetime) -> Readiness:
    """Return the readiness of a link. The caller has checked the permission on the whole link. Five queries at most."""
    mirrors = MirrorTopic.objects.filter(link=link, drill=None, deletion_requested_at=None).exclude(state=MirrorState.STOPPED)
    drill = link.drills.filter(status__in=_OVER).first()
    found = _of_mirrors(mirrors, drilled=drill.topics if drill else ())
    total = found["total"]
    if not total:
        return readiness(StoredFacts(mirrors=0))
    tasks = {task.name: task for task in link.tasks.all()}
    refused = sum(error.get("code") == _RIGHTS for task in tasks.values() for error in task.errors)
    offsets = tasks.get(TaskName.CONSUMER_OFFSETS)
    stored = StoredFacts(
        mirrors=total,
        drill_passed=drill.status == Drill.Status.PASSED if drill else None,
        drill_age_ms=_age_ms(drill.finished_at if drill else None, now),
        not_drilled=total - found["drilled"],
        differing=found["differing"],
        never_compared=total - found["compared"],
        compared_age_ms=_age_ms(found["oldest_comparison"], now),
        source_reached=link.probed_at is not None,
        missing_rights=found["refused"] + refused + (link.error_code == _RIGHTS),
        **_groups(link),
        groups_age_ms=_age_ms(offsets.succeeded_at if offsets else None, now),
        lag_ms=oldest_lag_ms(mirrors, unseen=found["unseen"], now=now),
        retention_ms=_retention_ms(found),
    )
    return readiness(stored)


def _of_mirrors(mirrors: QuerySet[MirrorTopic], *, drilled: Sequence[str]) -> dict[str, Any]:
    """Return counts and extremes over all mirrors. One query."""
    errors = StateTransitionError.objects.filter(mirror=OuterRef("pk"))
    topic = SourceTopic.objects.filter(link=OuterRef("link"), name=OuterRef("source_topic"))
    ranges = VerifiedRange.objects.filter(mirror=OuterRef("pk")).order_by("-verified_at")
    annotated = mirrors.order_by().annotate(
        compared_at=Subquery(ranges.values("verified_at")[:1]),
        retention=Subquery(topic.values("retention_ms")[:1]),
        differs=Exists(errors.filter(code=RECORDS_DIFFER)),
        lacks_right=Exists(errors.filter(code=_RIGHTS)),
        is_set_up=Exists(MirrorPartition.objects.filter(mirror=OuterRef("pk"))),
    )
    return annotated.aggregate(
        total=Count("pk"),
        drilled=Count("pk", filter=Q(name__in=[*drilled, ""])),  # an empty list would make Django return 0 for every column
        compared=Count("compared_at"),
        oldest_comparison=Min("compared_at"),
        differing=Count("pk", filter=Q(differs=True)),
        refused=Count("pk", filter=Q(lacks_right=True) | Q(error_code=_RIGHTS)),
        unseen=Count("pk", filter=Q(is_set_up=False)),
        with_retention=Count("retention"),
        shortest_retention=Min("retention", filter=Q(retention__gte=0)),
    )


def _groups(link: ClusterLink) -> dict[str, Any]:
    """Return the number of groups to sync, and of those with errors. No query if consumer offset sync is off."""
    if not syncs_offsets(link):
        return {"groups_synced": False}
    counts = link.groups.exclude(status__in=_NOT_TO_SYNC).aggregate(
        groups=Count("pk"), groups_failing=Count("pk", filter=Q(status=GroupStatus.FAILED))
    )
    return {"groups_synced": True, **counts}


def _retention_ms(found: dict[str, Any]) -> int | None:
    """Return the shortest retention of the source topics; -1 if all are unlimited, None if one is unknown."""
    if found["with_retention"] < found["total"]:
        return None
    shortest: int | None = found["shortest_retention"]
    return -1 if shortest is None else shortest


def _age_ms(at: datetime | None, now: datetime) -> int | None:
    return None if at is None else int((now - at).total_seconds() * 1000)
