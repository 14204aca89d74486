"""Decides when a reconcile pass of a link may be skipped: the link is at rest, and no worker has reported news.

A pass reads all rows of a link as models, so its cost grows with the number of partitions. The beat requests a pass every
second. A pass that leaves nothing to do stores a mark in Redis. The mark describes what the result depends on, and expires
after some seconds, more the more processor time the passes of all links take. While the mark exists and is valid, the beat
sends no pass. It becomes invalid when

* a copy worker reports another phase, owner, error, set-back or loss (``news`` in ``linkengine.coordination.progress``),
* an action or a task changes what pages show (``ClusterLink.sequence``) or the link's settings (``revision``),
* a copy worker starts or ends.

An action that sends ``reconcile_link`` gets its pass immediately, whatever the mark. If Redis has lost the mark, there is a
pass. In between, ``sample`` stores samples and the time at which idle partitions were in sync, from a few columns of the rows;
if it finds anything else, the rest ends. So only what has none of these effects is delayed, by at most ``LONGEST_S``: samples
for charts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

from django.conf import settings
from django.db.models import F, Q

from console.config import signing_keys
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.models.links import show_change
from console.models.mirrors import engine_name_of, is_fresh
from console.reconciling import sampling
from console.reconciling.lateness import LEAST, completed_at, lateness_of
from console.reconciling.phases import Verdict
from console.redis import locks
from console.redis.client import redis_client
from console.workflows import observing, pool
from linkengine import jobs
from linkengine.coordination.client import redis_answers
from linkengine.domain.plans import PartitionPhase, PartitionProgress, topic_ids_of
from linkengine.domain.states import LinkState, MirrorState

BEAT_S = 1.0
LONGEST_S = 30.0
PACE, MOST_PACE_S = 2.0, 4.0  # pause as a multiple of the last pass, and its limit
SAMPLE_MS = 5_000  # between two samples of a link at rest; less than ``lateness.LEAST``
BUSY = 0.05  # share of a core that the passes of all links may take, unless their interval is ``LONGEST_S`` already
_COLUMNS = (
    "pk",
    "mirror_id",
    "partition",
    "behind",
    "observed_at",
    "hold_id",
    "hold_bytes",
    "mirror_end",
    "last_high_watermark",
    "bytes_per_s",
)
_RESTING = frozenset({MirrorState.ACTIVE, MirrorState.PAUSED, MirrorState.STOPPED, MirrorState.FAILED})


@dataclass(frozen=True, slots=True)
class Seen:
    """News of a link and live copy workers, read before a pass reads anything else."""

    news: str
    workers: str

    def mark(self, link: ClusterLink) -> str:
        """Return the mark: everything that the rest of the link depends on."""
        return f"{self.news} {link.sequence} {link.revision} {self.workers}"


def sorted_out(links: Iterable[ClusterLink]) -> tuple[list[int], list[int]]:
    """Return the primary keys of links that need a pass now, and of links at rest. Two requests to Redis."""
    known = list(links)
    if not known:
        return [], []
    names = [name for link in known for name in (_name(link.pk), _pace(link.pk))]
    noted: Any = redis_client().mget(names)
    active: list[int] = []
    resting: list[int] = []
    for link, seen, mark, waits in zip(known, look(known), noted[::2], noted[1::2], strict=True):
        if seen.mark(link) == mark:
            resting.append(link.pk)
        elif not waits:
            active.append(link.pk)
    return active, resting


def look(links: Sequence[ClusterLink]) -> list[Seen]:
    """Read the news of links and the live copy workers."""
    workers = ",".join(sorted(beat.worker_id for beat in pool.recent_heartbeats() if beat.alive))
    return [Seen(news, workers) for news in jobs.read_news(settings.REDIS_URL, [link.link_uuid.hex for link in links])]


def pace(link: ClusterLink, *, took_s: float) -> None:
    """Set a pause after an expensive pass of a link that is not at rest: the work that is in progress needs the processor."""
    pause_s = min(MOST_PACE_S, PACE * took_s)
    if pause_s > BEAT_S:
        with redis_answers("store a pause"):
            redis_client().set(_pace(link.pk), "1", px=int(pause_s * 1000))


def wake(link_id: int) -> None:
    """End the rest of a link."""
    with redis_answers("delete a mark"):
        redis_client().delete(_name(link_id))


def rest(link: ClusterLink, seen: Seen, *, took_s: float, until: datetime | None, now: datetime) -> None:
    """Skip passes for some seconds. ``until``: when a recurring task is due. ``link`` has the sequence that the pass stored."""
    links = ClusterLink.objects.count()
    pause_s = min(LONGEST_S, took_s * links / BUSY)
    if until is not None:
        pause_s = min(pause_s, (until - now) / timedelta(seconds=1))
    if pause_s > BEAT_S:
        with redis_answers("store a mark"):
            redis_client().set(_name(link.pk), seen.mark(link), px=int(pause_s * 1000))


def sample(link: ClusterLink, *, now: datetime) -> bool:
    """Store samples of a link at rest, and when its partitions were in sync; return False if it needs a pass instead.

    The time holds for all partitions that are not ``behind``. A partition of a mirror that is not ACTIVE therefore needs a
    pass, which checks each; so does a partition that copies late records: it may raise an alarm (``reconciling.tombstones``).
    """
    key = link.link_uuid.hex
    readings = jobs.read_readings(settings.REDIS_URL, key, signing_keys.link_signer(key))
    if jobs.has_kept(settings.REDIS_URL, key):
        return False
    mirrors: dict[int, tuple[str, str]] = {}  # ACTIVE mirrors, by primary key: engine name and topic ids
    columns = ("pk", "first_link_uuid", "source_topic_id", "mirror_topic_id")
    for pk, first, source_id, mirror_id in link.mirrors.filter(state=MirrorState.ACTIVE).order_by().values_list(*columns):
        mirrors[pk] = engine_name_of(pk, first=first, link=link.link_uuid), topic_ids_of(source_id, mirror_id)
    rows = MirrorPartition.objects.filter(mirror__link=link, partition__lt=F("mirror__num_partitions")).order_by()
    rows = rows.filter(Q(mirror__state=MirrorState.ACTIVE) | Q(behind=False))
    found: list[Any] = list(rows.values_list(*_COLUMNS, named=True))
    levels: list[datetime] = []
    moved: list[tuple[datetime, int, PartitionProgress]] = []
    for row in found:
        name, topic_ids = mirrors.get(row.mirror_id, ("", ""))
        report = readings.latest.get(f"{name}/{row.partition}")
        if report is None or report.hold_id != row.hold_id or report.topic_ids != topic_ids or row.observed_at is None:
            return False
        level_at = _level_at(report)
        if not row.behind:
            if level_at is None or not is_fresh(level_at, now=now, within=LEAST):
                return False
            levels.append(level_at)
        if (row.behind or _moved(row, report)) and now - row.observed_at >= sampling.EVERY:
            moved.append((row.observed_at, row.pk, report))
    due = {pk: report for _, pk, report in sorted(moved, key=itemgetter(0, 1))[: sampling.SAMPLES]}
    if due and locks.claim(f"samples:{link.pk}", ttl_ms=observing.SAMPLES_MS) and not _store(link, due, now=now):
        return False
    sampling.note_level_at(link, min(levels, default=None), now=now)
    return True


def _store(link: ClusterLink, reports: Mapping[int, PartitionProgress], *, now: datetime) -> bool:
    """Store reports, by primary key of their rows; return False, and store nothing, if any partition copied late records."""
    rows = {reports[row.pk].key: row for row in MirrorPartition.objects.filter(pk__in=reports)}
    sampling.lift_level(link, rows.values())
    late = (lateness_of(rows[report.key], report) for report in reports.values() if report.key in rows)
    if any(lateness is not None and lateness.moved for lateness in late):
        return False
    if sampling.store_progress(rows=rows, reports=reports.values(), now=now):
        seen = look([link])[0]
        mark = seen.mark(link)
        show_change(link.pk)
        link.sequence += 1
        if redis_client().get(_name(link.pk)) == mark:  # only what pages show has changed: the rest continues
            redis_client().set(_name(link.pk), seen.mark(link), keepttl=True)
    return True


def _level_at(report: PartitionProgress) -> datetime | None:
    """Return when a partition that is being copied was last complete, as in ``sampling``."""
    return completed_at(report) if report.phase is PartitionPhase.COPYING else None


def _moved(row: Any, report: PartitionProgress) -> bool:
    now = (report.mirror_end, report.source_high_watermark, report.bytes_copied)
    return now != (row.mirror_end, row.last_high_watermark, row.hold_bytes) or bool(row.bytes_per_s) != bool(report.bytes_per_s)


def is_at_rest(link: ClusterLink, mirrors: Sequence[MirrorTopic], verdicts: Sequence[Verdict | None]) -> bool:
    """Return whether nothing is in progress: each mirror that should be copied is copied, the others wait for an action.

    ``verdicts``: of the mirrors that should be copied.
    """
    if link.state != LinkState.ACTIVE or link.deletion_requested_at is not None or link.engine_error or not verdicts:
        return False
    copied = all(verdict is not None and verdict.phase is PartitionPhase.COPYING for verdict in verdicts)
    return copied and all(mirror.state in _RESTING and mirror.deletion_requested_at is None for mirror in mirrors)


def _name(link_id: int) -> str:
    return f"console:rest:{link_id}"


def _pace(link_id: int) -> str:
    return f"console:pace:{link_id}"
