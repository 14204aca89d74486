"""Whether a link could be failed over now, from stored rows and the current progress; the clusters are not contacted.

``linkengine.domain.failover`` has the rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import BigIntegerField, Case, Count, Exists, FilteredRelation, Min, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.db.models.lookups import Regex

from console.links.health_queries import MirrorHealth, Observation, status_of_link
from console.links.rules import SYNC_OFFSETS, is_on
from console.models import (
    ClusterLink,
    Drill,
    MirrorPartition,
    MirrorTopic,
    SourceTopic,
    StateTransitionError,
    VerifiedRange,
    VerifyRun,
)
from console.models.mirrors import RECORDS_DIFFER
from linkengine.domain.errors import ErrorCode
from linkengine.domain.failover import RETENTION_SHARE, VERIFIED_VALID_MS, Readiness, StoredFacts, readiness
from linkengine.domain.groups import GroupStatus
from linkengine.domain.linktasks import TaskName

_OVER = (Drill.Status.PASSED, Drill.Status.FAILED)
_RIGHTS = ErrorCode.AUTHORIZATION_ERROR
# as last read from the source: None if the link does not sync it, if it is unlimited (-1), or if it is not a number
_RETENTION_BYTES = KeyTextTransform("retention.bytes", "source_configs")
_MOST_BYTES = Case(When(Regex(_RETENTION_BYTES, r"^\d{1,18}$"), then=Cast(_RETENTION_BYTES, BigIntegerField())))
_NOT_TO_SYNC = (GroupStatus.EXCLUDED, GroupStatus.NOT_LISTED, GroupStatus.NO_MIRROR_TOPIC, GroupStatus.UNSUPPORTED_TYPE)


def link_readiness(link: ClusterLink, seen: Observation, *, now: datetime) -> Readiness:
    """Return the readiness of a link, of which ``seen`` is the whole state: of the mirrors that a failover would stop.

    Four queries, none without mirrors; one more if mirrors are verified only in part, and one if sources have a retention by
    size.
    """
    mirrors = seen.stoppable
    if not mirrors:
        return readiness(StoredFacts(mirrors=0))
    health = status_of_link(link, mirrors, failing_tasks=len(seen.failing))
    drill = link.drills.filter(status__in=_OVER).first()
    drilled = set(drill.topics if drill else ())
    found = _of_mirrors(link.mirrors.listed().stoppable())
    refused = sum(error.get("code") == _RIGHTS for task in seen.failing for error in task.errors)
    groups, synced_at = _groups(link)
    ledger = _verified_ranges(link)
    beyond_size, unknown_size = _compared_sizes(link, seen) if found["size_limited"] else (0, 0)
    stored = StoredFacts(
        mirrors=len(mirrors),
        health=health.health,
        drill_passed=drill.status == Drill.Status.PASSED if drill else None,
        drill_age_ms=_known_age_ms(drill.finished_at if drill else None, now),
        not_drilled=sum(mirror.name not in drilled for mirror in mirrors),
        differing=found["differing"],
        never_compared=found["mirrors"] - found["compared"],
        partly_verified=_partly_verified(link, seen, ledger, now=now),
        compared_age_ms=_known_age_ms(found["oldest_comparison"], now),
        source_reached=link.probed_at is not None,
        missing_rights=found["refused"] + refused + (link.error_code == _RIGHTS),
        **groups,
        groups_age_ms=_known_age_ms(synced_at, now),
        lag_ms=seen.stoppable_total.oldest_ms(now),
        retention_ms=_retention_ms(found),
        size_limited=found["size_limited"],
        beyond_size=beyond_size,
        unknown_size=unknown_size,
    )
    return readiness(stored)


def _of_mirrors(mirrors: QuerySet[MirrorTopic]) -> dict[str, Any]:
    """Return counts and extremes over mirrors. One query."""
    errors = StateTransitionError.objects.filter(mirror=OuterRef("pk"))
    topic = SourceTopic.objects.filter(link=OuterRef("link"), name=OuterRef("source_topic"))
    ranges = VerifiedRange.objects.filter(mirror=OuterRef("pk")).order_by("-verified_at")
    annotated = mirrors.order_by().annotate(
        compared_at=Subquery(ranges.values("verified_at")[:1]),
        retention=Subquery(topic.values("retention_ms")[:1]),
        most_bytes=_MOST_BYTES,
        differs=Exists(errors.filter(code=RECORDS_DIFFER)),
        lacks_right=Exists(errors.filter(code=_RIGHTS)),
    )
    return annotated.aggregate(
        mirrors=Count("pk"),
        compared=Count("compared_at"),
        oldest_comparison=Min("compared_at"),
        differing=Count("pk", filter=Q(differs=True)),
        refused=Count("pk", filter=Q(lacks_right=True) | Q(error_code=_RIGHTS)),
        with_retention=Count("retention"),
        shortest_retention=Min("retention", filter=Q(retention__gte=0)),
        size_limited=Count("most_bytes"),
    )


def _compared_sizes(link: ClusterLink, seen: Observation) -> tuple[int, int]:
    """Return how many mirrors have a lag not below half of their source's ``retention.bytes``, and of how many it is unknown.

    The limit counts per partition. One query.
    """
    limited = link.mirrors.listed().stoppable().annotate(most_bytes=_MOST_BYTES).filter(most_bytes__isnull=False)
    lags = {
        pk: ([row.lag_bytes for row in seen.partitions.get(pk, ())], most)
        for pk, most in limited.order_by().values_list("pk", "most_bytes")
    }
    unknown = {pk for pk, (sizes, _) in lags.items() if not sizes or None in sizes}
    beyond = sum(any(size and size * RETENTION_SHARE >= most for size in sizes) for sizes, most in lags.values())
    return beyond, len(unknown)


# Ranges ``(start, end)`` that were found equal, by primary key of the mirror and partition. They do not overlap.
_Ledger = Mapping[tuple[int, int], Sequence[tuple[int, int]]]


def _verified_ranges(link: ClusterLink) -> _Ledger:
    """Return the verified ranges of all mirrors of a link. One query."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    rows = VerifiedRange.objects.filter(mirror__link=link, differences=0).order_by()
    for pk, partition, start, end in rows.values_list("mirror", "partition", "start", "end"):
        found[pk, partition].append((start, end))
    return found


