"""Verification runs, and the verified ranges of a mirror."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from console.access import visible_mirrors
from console.actors import Actor
from console.errors import NotFoundError
from console.links import pairs
from console.mirrors.migration_gate import GATED
from console.models import (
    AuditEvent,
    ClusterLink,
    LinkConfig,
    MirrorPartition,
    MirrorTopic,
    VerifiedRange,
    VerifyRun,
    VerifyWatch,
)
from linkengine.domain import ranges
from linkengine.domain.configs import follows_start
from linkengine.domain.linkconfigs import LINK_CONFIGS
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.states import MirrorState

WATCHED = (MirrorState.ACTIVE, MirrorState.PAUSED)  # states in which new records are verified continuously


def list_runs(*, mirror: MirrorTopic, limit: int = 50) -> list[VerifyRun]:
    """Return the runs of a mirror, newest first."""
    return list(mirror.verify_runs.all()[:limit])


def get_run(*, run_id: int, by: Actor) -> VerifyRun:
    """Return a run with its mirror; raise NotFoundError."""
    runs = VerifyRun.objects.select_related("mirror__link__destination__environment__organization")
    run = runs.filter(pk=run_id, mirror__in=visible_mirrors(by)).first()
    if run is None:
        raise NotFoundError(f"Verification run {run_id} does not exist.", code="UNKNOWN_VERIFY_RUN")
    return run


def request_of(run: VerifyRun) -> str:
    """Return the id of the request that asked for a run, from its audit event; "" if there was no request. One query."""
    events = AuditEvent.objects.filter(at=run.requested_at, action="VerifyMirrorTopic", detail__run=run.pk)
    return events.values_list("request_id", flat=True).first() or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCoverage:
    """The verified offsets of a partition. Unknown is None, never 0.

    ``verified_to``: all offsets from ``start`` to here are equal. ``verified``: the number of equal offsets anywhere between
    ``start`` and ``end``. Offsets that are neither verified nor different have not been compared.
    """

    partition: int
    start: int | None
    end: int | None
    verified_to: int | None
    verified: int | None
    differences: int
    verified_at: datetime | None
    first_difference: dict[str, Any] | None = None  # includes record contents, which need READ_RECORDS

    @property
    def comparable(self) -> int | None:
        """The number of offsets that mirror and source have in common, as last reported; None if unknown."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def unverified(self) -> int | None:
        """The number of comparable offsets that are not verified; None if unknown."""
        return None if self.comparable is None or self.verified is None else self.comparable - self.verified


def coverage(*, mirror: MirrorTopic) -> list[PartitionCoverage]:
    """Return the verified offsets of each partition. Two queries."""
    ledger: dict[int, list[VerifiedRange]] = defaultdict(list)
    for row in mirror.verified_ranges.all():
        ledger[row.partition].append(row)
    return [_coverage(row, ledger[row.partition]) for row in mirror.partitions.all()]


def missing_beginnings(
    *, mirror: MirrorTopic, source: Mapping[int, int], mirrored: Mapping[int, int]
) -> dict[int, OffsetRange]:
    """Return the offsets, by partition, that the source has before the log start of the mirror.

    ``source`` and ``mirrored`` are the log start offsets. Empty if the mirror has its own retention. Two queries.
    """
    if not follows_start(mirror.link.sync_include):
        return {}
    return ranges.missing_beginnings(source=source, mirror=mirrored, heads=pairs.first_offsets(mirror))


def missing_as_reported(*, mirror: MirrorTopic) -> dict[int, OffsetRange]:
    """Return the same, by the log start offsets of the last reports; empty if the mirror is no longer copied."""
    if mirror.state not in GATED:
        return {}
    rows = [row for row in mirror.partitions.all() if row.source_start is not None and row.mirror_start is not None]
    source = {row.partition: row.source_start or 0 for row in rows}
    return missing_beginnings(mirror=mirror, source=source, mirrored={row.partition: row.mirror_start or 0 for row in rows})


def is_continuous(*, link: ClusterLink) -> bool:
    """Return True if continuous verification is on for the link. No query if its configs are prefetched."""
    name = "verify.continuous.enable"
    value = next((config.value for config in link.configs.all() if config.name == name), "")
    return (value or LINK_CONFIGS[name].default) == "true"


def continuous_links() -> QuerySet[ClusterLink]:
    """Return the links for which ``is_continuous`` holds."""
    name = "verify.continuous.enable"
    switched_off = LinkConfig.objects.filter(name=name).exclude(value__in=("", "true"))
    return ClusterLink.objects.exclude(pk__in=switched_off.values("link")).order_by()


def watches_of(*, link: ClusterLink) -> QuerySet[VerifyWatch]:
    """Return the last attempts of continuous verification of a link's mirrors, by name of the mirror."""
    watched = link.mirrors.listed().filter(state__in=WATCHED, deletion_requested_at=None)
    return VerifyWatch.objects.filter(mirror__in=watched).select_related("mirror").order_by("mirror__name")


def newest_runs(*, link: ClusterLink) -> QuerySet[VerifyRun]:
    """Return the newest run of each mirror of a link, by name of the mirror. The subquery reads one row per mirror."""
    newest = VerifyRun.objects.filter(mirror=OuterRef("pk")).order_by("-id").values("pk")[:1]
    chosen = MirrorTopic.objects.filter(link=link).order_by().annotate(newest=Subquery(newest)).values("newest")
    return VerifyRun.objects.filter(pk__in=chosen).select_related("mirror").order_by("mirror__name")


def list_ranges(*, mirror: MirrorTopic, limit: int) -> list[VerifiedRange]:
    """Return the verified ranges by partition and offset."""
    return list(mirror.verified_ranges.all()[:limit])


def _coverage(row: MirrorPartition, ranges: Sequence[VerifiedRange]) -> PartitionCoverage:
    end = row.stopped_end if row.stopped_end is not None else row.mirror_end
    starts = [offset for offset in (row.source_start, row.mirror_start) if offset is not None]
    start = None if row.mirror_start is None or end is None else min(max(starts), end)
    verified_to, verified = start, None if start is None else 0
    for checked in ranges:
        if start is None or end is None or verified is None or verified_to is None or checked.differences:
            continue
        verified += max(0, min(checked.end, end) - max(checked.start, start))
        if checked.start <= verified_to < checked.end:
            verified_to = min(checked.end, end)
    return PartitionCoverage(
        partition=row.partition,
        start=start,
        end=end,
        verified_to=verified_to,
        verified=verified,
        differences=sum(checked.differences for checked in ranges),
        verified_at=max((checked.verified_at for checked in ranges), default=None),
        first_difference=next((checked.first_difference for checked in ranges if checked.first_difference), None),
    )
