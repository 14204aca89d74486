"""Whether a link could be failed over now, from stored rows and the current progress; the clusters are not contacted.

``linkengine.domain.failover`` has the rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import BigIntegerField, Case, Count, Exists, OuterRef, Subquery, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.db.models.lookups import Regex

from console.links.health_queries import Observation, status_of_link
from console.links.rules import SYNC_OFFSETS, is_on
from console.models import (
    ClusterLink,
    Drill,
    LinkConfig,
    LinkTask,
    MirrorPartition,
    SourceTopic,
    StateTransitionError,
    SyncedGroup,
    VerifiedRange,
    VerifyRun,
)
from console.models.mirrors import RECORDS_DIFFER
from linkengine.domain.errors import ErrorCode
from linkengine.domain.failover import RETENTION_SHARE, VERIFIED_VALID_MS, Readiness, StoredFacts, readiness
from linkengine.domain.groups import NOT_TO_SYNC, GroupStatus
from linkengine.domain.linkconfigs import LINK_CONFIGS
from linkengine.domain.linktasks import TaskName
from linkengine.domain.ranges import comparable_start, count_within

_OVER = (Drill.Status.PASSED, Drill.Status.FAILED)
_RIGHTS = ErrorCode.AUTHORIZATION_ERROR
# as last read from the source: None if the link does not sync it, if it is unlimited (-1), or if it is not a number
_RETENTION_BYTES = KeyTextTransform("retention.bytes", "source_configs")
_MOST_BYTES = Case(When(Regex(_RETENTION_BYTES, r"^\d{1,18}$"), then=Cast(_RETENTION_BYTES, BigIntegerField())))
_MOST_VERIFIED = "verify.max.records.per.run"


@dataclass(frozen=True, slots=True)
class _Mirror:
    """What is stored about a mirror that a failover would stop."""

    pk: int
    name: str
    created_at: datetime
    error_code: str
    compared_at: datetime | None  # the last comparison of any of its records
    retention_ms: int | None  # of the source topic; -1: unlimited
    most_bytes: int | None  # of a partition of the source topic
    equal_run: Sequence[tuple[int, int, int]] | None  # (partition, start, end) of the last run that found no difference
    differs: bool
    lacks_right: bool


@dataclass(frozen=True, slots=True)
class _OfLink:
    """What is stored about a link: two of its configs, drills and consumer groups."""

    syncs_groups: str | None  # config; None: not set
    most_verified: str | None  # config: records that a run of continuous verification compares
    drill_status: str | None  # of the last drill that has ended
    drill_finished_at: datetime | None
    drill_requested_at: datetime | None
    drill_topics: Sequence[str] | None
    groups_synced_at: datetime | None  # the last run without an error
    groups_to_sync: int | None
    groups_failing: int | None


# Ranges ``(start, end)`` that were found equal, by primary key of the mirror and partition. They do not overlap.
_Ledger = Mapping[tuple[int, int], Sequence[tuple[int, int]]]


def link_readiness(link: ClusterLink, seen: Observation, *, now: datetime) -> Readiness:
    """Return the readiness of a link, of which ``seen`` is the whole state: of the mirrors that a failover would stop.

    Three queries, none without mirrors.
    """
    stoppable = seen.stoppable
    if not stoppable:
        return readiness(StoredFacts(mirrors=0))
    health = status_of_link(link, stoppable, failing_tasks=len(seen.failing))
    mirrors, of_link = _read_mirrors(link, now=now), _read_of_link(link)
    drilled, drilled_at = set(of_link.drill_topics or ()), of_link.drill_requested_at

    def is_drilled(mirror: _Mirror) -> bool:
        """Return whether the last drill included the mirror, and not an earlier mirror of its name."""
        return mirror.name in drilled and drilled_at is not None and mirror.created_at <= drilled_at

    most = int(of_link.most_verified or LINK_CONFIGS[_MOST_VERIFIED].default or 0)
    refused = sum(error.get("code") == _RIGHTS for task in seen.failing for error in task.errors)
    compared = [mirror.compared_at for mirror in mirrors if mirror.compared_at is not None]
    beyond_size, unknown_size = _compare_sizes(mirrors, seen)
    stored = StoredFacts(
        mirrors=len(stoppable),
        health=health.health,
        drill_passed=of_link.drill_status == Drill.Status.PASSED if of_link.drill_status else None,
        drill_age_ms=_age_ms(of_link.drill_finished_at, now),
        not_drilled=sum(not is_drilled(mirror) for mirror in mirrors),
        differing=sum(mirror.differs for mirror in mirrors),
        never_compared=len(mirrors) - len(compared),
        partly_verified=_count_partly_verified(mirrors, seen, _read_ledger(link), most=most),
        compared_age_ms=_age_ms(min(compared, default=None), now),
        source_reached=link.probed_at is not None,
        missing_rights=sum(mirror.lacks_right or mirror.error_code == _RIGHTS for mirror in mirrors)
        + refused
        + (link.error_code == _RIGHTS),
        groups_synced=is_on(SYNC_OFFSETS, of_link.syncs_groups),
        groups=of_link.groups_to_sync or 0,
        groups_failing=of_link.groups_failing or 0,
        groups_age_ms=_age_ms(of_link.groups_synced_at, now),
        lag_ms=seen.stoppable_total.oldest_ms(now),
        retention_ms=_shortest_ms([mirror.retention_ms for mirror in mirrors]),
        size_limited=sum(mirror.most_bytes is not None for mirror in mirrors),
        beyond_size=beyond_size,
        unknown_size=unknown_size,
    )
    return readiness(stored)


def _read_mirrors(link: ClusterLink, *, now: datetime) -> list[_Mirror]:
    """Read the mirrors that a failover would stop. One query."""
    errors = StateTransitionError.objects.filter(mirror=OuterRef("pk"))
    topic = SourceTopic.objects.filter(link=OuterRef("link"), name=OuterRef("source_topic"))
    ranges = VerifiedRange.objects.filter(mirror=OuterRef("pk")).order_by("-verified_at")
    since = now - timedelta(milliseconds=VERIFIED_VALID_MS)
    equal = VerifyRun.objects.filter(mirror=OuterRef("pk"), status=VerifyRun.Status.EQUAL, finished_at__range=(since, now))
    rows = link.mirrors.listed().stoppable().order_by()
    annotated = rows.values_list(
        "pk",
        "name",
        "created_at",
        "error_code",
        Subquery(ranges.values("verified_at")[:1]),
        Subquery(topic.values("retention_ms")[:1]),
        _MOST_BYTES,
        Subquery(equal.values("ranges")[:1]),
        Exists(errors.filter(code=RECORDS_DIFFER)),
        Exists(errors.filter(code=_RIGHTS)),
    )
    return [_Mirror(*row) for row in annotated]


def _read_of_link(link: ClusterLink) -> _OfLink:
    """Read configs, the last drill and the numbers of groups. One query."""
    configs = LinkConfig.objects.filter(link=OuterRef("pk")).values("value")
    drill = Drill.objects.filter(link=OuterRef("pk"), status__in=_OVER)
    task = LinkTask.objects.filter(link=OuterRef("pk"), name=TaskName.CONSUMER_OFFSETS)
    groups = SyncedGroup.objects.filter(link=OuterRef("pk")).order_by().values("link")
    to_sync = groups.exclude(status__in=NOT_TO_SYNC).annotate(number=Count("pk"))
    failing = groups.filter(status=GroupStatus.FAILED).annotate(number=Count("pk"))
    columns = ClusterLink.objects.values_list(
        Subquery(configs.filter(name=SYNC_OFFSETS)),
        Subquery(configs.filter(name=_MOST_VERIFIED)),
        Subquery(drill.values("status")[:1]),
        Subquery(drill.values("finished_at")[:1]),
        Subquery(drill.values("requested_at")[:1]),
        Subquery(drill.values("topics")[:1]),
        Subquery(task.values("succeeded_at")[:1]),
        Subquery(to_sync.values("number")),
        Subquery(failing.values("number")),
    )
    return _OfLink(*columns.get(pk=link.pk))


def _compare_sizes(mirrors: Iterable[_Mirror], seen: Observation) -> tuple[int, int]:
    """Return how many mirrors have a lag not below half of their source's ``retention.bytes``, and of how many it is unknown.

    The limit counts per partition.
    """
    beyond = unknown = 0
    for mirror in mirrors:
        if mirror.most_bytes is not None:
            sizes = [row.lag_bytes for row in seen.partitions.get(mirror.pk, ())]
            unknown += not sizes or None in sizes
            beyond += any(size and size * RETENTION_SHARE >= mirror.most_bytes for size in sizes)
    return beyond, unknown


def _count_partly_verified(mirrors: Iterable[_Mirror], seen: Observation, ledger: _Ledger, *, most: int) -> int:
    """Return how many of the mirrors that were compared are verified only in part.

    The records that were copied last are always still to be compared. A mirror is verified if the next run of continuous
    verification, of ``most`` records, would compare all that is left, or if a run of the whole mirror found no difference
    recently and the ledger still has what it compared.
    """
    partitions = {mirror.pk: mirror.partitions for mirror in seen.stoppable}

    def is_verified(mirror: _Mirror) -> bool:
        rows = seen.partitions.get(mirror.pk, ())
        if len(rows) != partitions.get(mirror.pk):
            return False
        left = _count_unverified(mirror.pk, rows, ledger)
        return (left is not None and left <= most) or _is_run_verified(mirror, rows, ledger)

    return sum(mirror.compared_at is not None and not is_verified(mirror) for mirror in mirrors)


def _read_ledger(link: ClusterLink) -> _Ledger:
    """Read the verified ranges of all mirrors of a link. One query."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    rows = VerifiedRange.objects.filter(mirror__link=link, differences=0).order_by()
    for pk, partition, start, end in rows.values_list("mirror", "partition", "start", "end"):
        found[pk, partition].append((start, end))
    return found


