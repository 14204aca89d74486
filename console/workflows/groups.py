"""The recurring task ConsumerOffsetSync, and the check of a promotion that all consumer offsets are equal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import structlog
from django.db import DatabaseError
from django.db.models import Count
from django.utils import timezone

from console.mirrors.rules import syncs_offsets
from console.models import ClusterLink, MirrorTopic, SyncedGroup
from console.reconciling import groups, plans
from linkengine import jobs
from linkengine.domain.errors import ErrorCode
from linkengine.domain.groups import GroupReport, GroupStatus, Memory, shown
from linkengine.domain.linktasks import TaskError, TaskOutcome

_CODES = {GroupStatus.IN_USE: ErrorCode.CONSUMER_GROUP_IN_USE_ERROR, GroupStatus.FAILED: ErrorCode.INTERNAL_ERROR}
_FOLLOWED = (GroupStatus.SYNCED, GroupStatus.PARTLY_SYNCED)
_log = structlog.get_logger(__name__)


def follow_groups(link: ClusterLink) -> TaskOutcome:
    """Sync a batch of consumer groups. The errors returned are those of all groups, not only of the batch."""
    report = _run(link, groups.mirrors_of(link), strict=False)
    groups.store_report(link=link, report=report, whole=True, now=timezone.now())
    changes = sum(partition.written for group in report.groups for partition in group.partitions)
    return TaskOutcome(errors=_errors(link, report), summary=_summary(link), changes=changes, more=bool(report.next_after))


def group_blockers(mirror: MirrorTopic) -> dict[ErrorCode, str]:
    """Sync the offsets of the mirror for the last time, and return which groups are not equal yet."""
    if not syncs_offsets(mirror.link):
        return {}
    report = _run(mirror.link, [mirror], strict=True)
    try:
        groups.store_report(link=mirror.link, report=report, whole=False, now=timezone.now())
    except (DatabaseError, ValueError) as error:  # otherwise the promotion would wait without a reason shown
        _log.exception("groups.not_kept", mirror=mirror.name)
        return {ErrorCode.INTERNAL_ERROR: f"The state of the consumer groups cannot be stored: {error}"}
    if not groups.still_following(mirror.link, [mirror], strict=True):  # the report does not contain this
        message = (
            f"Topic '{mirror.name}' was failed over, has failed or is being deleted since its consumer groups were checked. "
            "Their offsets are not changed."
        )
        return {ErrorCode.WAITING_FOR_GROUPS: message}
    return dict(jobs.group_blockers(report))


def _run(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, strict: bool) -> GroupReport:
    """Sync groups: a batch over all mirrors of the link, or (``strict``) all groups of the mirror that is to be promoted."""
    rows = {mirror.name: mirror for mirror in mirrors}

    def recall(names: Sequence[str]) -> Mapping[str, Memory]:
        return groups.recall(link, names, now=timezone.now())

    def following(topics: Collection[str]) -> Collection[str]:
        return groups.still_following(link, [rows[topic] for topic in topics], strict=strict)

    return jobs.sync_groups(
        source=plans.source_address(link),
        destination=link.destination.address,
        sync=groups.sync_of(link, mirrors, strict=strict, now=timezone.now()),
        recall=recall,
        following=following,
    )


def _errors(link: ClusterLink, report: GroupReport) -> tuple[TaskError, ...]:
    rows = SyncedGroup.objects.filter(link=link, status__in=_CODES)
    errors = [TaskError(code=_CODES[GroupStatus(row.status)], message=f"{shown(row.name)}: {row.message}") for row in rows]
    if report.incomplete:
        message = f"Some consumer groups of the source cannot be synced. {report.incomplete}"
        errors.insert(0, TaskError(code=ErrorCode.TIMEOUT_ERROR, message=message))
    return tuple(errors)


def _summary(link: ClusterLink) -> str:
    counts = SyncedGroup.objects.filter(link=link).order_by().values_list("status").annotate(count=Count("pk"))
    by_status = dict(counts)
    followed = sum(by_status.get(status, 0) for status in _FOLLOWED)
    waiting = by_status.get(GroupStatus.WAITING, 0)
    skipped = sum(by_status.values()) - followed - waiting
    later = f", {waiting} wait for the next run" if waiting else ""
    return f"Groups synced: {followed}; skipped: {skipped}{later}."
