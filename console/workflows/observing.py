"""Processes what copy workers report about a link's mirrors, and decides when a pass may be skipped."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any

import structlog
from django.conf import settings
from django.db.models import F, Q
from django.utils import timezone

from console.config import signing_keys
from console.mirrors.progress import is_former_news, time_of
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.models.links import show_change
from console.models.mirrors import engine_name_of, is_fresh
from console.reconciling import coverage, gaps, plans, sampling
from console.reconciling.phases import WorstReport
from console.reconciling.sampling import LEAST_LATENESS, lateness_of, reported_complete_at
from console.reconciling.transition_errors import Failures
from console.redis import locks, redis_client
from console.workflows import pool
from linkengine import jobs
from linkengine.coordination.client import translate_redis_errors
from linkengine.domain.plans import PartitionPhase, PartitionProgress, topic_ids_of
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason, LinkState, MirrorState

# --- reports of copy workers ------------------------------------------------------------------------------------------
#
# Reports are processed mirror by mirror: ledgers, alarms, then the rows. The order matters within a mirror, because the alarms
# compare reports with the rows before these are updated. If a step fails for a mirror, its later steps are skipped, and its
# kept reports and losses stay in Redis for the next pass.
#
# Redis keeps two kinds of reports until a pass of their link has processed them: the last report of each lease, and once a
# minute a report with gaps. Every other report is replaced by the next, whether or not it was read. A pass processes kept and
# current reports together, so that a single writer counts them and all are compared with the same topic ids.


SAMPLES_MS = 10_000  # between two batches of samples of one link
Rows = dict[str, MirrorPartition]
Loss = tuple[str, OffsetRange]
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class MirrorReports:
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
            found = mirror.ensure_partitions()
        rows |= {f"{plans.mirror_key(mirror)}/{row.partition}": row for row in found}
    return rows


def observe(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Rows, failures: Failures) -> bool:
    """Process all reports and losses of a link. Return whether anything changed that pages show.

    Raises CoordinationUnavailableError if Redis is unavailable.
    """
    key, signer = plans.link_key(link), plans.signer_of(link)
    sampling.raise_complete_at(link, rows.values())
    readings, now = jobs.read_readings(settings.REDIS_URL, key, signer), timezone.now()
    kept = read_kept(link, mirrors)
    losses = jobs.read_losses(settings.REDIS_URL, key, signer)
    latest = _of_current_topics(mirrors, readings.latest.values())
    former = _former_news(_of_current_topics(mirrors, readings.former.values()), latest, rows)
    at_once = {mirror.pk for mirror in mirrors if mirror.state != MirrorState.ACTIVE}
    changed = False
    if former:  # last reports of holds that have ended unread: applied first, in the order in which they were sent
        by_mirror = _by_mirror(mirrors, reports=former, kept=Kept({}, ()), losses=())
        changed |= _process_all(mirrors, by_mirror, rows=rows, failures=failures)
        ended = {report.key: rows[report.key] for report in former if not failures.has_failed(rows[report.key].mirror_id)}
        mirror_ids = {row.mirror_id for row in ended.values()}
        changed |= sampling.store_progress(rows=ended, reports=former, now=now, failures=failures, at_once=mirror_ids)
    by_mirror = _by_mirror(mirrors, reports=latest, kept=kept, losses=losses)
    changed |= _process_all(mirrors, by_mirror, rows=rows, failures=failures)
    not_failed = {key: row for key, row in rows.items() if not failures.has_failed(row.mirror_id)}
    samples = sampling.SAMPLES if locks.claim(f"samples:{link.pk}", ttl_ms=SAMPLES_MS) else 0
    changed |= sampling.store_progress(
        rows=not_failed, reports=latest, endings=kept.reports, now=now, failures=failures, at_once=at_once, samples=samples
    )
    if not failures.mirrors:
        sampling.note_in_sync(link, rows.values(), now=now)
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


def _process_all(
    mirrors: Sequence[MirrorTopic], by_mirror: Mapping[str, MirrorReports], *, rows: Rows, failures: Failures
) -> bool:
    changed = False
    for mirror in mirrors:
        if (reported := by_mirror.get(plans.mirror_key(mirror))) is not None and not failures.has_failed(mirror.pk):
            with failures.of_mirror(mirror.pk):
                changed |= _process(mirror, reported, rows=rows)
    return changed


def _by_mirror(
    mirrors: Sequence[MirrorTopic], *, reports: Iterable[PartitionProgress], kept: Kept, losses: Iterable[Loss]
) -> Mapping[str, MirrorReports]:
    found: dict[str, MirrorReports] = defaultdict(MirrorReports)
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


def _process(mirror: MirrorTopic, reported: MirrorReports, *, rows: Rows) -> bool:
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
    changed |= gaps.note_lateness(mirrors=[mirror], rows=own, reports=reported.reports, now=now)
    return changed | coverage.forget_lost(mirrors=[mirror], rows=own, reports=reported.reports, endings=reported.kept, now=now)


def _forget_processed(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, by_mirror: Mapping[str, MirrorReports], kept: Kept, failures: Failures
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
                row.phase, row.copy_run_id = report.phase, report.copy_run_id


def _of_current_topics(mirrors: Collection[MirrorTopic], reports: Iterable[PartitionProgress]) -> list[PartitionProgress]:
    """Leave out reports on topics that a mirror no longer connects, since a restore has created a topic anew."""
    current_ids = {plans.mirror_key(mirror): topic_ids_of(mirror.source_topic_id, mirror.mirror_topic_id) for mirror in mirrors}
    return [report for report in reports if report.topic_ids in {"", current_ids.get(report.key.rpartition("/")[0], "")}]


def read_kept(link: ClusterLink, mirrors: Sequence[MirrorTopic]) -> Kept:
    """Return the kept reports of a link's mirrors. They stay until ``forget_kept`` is called."""
    found = jobs.read_kept(settings.REDIS_URL, plans.link_key(link), plans.signer_of(link))
    for name, report in found.items():
        if report is None:  # written by another version during a rolling deployment
            _log.warning("ending.unreadable", name=name)
    counted = tuple(_of_current_topics(mirrors, [report for report in found.values() if report is not None]))
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