def _is_run_verified(mirror: _Mirror, rows: Iterable[MirrorPartition], ledger: _Ledger) -> bool:
    """Return whether the ledger still has all that the last run found equal."""
    ends = {partition: end for partition, _, end in mirror.equal_run or ()}
    return bool(ends) and _count_unverified(mirror.pk, rows, ledger, ends=ends) == 0


def _count_unverified(
    pk: int, rows: Iterable[MirrorPartition], ledger: _Ledger, *, ends: Mapping[int, int] | None = None
) -> int | None:
    """Return how many offsets of a mirror, or of those below ``ends``, are not verified; None if its bounds are unknown."""
    total = 0
    for row in rows:
        if row.mirror_end is None:
            return None
        end = row.mirror_end if ends is None else min(row.mirror_end, ends.get(row.partition, 0))
        start = comparable_start(source=row.source_start, mirror=row.mirror_start, end=end)
        if start is None:
            return None
        total += end - start - count_within(ledger.get((pk, row.partition), ()), start=start, end=end)
    return total


def _shortest_ms(retentions: Sequence[int | None]) -> int | None:
    """Return the shortest retention of source topics; -1 if all are unlimited, None if any is unknown."""
    if None in retentions:
        return None
    return min((ms for ms in retentions if ms is not None and ms >= 0), default=-1)


def _age_ms(at: datetime | None, now: datetime) -> int | None:
    return None if at is None else int((now - at).total_seconds() * 1000)