def _partly_verified(link: ClusterLink, seen: Observation, ledger: _Ledger, *, now: datetime) -> int:
    """Return how many of the mirrors that were compared are verified only in part. One query, none if there are none.

    The records that were copied last are always still to be compared. A mirror is verified if the next run of continuous
    verification would compare all that is left, or if a run of the whole mirror found no difference recently and the ledger
    still has what it compared.
    """
    most, compared = int(link.config("verify.max.records.per.run") or 0), {pk for pk, _ in ledger}
    rest = {mirror.pk for mirror in seen.stoppable if mirror.pk in compared and not _is_verified(mirror, seen, ledger, most)}
    if not rest:
        return 0
    since = now - timedelta(milliseconds=VERIFIED_VALID_MS)
    runs = VerifyRun.objects.filter(mirror__in=rest, status=VerifyRun.Status.EQUAL, finished_at__range=(since, now))
    for pk, ranges in runs.order_by("pk").values_list("mirror", "ranges"):
        ends = {partition: end for partition, _, end in ranges}
        if ends and _unverified(pk, seen.partitions.get(pk, ()), ledger, ends=ends) == 0:
            rest.discard(pk)
    return len(rest)


def _is_verified(mirror: MirrorHealth, seen: Observation, ledger: _Ledger, most: int) -> bool:
    rows = seen.partitions.get(mirror.pk, ())
    unverified = _unverified(mirror.pk, rows, ledger)
    return len(rows) == mirror.partitions and unverified is not None and unverified <= most


def _unverified(
    pk: int, rows: Iterable[MirrorPartition], ledger: _Ledger, *, ends: Mapping[int, int] | None = None
) -> int | None:
    """Return how many offsets of a mirror, or of those below ``ends``, are not verified; None if its bounds are unknown."""
    total = 0
    for row in rows:
        if row.mirror_start is None or row.mirror_end is None:
            return None
        end = row.mirror_end if ends is None else min(row.mirror_end, ends.get(row.partition, 0))
        start = min(max(row.mirror_start, row.source_start or 0), end)
        known = ledger.get((pk, row.partition), ())
        total += end - start - sum(max(0, min(high, end) - max(low, start)) for low, high in known)
    return total


def _groups(link: ClusterLink) -> tuple[dict[str, Any], datetime | None]:
    """Return whether consumer offsets are synced, the numbers of groups to sync and of those with errors, and the last success.

    One query.
    """
    enabled = FilteredRelation("configs", condition=Q(configs__name=SYNC_OFFSETS))
    offsets = FilteredRelation("tasks", condition=Q(tasks__name=TaskName.CONSUMER_OFFSETS))
    to_sync, failed = ~Q(groups__status__in=_NOT_TO_SYNC), Q(groups__status=GroupStatus.FAILED)
    links = ClusterLink.objects.filter(pk=link.pk).annotate(enabled=enabled, offsets=offsets).order_by()
    grouped = links.values("enabled__value", "offsets__succeeded_at")
    found = grouped.annotate(to_sync=Count("groups", filter=to_sync), failed=Count("groups", filter=failed)).get()
    synced_at: datetime | None = found["offsets__succeeded_at"]
    if not is_on(SYNC_OFFSETS, found["enabled__value"]):
        return {"groups_synced": False}, synced_at
    return {"groups_synced": True, "groups": found["to_sync"], "groups_failing": found["failed"]}, synced_at


def _retention_ms(found: dict[str, Any]) -> int | None:
    """Return the shortest retention of the source topics; -1 if all are unlimited, None if any is unknown."""
    if found["with_retention"] < found["mirrors"]:
        return None
    shortest: int | None = found["shortest_retention"]
    return -1 if shortest is None else shortest


def _known_age_ms(at: datetime | None, now: datetime) -> int | None:
    return None if at is None else int((now - at).total_seconds() * 1000)
