"""The current progress of partitions: the newest report in Redis where there is one, else the row as it was stored last.

Copy workers report to Redis several times a second. The database gets a row at once where something has to be acted on or
must survive (phase, error, owner, end of a mirror), else a sample now and then (``console.reconciling.sampling``). So a row
read from the database is out of date; what shows or judges offsets, lags, rates or phases brings it up to date here first.

While Redis is away the stored values stay, with the times at which they were seen: a lag whose source was seen more than 15 s
ago is unknown (``MirrorPartition.lag``), never 0.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db.models import BooleanField, Case, Q, QuerySet, When

from console.config import signing_keys
from console.models import MirrorPartition, MirrorTopic
from console.models.mirrors import AHEAD, engine_name_of, is_fresh
from linkengine.coordination.progress import Readings, read_readings
from linkengine.domain.errors import ErrorCode
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.plans import PartitionPhase, PartitionProgress, topic_ids_of
from linkengine.domain.states import COPYING, MirrorState, StopReason

SILENT = timedelta(seconds=5)  # then the rate is unknown
SAME = timedelta(milliseconds=200)  # two readings of one report differ by less, two reports of one phase by more
FEW = 2_000  # partitions of a link that are read by name; of more, the whole link is read and stays decoded
NO_READINGS = Readings(latest={}, former={})
AWAY_S = 5.0  # after a failure Redis is not asked again for so long: each try may take two seconds
# The source's end has moved on unseen: an old one would make up a lag, perhaps 0, when the truth is unknown.
_SOURCE_UNSEEN = (PartitionPhase.SOURCE_UNREACHABLE, PartitionPhase.LINK_BROKEN)
_TIMES = ("caught_up_at", "last_source_seen_at", "observed_at")
_COPIED = ("source_start", "source_end", "mirror_start", "mirror_end", "last_timestamp_ms")
_DRAINING = Q(stop_reason=StopReason.PROMOTE, drained_at=None, fencing_at=None)
# Mirrors whose copy worker has to report; a mirror that stops is not copied beyond its promotion.
EXPECTED = Q(state__in=COPYING, num_partitions__gt=0, deletion_requested_at=None, drill=None) & (
    ~Q(state=MirrorState.PENDING_STOPPED) | _DRAINING
)
_ROW = tuple(column.attname for column in MirrorPartition._meta.concrete_fields)  # noqa: SLF001 - as ``Model.from_db`` takes them
_MIRROR = (  # as CurrentMirror takes them
    "pk",
    "name",
    "state",
    "state_since",
    "first_link_uuid",
    "source_topic_id",
    "mirror_topic_id",
    "link_id",
    "link__name",
    "link__state_since",
    "link__link_uuid",
    "link__level_at",
    "link__destination__cluster_id",
    "drill_id",
    "expected",
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CurrentMirror:
    """A mirror with the current progress of its partitions, for sums over many; cheaper than models of mirror and link."""

    pk: int
    name: str
    state: str
    state_since: datetime
    first_link_uuid: UUID | None
    source_topic_id: str
    mirror_topic_id: str
    link_id: int
    link: str
    link_since: datetime
    link_uuid: UUID
    level_at: datetime | None
    cluster_id: str
    drill_id: int | None
    expected: bool  # by ``EXPECTED``
    partitions: list[MirrorPartition] = field(default_factory=list)


# --- readers ----------------------------------------------------------------------------------------------------------


def refresh(mirrors: Iterable[MirrorTopic], *, now: datetime, insist: bool = False) -> None:
    """Bring the partitions that were read with these mirrors up to date, unsaved. One request to Redis for each link.

    ``insist``: send the request also within ``AWAY_S`` of a failed one, for tasks that act on the figures.
    """
    by_link: dict[int, list[MirrorTopic]] = defaultdict(list)
    for mirror in mirrors:
        by_link[mirror.link_id].append(mirror)
    for some in by_link.values():
        link = some[0].link
        rows = {f"{mirror.engine_name}/{row.partition}": row for mirror in some for row in mirror.partitions.all()}
        lives = {mirror.engine_name: topic_ids_of(mirror.source_topic_id, mirror.mirror_topic_id) for mirror in some}
        _bring_up_to_date(rows, lives, link_key=link.link_uuid.hex, level_at=link.level_at, now=now, insist=insist)


def current(mirrors: QuerySet[MirrorTopic], *, now: datetime, insist: bool = False) -> list[CurrentMirror]:
    """Return mirrors with the current progress of all their partitions. One query, and one request to Redis for each link."""
    chosen = MirrorTopic.objects.filter(pk__in=mirrors.order_by().values("pk")).order_by("pk", "partitions__partition")
    known: dict[int, CurrentMirror] = {}
    chosen = chosen.annotate(expected=Case(When(EXPECTED, then=True), default=False, output_field=BooleanField()))
    for values in chosen.values_list(*_MIRROR, *(f"partitions__{name}" for name in _ROW)):
        mirror = known.get(values[0])
        if mirror is None:
            mirror = known[values[0]] = CurrentMirror(*values[: len(_MIRROR)])
        row = values[len(_MIRROR) :]
        if row[0] is not None:  # its primary key: a mirror that has no partitions yet is joined with nothing
            mirror.partitions.append(MirrorPartition.from_db(chosen.db, _ROW, row))
    by_link: dict[int, list[CurrentMirror]] = defaultdict(list)
    for mirror in known.values():
        by_link[mirror.link_id].append(mirror)
    for some in by_link.values():
        names = {one.pk: engine_name_of(one.pk, first=one.first_link_uuid, link=one.link_uuid) for one in some}
        lives = {names[one.pk]: topic_ids_of(one.source_topic_id, one.mirror_topic_id) for one in some}
        rows = {f"{names[one.pk]}/{row.partition}": row for one in some for row in one.partitions}
        _bring_up_to_date(rows, lives, link_key=some[0].link_uuid.hex, level_at=some[0].level_at, now=now, insist=insist)
    return list(known.values())


class Outage:
    """The monotonic time until which pages do not wait for Redis again."""

    until_s = 0.0


def _bring_up_to_date(
    rows: Mapping[str, MirrorPartition],
    lives: Mapping[str, str],
    *,
    link_key: str,
    level_at: datetime | None,
    now: datetime,
    insist: bool,
) -> None:
    if not rows:
        return
    readings = _read(link_key, rows, insist=insist)
    for key, row in rows.items():
        life = lives[key.rpartition("/")[0]]
        former, latest = (_of_topics(reports.get(key), life) for reports in (readings.former, readings.latest))
        if former is not None and is_former_news(former, latest, row):
            apply(row, former)
        if latest is not None and is_new(latest, row, now):
            apply(row, latest)
        elif level_at is not None and not row.behind and row.observed_at is not None:
            row.observed_at = max(row.observed_at, level_at)  # idle partitions are not stored again and again
        forget_old(row, now)


def _of_topics(report: PartitionProgress | None, life: str) -> PartitionProgress | None:
    """Drop a report on topics that the mirror does not join any more: a restore has made one of them anew since."""
    return report if report is not None and report.topic_ids in {"", life} else None


def _read(link_key: str, rows: Mapping[str, MirrorPartition], *, insist: bool) -> Readings:
    """Return the reports on partitions; none while Redis is away."""
    if not insist and time.monotonic() < Outage.until_s:
        return NO_READINGS
    some = list(rows) if len(rows) <= FEW else None
    try:
        return read_readings(settings.REDIS_URL, link_key, signing_keys.link_signer(link_key), keys=some)
    except CoordinationUnavailableError as error:
        _log.warning("progress.unavailable", error=str(error))
        Outage.until_s = time.monotonic() + AWAY_S
        return NO_READINGS


# --- a report and its row ---------------------------------------------------------------------------------------------


def is_new(report: PartitionProgress, row: MirrorPartition, now: datetime) -> bool:
    """Return whether a report says something that the row does not have yet."""
    if row.observed_at is None or row.observed_at > now + AHEAD or report.hold_id != row.hold_id:
        return True
    later_by = time_of(report.observed_at_ms) - row.observed_at
    return later_by > (SAME if report.phase == row.phase else timedelta(0))


def is_former_news(former: PartitionProgress, latest: PartitionProgress | None, row: MirrorPartition) -> bool:
    """Return whether the row lacks the end of a hold that another one has followed since the row was stored."""
    if latest is None or latest.hold_id in {row.hold_id, former.hold_id} or former.hold_id == row.former_hold_id:
        return False
    return row.observed_at is None or time_of(former.observed_at_ms) > row.observed_at


def apply(row: MirrorPartition, report: PartitionProgress) -> None:
    """Copy a report into its row, unsaved. What the report does not know stays as it was."""
    count(row, report)
    row.bytes_per_s, row.records_per_s = report.bytes_per_s, report.records_per_s
    _copy_known(row, report)
    if report.phase in _SOURCE_UNSEEN:
        row.source_end = None
    elif report.source_end is not None and report.source_seen_at_ms is not None:
        row.last_source_end, row.last_source_seen_at = report.source_end, time_of(report.source_seen_at_ms)
        row.last_high_watermark = report.source_high_watermark  # None: of a copier that does not tell
    if row.mirror_start is not None and row.mirror_end is not None and row.mirror_start > row.mirror_end:
        row.mirror_start = None  # two readings of different moments; the next report has both
    if report.last_fetch_offset is not None:
        row.last_source_fetch_offset = report.last_fetch_offset
    if report.source_epoch is not None and report.mirror_end is not None:
        row.source_epoch, row.source_epoch_end = report.source_epoch, report.mirror_end
    if report.caught_up_at_ms is not None:
        row.caught_up_at = time_of(report.caught_up_at_ms)
    row.since_ms = report.since_ms
    row.phase, row.error_code, row.error_message = report.phase, report.error_code, report.error_message
    if row.stopped_end is not None and row.error_code == ErrorCode.MIRROR_WAS_STOPPED:  # of a copier that came late: no news
        row.error_code = row.error_message = ""
    row.observed_at = time_of(report.observed_at_ms)


def count(row: MirrorPartition, report: PartitionProgress) -> bool:
    """Add what is new in the counters of a report, unsaved; return whether anything was."""
    turn_to(row, report.hold_id)
    new_bytes = max(0, report.bytes_copied - row.hold_bytes)  # what was kept may be older than what was reported
    new_records = max(0, report.records_copied - row.hold_records)
    row.bytes_copied += new_bytes
    row.records_copied += new_records
    row.hold_bytes, row.hold_records = row.hold_bytes + new_bytes, row.hold_records + new_records
    return bool(new_bytes or new_records)


def turn_to(row: MirrorPartition, hold_id: str) -> None:
    """Let the row's counters be those of this hold; the last ones stay as the former ones."""
    if hold_id == row.hold_id:
        return
    known, former = (row.hold_id, row.hold_bytes, row.hold_records), (row.former_bytes, row.former_records)
    counted = former if hold_id == row.former_hold_id else (0, 0)
    row.hold_id, (row.hold_bytes, row.hold_records) = hold_id, counted
    row.former_hold_id, row.former_bytes, row.former_records = known


