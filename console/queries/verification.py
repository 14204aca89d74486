"""Runs of the verify job, and how much of a mirror was compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from console import pairs
from console.access import visible_mirrors
from console.actors import Actor
from console.errors import NotFoundError
from console.gatepolicies import GATED
from console.models import ClusterLink, MirrorPartition, MirrorTopic, VerifiedRange, VerifyRun, VerifyWatch
from linkengine.domain import coverage as ranges
from linkengine.domain.configs import follows_start
from linkengine.domain.linkconfigs import LINK_CONFIGS
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.states import MirrorState

WATCHED = (MirrorState.ACTIVE, MirrorState.PAUSED)  # mirrors whose new records are compared by themselves


def list_runs(*, mirror: MirrorTopic, limit: int = 50) -> list[VerifyRun]:
    """List the newest runs first."""
    return list(mirror.verify_runs.all()[:limit])


def get_run(*, run_id: int, by: Actor) -> VerifyRun:
    """Answer one run with its mirror."""
    runs = VerifyRun.objects.select_related("mirror__link__destination__environment__organization")
    run = runs.filter(pk=run_id, mirror__in=visible_mirrors(by)).first()
    if run is None:
        raise NotFoundError(f"Verify run {run_id} does not exist.", code="UNKNOWN_VERIFY_RUN")
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCoverage:
    """How far one partition was compared and found equal. Unknown is None, never 0.

    ``verified_to``: up to here everything from the start is equal. ``verified`` counts offsets between start and end, wherever
    they lie; what is neither verified nor different was not compared.
    """

    partition: int
    start: int | None
    end: int | None
    verified_to: int | None
    verified: int | None
    differences: int
    verified_at: datetime | None
    first_difference: dict[str, Any] | None = None  # with what the records hold: not for everybody

    @property
    def comparable(self) -> int | None:
        """Offsets of the mirror that its source has, too, as last seen; None while the ends are unknown."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def unverified(self) -> int | None:
        """Offsets that nobody found equal; None while the mirror's ends are unknown."""
        return None if self.comparable is None or self.verified is None else self.comparable - self.verified


def coverage(*, mirror: MirrorTopic) -> list[PartitionCoverage]:
    """Answer what is known of every partition; two queries."""
    ledger: dict[int, list[VerifiedRange]] = defaultdict(list)
    for row in mirror.verified_ranges.all():
        ledger[row.partition].append(row)
    return [_coverage(row, ledger[row.partition]) for row in mirror.partitions.all()]


def missing_beginnings(
    *, mirror: MirrorTopic, source: Mapping[int, int], mirrored: Mapping[int, int]
) -> dict[int, OffsetRange]:
    """Answer by partition what the source holds before the mirror's beginning, of both log starts; nothing where the mirror has
    a retention of its own. Two queries.
    """
    if not follows_start(mirror.link.sync_include):
        return {}
    return ranges.missing_beginnings(source=source, mirror=mirrored, heads=pairs.begins_of(mirror))


def missing_as_reported(*, mirror: MirrorTopic) -> dict[int, OffsetRange]:
    """Answer the same of the starts that the copier last told, where it goes on doing so; no cluster is asked."""
    if mirror.state not in GATED:
        return {}
    rows = [row for row in mirror.partitions.all() if row.source_start is not None and row.mirror_start is not None]
    source = {row.partition: row.source_start or 0 for row in rows}
    return missing_beginnings(mirror=mirror, source=source, mirrored={row.partition: row.mirror_start or 0 for row in rows})


def is_continuous(*, link: ClusterLink) -> bool:
    """Tell whether new records of a link's mirrors are compared by themselves; no query where its configs were read."""
    name = "verify.continuous.enable"
    value = next((one.value for one in link.configs.all() if one.name == name), "")
    return (value or LINK_CONFIGS[name].default) == "true"


def watches_of(*, link: ClusterLink) -> QuerySet[VerifyWatch]:
    """Choose how the last attempts with a link's mirrors went, by name; of those that are compared by themselves now."""
    watched = MirrorTopic.objects.filter(link=link, state__in=WATCHED, deletion_requested_at=None, drill=None)
    return VerifyWatch.objects.filter(mirror__in=watched).select_related("mirror").order_by("mirror__name")


def newest_runs(*, link: ClusterLink) -> QuerySet[VerifyRun]:
    """Choose the newest run of each mirror of a link, by name; however many there are, one look at each mirror."""
    newest = VerifyRun.objects.filter(mirror=OuterRef("pk")).order_by("-id").values("pk")[:1]
    chosen = MirrorTopic.objects.filter(link=link).order_by().annotate(newest=Subquery(newest)).values("newest")
    return VerifyRun.objects.filter(pk__in=chosen).select_related("mirror").order_by("mirror__name")


def list_ranges(*, mirror: MirrorTopic, limit: int) -> list[VerifiedRange]:
    """List the ledger by partition and offset."""
    return list(mirror.verified_ranges.all()[:limit])


def _coverage(row: MirrorPartition, ranges: Sequence[VerifiedRange]) -> PartitionCoverage:
    end = row.stopped_end if row.stopped_end is not None else row.mirror_end
    starts = [one for one in (row.source_start, row.mirror_start) if one is not None]
    start = None if row.mirror_start is None or end is None else min(max(starts), end)
    verified_to, verified = start, None if start is None else 0
    for one in ranges:
        if start is None or end is None or verified is None or verified_to is None or one.differences:
            continue
        verified += max(0, min(one.end, end) - max(one.start, start))
        if one.start <= verified_to < one.end:
            verified_to = min(one.end, end)
    return PartitionCoverage(
        partition=row.partition,
        start=start,
        end=end,
        verified_to=verified_to,
        verified=verified,
        differences=sum(one.differences for one in ranges),
        verified_at=max((one.verified_at for one in ranges), default=None),
        first_difference=next((one.first_difference for one in ranges if one.first_difference), None),
    )