# --- passes that may be skipped ---------------------------------------------------------------------------------------
#
# A link is settled if its last pass left nothing to do. Passes of a settled link are skipped while no worker reports news: a
# pass reads all rows of a link as models, so its cost grows with the number of partitions. The beat requests a pass every
# second. A pass that leaves nothing to do stores a fingerprint in Redis of what the result depends on. It expires after some
# seconds, more the more processor time the passes of all links take. While the stored fingerprint is still the current
# fingerprint, the beat sends no pass. It changes when
#
# * a copy worker reports another phase, owner, error, set-back or loss (``news`` in ``linkengine.coordination.progress``),
# * an action or a task changes what pages show (``ClusterLink.sequence``) or the link's settings (``revision``),
# * a copy worker starts or ends.
#
# An action that sends ``reconcile_link`` gets its pass immediately, whatever the fingerprint. If Redis has lost it, there is a
# pass. Recurring tasks that are due are sent without a pass. In between, ``sample`` stores samples and the time at which idle
# partitions were in sync, from a few columns of the rows; if it finds anything else, there is a pass. So only what has none of
# these effects is delayed, by at most ``LONGEST_S``: samples for charts.
#
# If a sample finds all partitions of a link in sync and nothing to store, it remembers the names of their reports. While copy
# workers renew exactly these reports, and for at most ``LONGEST_S``, the next samples read neither reports nor rows.


BEAT_S = 1.0
LONGEST_S = 60.0
PAUSE_FACTOR, LONGEST_PAUSE_S = 2.0, 4.0  # pause as a multiple of the last pass, and its limit
SAMPLE_MS = 5_000  # between two samples of a settled link; less than ``reconciling.sampling.LEAST_LATENESS``
BUSY = 0.05  # share of a core that the passes of all links may take, unless their interval is ``LONGEST_S`` already
_COLUMNS = (
    "pk",
    "mirror_id",
    "partition",
    "behind",
    "observed_at",
    "copy_run_id",
    "copy_run_bytes",
    "mirror_end",
    "last_high_watermark",
    "bytes_per_s",
)
_SETTLED_STATES = frozenset({MirrorState.ACTIVE, MirrorState.PAUSED, MirrorState.STOPPED, MirrorState.FAILED})


@dataclass(frozen=True, slots=True)
class InSync:
    """The result of a sample that found all partitions of a link in sync and nothing to store."""

    version: tuple[int, int]  # sequence and revision of the link
    names: frozenset[str]  # of the reports, in renewals
    until_s: float  # monotonic


_in_sync: dict[int, InSync] = {}  # by primary key of the link; of this process