def forget_old(row: MirrorPartition, now: datetime) -> None:
    """Make unknown, unsaved, rates of a silent partition, and what was seen ahead of now: a clock was set back since.

    The source's end stays with the time at which it was seen; ``MirrorPartition.lag`` is unknown once that is too long ago.
    """
    if row.last_source_seen_at is not None and row.last_source_seen_at > now + AHEAD:
        row.source_end = None
    if row.observed_at is not None and not is_fresh(row.observed_at, now=now, within=SILENT):
        row.bytes_per_s = row.records_per_s = None
    for name in _TIMES:
        at = getattr(row, name)
        if at is not None and at > now + AHEAD:
            setattr(row, name, None)


def time_of(unix_ms: int) -> datetime:
    """Return a time of a report."""
    return datetime.fromtimestamp(unix_ms / 1000, tz=UTC)


def _copy_known(row: MirrorPartition, report: PartitionProgress) -> None:
    for name in _COPIED:
        value = getattr(report, name)
        if value is not None and not (name == "mirror_end" and row.stopped_end is not None):  # the fence is where it ends
            setattr(row, name, value)
    if row.mirror_end is not None and report.unproven_end is not None:  # another producer may have made it longer, not shorter
        row.mirror_end = min(row.mirror_end, report.unproven_end)
