"""Processes what copy workers report about a link's mirrors, mirror by mirror: ledgers, alarms, then the rows.

The order matters within a mirror, because the alarms compare reports with the rows before these are updated. If a step fails
for a mirror, its later steps are skipped, and its kept reports and losses stay in Redis for the next pass.

Of the reports of copy workers, the last one of each lease is kept until it is processed, and once a minute one with gaps. Of
all other reports only the newest exists, read or not. Kept reports stay in Redis until a reconcile pass of their link has
processed them together with the current ones, so that a single writer counts them, and all are compared with the same topic
ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from django.conf import settings
from django.utils import timezone

from console.mirrors.progress import is_former_news, time_of
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling import coverage, gaps, placing, plans, sampling, tombstones
from console.reconciling.isolation import Failures
from console.redis import locks
from linkengine import jobs
from linkengine.domain.plans import PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason, MirrorState

SAMPLES_MS = 10_000  # between two batches of samples of one link
Rows = dict[str, MirrorPartition]
Loss = tuple[str, OffsetRange]
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Told:
    """The losses, kept reports (oldest first) and current reports of a mirror since the last pass."""

    losses: list[Loss] = field(default_factory=list)
    kept: list[PartitionProgress] = field(default_factory=list)
    reports: list[PartitionProgress] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Kept:
    """The kept reports of a link: the names of all, and those that count, oldest first."""

    names: dict[str, str]  # name of the report -> its mirror, or "" if it does not count
    reports: tuple[PartitionProgress, ...]


def ensure_rows(mirrors: Sequence[MirrorTopic], failures: Failures) -> Rows:
    """Return the rows of all partitions by key. Missing rows are created."""
    rows: Rows = {}
    for mirror in mirrors:
        found = list(mirror.partitions.all())
        with failures.of_mirror(mirror.pk):
            found = sampling.ensure_rows(mirror)
        rows |= {f"{plans.mirror_key(mirror)}/{row.partition}": row for row in found}
    return rows


def observe(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows, failures: Failures) -> bool:
    """Process all reports and losses of a link. Return whether anything changed that pages show.

    Raises CoordinationUnavailableError if Redis is unavailable.
    """
    key, signer = plans.link_key(link), plans.signer_of(link)
    sampling.lift_level(link, rows.values())
    readings = jobs.read_readings(settings.REDIS_URL, key, signer)
    kept = read_kept(link, mirrors)
    losses = jobs.read_losses(settings.REDIS_URL, key, signer)
    latest = placing.of_current_topics(mirrors, readings.latest.values())
    former = _former_news(placing.of_current_topics(mirrors, readings.former.values()), latest, rows)
    at_once = {mirror.pk for mirror in mirrors if mirror.state != MirrorState.ACTIVE}
    changed = False
    if former:  # last reports of holds that have ended unread: applied first, in the order in which they were sent
        by_mirror = _by_mirror(mirrors, reports=former, kept=Kept({}, ()), losses=())
        changed |= _process_all(mirrors, by_mirror, rows=rows, failures=failures)
        ended = {report.key: rows[report.key] for report in former if not failures.has_failed(rows[report.key].mirror_id)}
        mirror_ids = {row.mirror_id for row in ended.values()}
        changed |= sampling.store_progress(
            rows=ended, reports=former, now=timezone.now(), failures=failures, at_once=mirror_ids
        )
    by_mirror = _by_mirror(mirrors, reports=latest, kept=kept, losses=losses)
    changed |= _process_all(mirrors, by_mirror, rows=rows, failures=failures)
    sound = {key: row for key, row in rows.items() if not failures.has_failed(row.mirror_id)}
    now, samples = timezone.now(), sampling.SAMPLES if locks.claim(f"samples:{link.pk}", ttl_ms=SAMPLES_MS) else 0
    changed |= sampling.store_progress(
        rows=sound, reports=latest, endings=kept.reports, now=now, failures=failures, at_once=at_once, samples=samples
    )
    if not failures.mirrors:
        sampling.note_level(link, rows.values(), now=now)
    _forget_processed(link, mirrors, by_mirror=by_mirror, kept=kept, failures=failures)
    _note_observed(rows, latest, failures)
    return changed


def _former_news(
    former: Iterable[PartitionProgress], latest: Iterable[PartitionProgress], rows: Rows
) -> list[PartitionProgress]:
    current = {report.key: report for report in latest}
    return [
        report for report in former if report.key in rows and is_former_news(report, current.get(report.key), rows[report.key])
    ]


def _process_all(mirrors: Sequence[MirrorTopic], by_mirror: Mapping[str, Told], *, rows: Rows, failures: Failures) -> bool:
    changed = False
    for mirror in mirrors:
        if (reported := by_mirror.get(plans.mirror_key(mirror))) is not None and not failures.has_failed(mirror.pk):
            with failures.of_mirror(mirror.pk):
                changed |= _process(mirror, reported, rows=rows)
    return changed


def _by_mirror(
    mirrors: Sequence[MirrorTopic], *, reports: Iterable[PartitionProgress], kept: Kept, losses: Iterable[Loss]
) -> Mapping[str, Told]:
    found: dict[str, Told] = defaultdict(Told)
    for report in reports:
        found[_mirror_of(report.key)].reports.append(report)
    for report in kept.reports:
        found[_mirror_of(report.key)].kept.append(report)
    keys = {key for mirror in mirrors for key in plans.partition_keys(mirror)} if losses else set()
    for loss in losses:
        if loss[0] in keys:
            found[_mirror_of(loss[0])].losses.append(loss)
    return found


def _mirror_of(key: str) -> str:
    return key.rpartition("/")[0]


def _process(mirror: MirrorTopic, reported: Told, *, rows: Rows) -> bool:
    """Update the ledgers and alarms of a mirror; the rows follow, for all mirrors at once. Return whether anything changed.

    Losses come first: a loss is dated by the last timestamp that was known before it.
    """
    now, key = timezone.now(), plans.mirror_key(mirror)
    own = {f"{key}/{n}": rows[f"{key}/{n}"] for n in range(mirror.num_partitions) if f"{key}/{n}" in rows}
    changed = False
    for place, lost in reported.losses:
        found = {int(place.rpartition("/")[2]): [Gap(lost, GapReason.LOST)]}
        changed |= gaps.store_gaps(mirror=mirror, gaps=found, now=now)
    for reports in (*([report] for report in reported.kept), reported.reports):
        filled = {own[report.key].partition: report.gaps for report in reports if report.gaps and report.key in own}
        if filled:
            changed |= gaps.store_gaps(mirror=mirror, gaps=filled, now=now)
    changed |= tombstones.note_lateness(mirrors=[mirror], rows=own, reports=reported.reports, now=now)
    return changed | coverage.forget_lost(mirrors=[mirror], rows=own, reports=reported.reports, endings=reported.kept, now=now)


def _forget_processed(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, by_mirror: Mapping[str, Told], kept: Kept, failures: Failures
) -> None:
    """Delete losses and kept reports that are stored now. Those of mirrors that failed stay for the next pass."""
    failed = {plans.mirror_key(mirror) for mirror in mirrors if failures.has_failed(mirror.pk)}
    stored = [loss for key, reported in by_mirror.items() if key not in failed for loss in reported.losses]
    jobs.forget_losses(settings.REDIS_URL, plans.link_key(link), plans.signer_of(link), stored)
    forget_kept(link, kept, but_of=failed)


def _note_observed(rows: Rows, reports: Iterable[PartitionProgress], failures: Failures) -> None:
    """Set, unsaved, the last observation of mirrors that failed, so that their copy workers do not count as dead."""
    for report in reports:
        row = rows.get(report.key)
        if row is not None and failures.has_failed(row.mirror_id):
            with suppress(ValueError, OverflowError, OSError):  # a time outside the range of datetime
                row.observed_at = time_of(report.observed_at_ms)
                row.phase, row.hold_id = report.phase, report.hold_id


def read_kept(link: ClusterLink, mirrors: Sequence[MirrorTopic]) -> Kept:
    """Return the kept reports of a link's mirrors. They stay until ``forget_kept`` is called."""
    found = jobs.read_kept(settings.REDIS_URL, plans.link_key(link), plans.signer_of(link))
    for name, report in found.items():
        if report is None:  # written by another version during a rolling deployment
            _log.warning("ending.unreadable", name=name)
    counted = tuple(placing.of_current_topics(mirrors, [report for report in found.values() if report is not None]))
    counting = {id(report) for report in counted}
    names = {
        name: report.key.rpartition("/")[0] if report is not None and id(report) in counting else ""
        for name, report in found.items()
    }
    return Kept(names=names, reports=counted)


def forget_kept(link: ClusterLink, kept: Kept, *, but_of: Collection[str]) -> None:
    """Delete the reports that were processed, except those of some mirrors (by the engine's key): they are read again."""
    jobs.forget_kept(
        settings.REDIS_URL, plans.link_key(link), [name for name, mirror in kept.names.items() if mirror not in but_of]
    )