@dataclass(frozen=True, slots=True)
class LinkVersion:
    """The version of what copy workers report about a link, read before a pass reads anything else."""

    news: str
    workers: str  # that are alive

    def fingerprint(self, link: ClusterLink) -> str:
        """Return everything whose change makes a pass necessary."""
        return f"{self.news} {link.sequence} {link.revision} {self.workers}"


def split_settled(links: Iterable[ClusterLink]) -> tuple[list[int], list[int]]:
    """Return the primary keys of links that need a pass now, and of settled links. Two requests to Redis."""
    known = list(links)
    if not known:
        return [], []
    names = [name for link in known for name in (_fingerprint_name(link.pk), _pause_name(link.pk))]
    noted: Any = redis_client().mget(names)
    active: list[int] = []
    settled: list[int] = []
    for link, version, stored, waits in zip(known, read_link_versions(known), noted[::2], noted[1::2], strict=True):
        if version.fingerprint(link) == stored:
            settled.append(link.pk)
        elif not waits:
            active.append(link.pk)
    return active, settled


def read_link_versions(links: Sequence[ClusterLink]) -> list[LinkVersion]:
    """Return the versions of links. ``news`` counts reports that need a pass (``linkengine.coordination.progress``)."""
    workers = ",".join(sorted(beat.worker_id for beat in pool.recent_heartbeats() if beat.alive))
    return [LinkVersion(news, workers) for news in jobs.read_news(settings.REDIS_URL, [link.link_uuid.hex for link in links])]


def pause_after_pass(link: ClusterLink, *, took_s: float) -> None:
    """Set a pause after an expensive pass of a link that is not settled: the work in progress needs the processor."""
    pause_s = min(LONGEST_PAUSE_S, PAUSE_FACTOR * took_s)
    if pause_s > BEAT_S:
        with translate_redis_errors("store a pause"):
            redis_client().set(_pause_name(link.pk), "1", px=int(pause_s * 1000))


def request_pass(link_id: int) -> None:
    """Make the beat send a pass of a settled link."""
    with translate_redis_errors("delete a fingerprint"):
        redis_client().delete(_fingerprint_name(link_id))


def skip_passes(link: ClusterLink, version: LinkVersion, *, took_s: float) -> None:
    """Skip passes for some seconds. ``link`` has the sequence that the pass stored."""
    pause_s = min(LONGEST_S, took_s * ClusterLink.objects.count() / BUSY)
    if pause_s > BEAT_S:
        with translate_redis_errors("store a fingerprint"):
            redis_client().set(_fingerprint_name(link.pk), version.fingerprint(link), px=int(pause_s * 1000))


def sample(link: ClusterLink, *, now: datetime) -> bool:
    """Store samples of a settled link, and when its partitions were in sync; return False if it needs a pass instead.

    The time holds for all partitions that are not ``behind``. A partition of a mirror that is not ACTIVE therefore needs a
    pass, which checks each; so does a partition that copies late records: it may raise an alarm (``reconciling.gaps``).
    """
    key = link.link_uuid.hex
    if jobs.has_kept(settings.REDIS_URL, key):
        return False
    if (in_sync_at := _still_in_sync_at(link, now=now)) is not None:
        sampling.note_in_sync_at(link, in_sync_at, now=now)
        return True
    _in_sync.pop(link.pk, None)
    return _sample_rows(link, now=now)


