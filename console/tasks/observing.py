"""Takes in what copiers tell of a link's mirrors, one mirror after the other: ledgers, alarms, then the rows.

The order matters within a mirror, since the rows forget what the alarms compare with. So where one step fails for a mirror its
later ones are left out, and what was told of it stays to be told again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from django.conf import settings
from django.utils import timezone

from console.mirrors.progress import is_former_news, time_of
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling import coverage, gaps, placing, plans, sampling, tombstones
from console.reconciling.isolation import Failures
from console.redis import locks
from console.tasks import worker_results
from console.tasks.worker_results import Kept
from linkengine import jobs
from linkengine.domain.plans import PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason, MirrorState

SAMPLES_MS = 10_000  # between two batches of samples of one link
Rows = dict[str, MirrorPartition]
Loss = tuple[str, OffsetRange]


@dataclass(slots=True)
class Told:
    """What was told of one mirror since the last round; what was kept, the earliest first."""

    losses: list[Loss] = field(default_factory=list)
    kept: list[PartitionProgress] = field(default_factory=list)
    reports: list[PartitionProgress] = field(default_factory=list)


def ensure_rows(mirrors: Sequence[MirrorTopic], failures: Failures) -> Rows:
    """Answer the rows of all partitions by key; those that lack are made."""
    rows: Rows = {}
    for mirror in mirrors:
        found = list(mirror.partitions.all())
        with failures.of_mirror(mirror.pk):
            found = sampling.ensure_rows(mirror)
        rows |= {f"{plans.mirror_key(mirror)}/{row.partition}": row for row in found}
    return rows


def observe(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows, failures: Failures) -> bool:
    """Take in all that is told; answer whether a page would show something new. Raise CoordinationUnavailableError."""
    key, signer = plans.link_key(link), plans.signer_of(link)
    sampling.lift_level(link, rows.values())
    readings = jobs.read_readings(settings.REDIS_URL, key, signer)
    kept = worker_results.read(link, mirrors)
    losses = jobs.read_losses(settings.REDIS_URL, key, signer)
    latest = placing.of_current_topics(mirrors, readings.latest.values())
    former = _former_news(placing.of_current_topics(mirrors, readings.former.values()), latest, rows)
    at_once = {mirror.pk for mirror in mirrors if mirror.state != MirrorState.ACTIVE}
    changed = False
    if former:  # last reports of holds that have ended unread: applied first, in the order in which they were sent
        told = _by_mirror(mirrors, reports=former, kept=Kept({}, ()), losses=())
        changed |= _take_in_all(mirrors, told, rows=rows, failures=failures)
        ended = {report.key: rows[report.key] for report in former if not failures.has_failed(rows[report.key].mirror_id)}
        mirror_ids = {row.mirror_id for row in ended.values()}
        changed |= sampling.store_progress(
            rows=ended, reports=former, now=timezone.now(), failures=failures, at_once=mirror_ids
        )
    told = _by_mirror(mirrors, reports=latest, kept=kept, losses=losses)
    changed |= _take_in_all(mirrors, told, rows=rows, failures=failures)
    sound = {key: row for key, row in rows.items() if not failures.has_failed(row.mirror_id)}
    now, samples = timezone.now(), sampling.SAMPLES if locks.claim(f"samples:{link.pk}", ttl_ms=SAMPLES_MS) else 0
    changed |= sampling.store_progress(
        rows=sound, reports=latest, endings=kept.reports, now=now, failures=failures, at_once=at_once, samples=samples
    )
    if not failures.mirrors:
        sampling.note_level(link, rows.values(), now=now)
    _let_go(link, mirrors, told=told, kept=kept, failures=failures)
    _hear(rows, latest, failures)
    return changed


def _former_news(
    former: Iterable[PartitionProgress], latest: Iterable[PartitionProgress], rows: Rows
) -> list[PartitionProgress]:
    now = {report.key: report for report in latest}
    return [report for report in former if report.key in rows and is_former_news(report, now.get(report.key), rows[report.key])]


def _take_in_all(mirrors: Sequence[MirrorTopic], told: Mapping[str, Told], *, rows: Rows, failures: Failures) -> bool:
    changed = False
    for mirror in mirrors:
        if (of_it := told.get(plans.mirror_key(mirror))) is not None and not failures.has_failed(mirror.pk):
            with failures.of_mirror(mirror.pk):
                changed |= _take_in(mirror, of_it, rows=rows)
    return changed


def _by_mirror(
    mirrors: Sequence[MirrorTopic], *, reports: Iterable[PartitionProgress], kept: Kept, losses: Iterable[Loss]
) -> Mapping[str, Told]:
    told: dict[str, Told] = defaultdict(Told)
    for report in reports:
        told[_mirror_of(report.key)].reports.append(report)
    for one in kept.reports:
        told[_mirror_of(one.key)].kept.append(one)
    ours = {key for one in mirrors for key in plans.partition_keys(one)} if losses else set()
    for loss in losses:
        if loss[0] in ours:
            told[_mirror_of(loss[0])].losses.append(loss)
    return told


def _mirror_of(key: str) -> str:
    return key.rpartition("/")[0]


def _take_in(mirror: MirrorTopic, told: Told, *, rows: Rows) -> bool:
    """Losses first: they lie behind the last timestamp known before them. The rows come last, for all mirrors at once."""
    now, key = timezone.now(), plans.mirror_key(mirror)
    own = {f"{key}/{n}": rows[f"{key}/{n}"] for n in range(mirror.num_partitions) if f"{key}/{n}" in rows}
    changed = False
    for place, lost in told.losses:
        found = {int(place.rpartition("/")[2]): [Gap(lost, GapReason.LOST)]}
        changed |= gaps.store_gaps(mirror=mirror, gaps=found, now=now)
    for some in (*([one] for one in told.kept), told.reports):
        filled = {own[one.key].partition: one.gaps for one in some if one.gaps and one.key in own}
        if filled:
            changed |= gaps.store_gaps(mirror=mirror, gaps=filled, now=now)
    changed |= tombstones.note_lateness(mirrors=[mirror], rows=own, reports=told.reports, now=now)
    return changed | coverage.forget_lost(mirrors=[mirror], rows=own, reports=told.reports, endings=told.kept, now=now)


def _let_go(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, told: Mapping[str, Told], kept: Kept, failures: Failures
) -> None:
    """Let go of what is in ledgers and rows; what was told of a mirror that failed is told to the next round again."""
    failed = {plans.mirror_key(one) for one in mirrors if failures.has_failed(one.pk)}
    stored = [loss for key, one in told.items() if key not in failed for loss in one.losses]
    jobs.forget_losses(settings.REDIS_URL, plans.link_key(link), plans.signer_of(link), stored)
    worker_results.forget(link, kept, but_of=failed)


def _hear(rows: Rows, reports: Iterable[PartitionProgress], failures: Failures) -> None:
    """Note, unsaved, that the copiers of mirrors that failed are heard: else their jobs would be taken for dead."""
    for report in reports:
        row = rows.get(report.key)
        if row is not None and failures.has_failed(row.mirror_id):
            with suppress(ValueError, OverflowError, OSError):  # a time beyond all calendars
                row.observed_at = time_of(report.observed_at_ms)
                row.phase, row.hold_id = report.phase, report.hold_id