def _sample_rows(link: ClusterLink, *, now: datetime) -> bool:
    """Compare all rows with the newest reports, as ``sample`` does."""
    key = link.link_uuid.hex
    readings = jobs.read_readings(settings.REDIS_URL, key, signing_keys.link_signer(key))
    mirrors: dict[int, tuple[str, str]] = {}  # ACTIVE mirrors, by primary key: engine name and topic ids
    columns = ("pk", "first_link_uuid", "source_topic_id", "mirror_topic_id")
    for pk, first, source_id, mirror_id in link.mirrors.filter(state=MirrorState.ACTIVE).order_by().values_list(*columns):
        mirrors[pk] = engine_name_of(pk, first=first, link=link.link_uuid), topic_ids_of(source_id, mirror_id)
    rows = MirrorPartition.objects.filter(mirror__link=link, partition__lt=F("mirror__num_partitions")).order_by()
    rows = rows.filter(Q(mirror__state=MirrorState.ACTIVE) | Q(behind=False))
    found: list[Any] = list(rows.values_list(*_COLUMNS, named=True))
    times: list[datetime] = []
    names: set[str] = set()
    moved: list[tuple[datetime, int, PartitionProgress]] = []
    for row in found:
        name, topic_ids = mirrors.get(row.mirror_id, ("", ""))
        report = readings.latest.get(f"{name}/{row.partition}")
        if report is None or report.copy_run_id != row.copy_run_id or report.topic_ids != topic_ids or row.observed_at is None:
            return False
        in_sync_at = _in_sync_at(report)
        if not row.behind:
            if in_sync_at is None or not is_fresh(in_sync_at, now=now, within=LEAST_LATENESS):
                return False
            times.append(in_sync_at)
        names.add(readings.names[report.key])
        if row.behind or _moved(row, report):
            moved.append((row.observed_at, row.pk, report))
    late = [item for item in moved if now - item[0] >= sampling.EVERY]
    due = {pk: report for _, pk, report in sorted(late, key=itemgetter(0, 1))[: sampling.SAMPLES]}
    if due and locks.claim(f"samples:{link.pk}", ttl_ms=SAMPLES_MS) and not _store(link, due, now=now):
        return False
    sampling.note_in_sync_at(link, min(times, default=None), now=now)
    if names and not moved:
        _in_sync[link.pk] = InSync((link.sequence, link.revision), frozenset(names), time.monotonic() + LONGEST_S)
    return True


def _still_in_sync_at(link: ClusterLink, *, now: datetime) -> datetime | None:
    """Return a recent time at which all partitions of a link were as the last complete sample found them; None if unknown."""
    known, key = _in_sync.get(link.pk), link.link_uuid.hex
    if known is None or known.version != (link.sequence, link.revision) or time.monotonic() > known.until_s:
        return None
    renewed_ms = jobs.read_renewal(settings.REDIS_URL, key, signing_keys.link_signer(key), known.names)
    in_sync_at = None if renewed_ms is None else time_of(renewed_ms)
    return in_sync_at if is_fresh(in_sync_at, now=now, within=LEAST_LATENESS) else None


def _store(link: ClusterLink, reports: Mapping[int, PartitionProgress], *, now: datetime) -> bool:
    """Store reports, by primary key of their rows; return False, and store nothing, if any partition copied late records."""
    rows = {reports[row.pk].key: row for row in MirrorPartition.objects.filter(pk__in=reports)}
    sampling.raise_complete_at(link, rows.values())
    late = (lateness_of(rows[report.key], report) for report in reports.values() if report.key in rows)
    if any(lateness is not None and lateness.moved for lateness in late):
        return False
    if sampling.store_progress(rows=rows, reports=reports.values(), now=now):
        version = read_link_versions([link])[0]
        fingerprint = version.fingerprint(link)
        show_change(link.pk)
        link.sequence += 1
        if redis_client().get(_fingerprint_name(link.pk)) == fingerprint:  # only what pages show has changed
            redis_client().set(_fingerprint_name(link.pk), version.fingerprint(link), keepttl=True)
    return True


def _in_sync_at(report: PartitionProgress) -> datetime | None:
    """Return when a partition that is being copied was last complete, as in ``sampling``."""
    return reported_complete_at(report) if report.phase is PartitionPhase.COPYING else None


def _moved(row: Any, report: PartitionProgress) -> bool:
    now = (report.mirror_end, report.source_high_watermark, report.bytes_copied)
    return now != (row.mirror_end, row.last_high_watermark, row.copy_run_bytes) or bool(row.bytes_per_s) != bool(
        report.bytes_per_s
    )


def is_settled(link: ClusterLink, mirrors: Sequence[MirrorTopic], reports: Sequence[WorstReport | None]) -> bool:
    """Return whether nothing is in progress: each mirror that should be copied is copied, the others wait for an action.

    ``reports``: of the mirrors that should be copied.
    """
    if link.state != LinkState.ACTIVE or link.deletion_requested_at is not None or link.engine_error or not reports:
        return False
    copied = all(report is not None and report.phase is PartitionPhase.COPYING for report in reports)
    return copied and all(mirror.state in _SETTLED_STATES and mirror.deletion_requested_at is None for mirror in mirrors)


def _fingerprint_name(link_id: int) -> str:
    return f"console:settled:{link_id}"


def _pause_name(link_id: int) -> str:
    return f"console:pause:{link_id}"
