"""The current progress of partitions: the newest report in Redis if there is one, otherwise the stored row.

Copy workers report to Redis several times a second. A row is stored immediately if the console has to act on the report or a
crash must not lose it (phase, error, owner, end of a mirror), otherwise as a sample (``console.reconciling.sampling``). A row
read from the database is therefore out of date. All code that shows or evaluates offsets, lags, rates or phases updates the
row here first.

While Redis is not available, the stored values remain, with the times at which they were seen: a lag whose source was seen
more than 15 s ago is unknown (``MirrorPartition.lag``), never 0.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db.models import BooleanField, Case, Q, QuerySet, When
from django.db.models.base import ModelState

from console.config import signing_keys
from console.models import MirrorPartition, MirrorTopic
from console.models.mirrors import AHEAD, engine_name_of, is_fresh
from linkengine.coordination.progress import Readings, read_news, read_readings
from linkengine.domain.plans import PartitionPhase, PartitionProgress, topic_ids_of
from linkengine.domain.states import COPYING, MirrorState, StopReason
from linkengine.domain.workers import CoordinationUnavailableError

SILENT = timedelta(seconds=5)  # the rate of a partition without a report for longer is unknown
# The time of a report is converted to this process's clock at each reading. Two readings of the same report differ by less than
# this; two reports of the same phase are further apart.
SAME = timedelta(milliseconds=200)
FEW = 2_000  # up to so many partitions are read by key; for more, all reports of the link are read, decoded and cached
NO_READINGS = Readings(latest={}, former={}, names={})
AWAY_S = 5.0  # pause after a failed request to Redis: an attempt may take two seconds
# The source's end is not visible: an old one would yield a lag, perhaps 0, although the lag is unknown.
_SOURCE_UNSEEN = (PartitionPhase.SOURCE_UNREACHABLE, PartitionPhase.LINK_BROKEN)
_TIMES = ("caught_up_at", "last_source_seen_at", "observed_at")
_COPIED = ("source_start", "source_end", "mirror_start", "mirror_end", "last_timestamp_ms")
_DRAINING = Q(stop_reason=StopReason.PROMOTE, drained_at=None, fencing_at=None)
# Mirrors whose copy worker has to report. A mirror that is being stopped is copied only until its promotion has drained it.
EXPECTED = Q(state__in=COPYING, num_partitions__gt=0, deletion_requested_at=None, drill=None) & (
    ~Q(state=MirrorState.PENDING_STOPPED) | _DRAINING
)


def is_expected(mirror: MirrorTopic) -> bool:
    """Return whether ``EXPECTED`` matches a mirror, without a query."""
    draining = mirror.stop_reason == StopReason.PROMOTE and mirror.drained_at is None and mirror.fencing_at is None
    copied = mirror.state in COPYING and (mirror.state != MirrorState.PENDING_STOPPED or draining)
    return copied and mirror.num_partitions > 0 and mirror.deletion_requested_at is None and mirror.drill_id is None


_UNREAD = {"complete_at", "late_since", "late_until"}  # no page shows them, and to decode a time costs as much as ten numbers
_ROW = tuple(
    column.attname
    for column in MirrorPartition._meta.concrete_fields  # noqa: SLF001 - in the order of ``Model.from_db``
    if column.attname not in _UNREAD
)
_MIRROR = (  # in the order of CurrentMirror's fields
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
    "link__in_sync_at",
    "link__destination__cluster_id",
    "drill_id",
    "expected",
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CurrentMirror:
    """A mirror with the current progress of its partitions; cheaper than models of mirror and link where many are read."""

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
    in_sync_at: datetime | None
    cluster_id: str
    drill_id: int | None
    expected: bool  # by ``EXPECTED``
    partitions: list[MirrorPartition] = field(default_factory=list)


# --- readers ----------------------------------------------------------------------------------------------------------


def refresh(mirrors: Iterable[MirrorTopic], *, now: datetime, insist: bool = False) -> None:
    """Update the prefetched partitions of mirrors with the newest reports, without saving. One request to Redis per link.

    ``insist``: send the request also within ``AWAY_S`` of a failed one; for tasks that act on the values.
    """
    by_link: dict[int, list[MirrorTopic]] = defaultdict(list)
    for mirror in mirrors:
        by_link[mirror.link_id].append(mirror)
    for group in by_link.values():
        link = group[0].link
        rows = {f"{mirror.engine_name}/{row.partition}": row for mirror in group for row in mirror.partitions.all()}
        topic_ids = {mirror.engine_name: topic_ids_of(mirror.source_topic_id, mirror.mirror_topic_id) for mirror in group}
        _update(rows, topic_ids, link_key=link.link_uuid.hex, in_sync_at=link.in_sync_at, now=now, insist=insist)


def current(mirrors: QuerySet[MirrorTopic], *, now: datetime, insist: bool = False) -> list[CurrentMirror]:
    """Return mirrors with the current progress of all their partitions. One query, and one request to Redis per link."""
    chosen = MirrorTopic.objects.filter(pk__in=mirrors.order_by().values("pk")).order_by("pk", "partitions__partition")
    known: dict[int, CurrentMirror] = {}
    chosen = chosen.annotate(expected=Case(When(EXPECTED, then=True), default=False, output_field=BooleanField()))
    database = chosen.db  # each reading of the attribute asks the database routers
    for values in chosen.values_list(*_MIRROR, *(f"partitions__{name}" for name in _ROW)):
        mirror = known.get(values[0])
        if mirror is None:
            mirror = known[values[0]] = CurrentMirror(*values[: len(_MIRROR)])
        row = values[len(_MIRROR) :]
        if row[0] is not None:  # the primary key; None: the mirror has no partitions yet
            mirror.partitions.append(_partition(database, row))
    by_link: dict[int, list[CurrentMirror]] = defaultdict(list)
    for mirror in known.values():
        by_link[mirror.link_id].append(mirror)
    for group in by_link.values():
        names = {mirror.pk: engine_name_of(mirror.pk, first=mirror.first_link_uuid, link=mirror.link_uuid) for mirror in group}
        topic_ids = {names[mirror.pk]: topic_ids_of(mirror.source_topic_id, mirror.mirror_topic_id) for mirror in group}
        rows = {f"{names[mirror.pk]}/{row.partition}": row for mirror in group for row in mirror.partitions}
        _update(rows, topic_ids, link_key=group[0].link_uuid.hex, in_sync_at=group[0].in_sync_at, now=now, insist=insist)
    return list(known.values())


def current_of(mirror: MirrorTopic, partitions: Iterable[MirrorPartition]) -> CurrentMirror:
    """Return a mirror that was read with its link, and whose partitions have their current progress, as ``current`` does."""
    link = mirror.link
    return CurrentMirror(
        pk=mirror.pk,
        name=mirror.name,
        state=mirror.state,
        state_since=mirror.state_since,
        first_link_uuid=mirror.first_link_uuid,
        source_topic_id=mirror.source_topic_id,
        mirror_topic_id=mirror.mirror_topic_id,
        link_id=mirror.link_id,
        link=link.name,
        link_since=link.state_since,
        link_uuid=link.link_uuid,
        in_sync_at=link.in_sync_at,
        cluster_id=link.destination.cluster_id,
        drill_id=mirror.drill_id,
        expected=is_expected(mirror),
        partitions=list(partitions),
    )


def news(link_keys: Sequence[str]) -> list[str]:
    """Return, by link key (UUID in hexadecimal), what changes when a copy worker reports a phase, error, owner or loss.

    One request to Redis. While Redis is not available, the same for each link.
    """
    if not link_keys or time.monotonic() < Outage.until_s:
        return ["unknown"] * len(link_keys)
    try:
        return read_news(settings.REDIS_URL, link_keys)
    except CoordinationUnavailableError as error:
        _begin_outage(error)
        return ["unknown"] * len(link_keys)


def _partition(database: str, values: Sequence[Any]) -> MirrorPartition:
    """Return a row of ``_ROW``, as ``Model.from_db`` does, which takes five times as long to send its signals."""
    row = MirrorPartition.__new__(MirrorPartition)
    row.__dict__ = dict(zip(_ROW, values, strict=True))
    state = row._state = ModelState()  # noqa: SLF001 - as in ``Model.__init__``
    state.db, state.adding = database, False
    return row


class Outage:
    """The monotonic time until which pages do not contact Redis again."""

    until_s = 0.0


def _update(
    rows: Mapping[str, MirrorPartition],
    topic_ids: Mapping[str, str],
    *,
    link_key: str,
    in_sync_at: datetime | None,
    now: datetime,
    insist: bool,
) -> None:
    if not rows:
        return
    readings = _read(link_key, rows, insist=insist)
    for key, row in rows.items():
        current_ids = topic_ids[key.rpartition("/")[0]]
        former, latest = _of_topics(readings.former.get(key), current_ids), _of_topics(readings.latest.get(key), current_ids)
        if former is not None and is_former_news(former, latest, row):
            apply(row, former)
        if latest is not None and is_new(latest, row, now):
            apply(row, latest)
        elif in_sync_at is not None and not row.behind and row.observed_at is not None:
            row.observed_at = max(row.observed_at, in_sync_at)  # rows of idle partitions are not stored repeatedly
        clear_outdated(row, now)


def _of_topics(report: PartitionProgress | None, topic_ids: str) -> PartitionProgress | None:
    """Return the report, or None if it is on earlier topics: a restore has created source or mirror topic again since."""
    return report if report is not None and report.topic_ids in {"", topic_ids} else None


def _read(link_key: str, rows: Mapping[str, MirrorPartition], *, insist: bool) -> Readings:
    """Return the reports on partitions; none while Redis is not available."""
    if not insist and time.monotonic() < Outage.until_s:
        return NO_READINGS
    keys = list(rows) if len(rows) <= FEW else None
    try:
        return read_readings(settings.REDIS_URL, link_key, signing_keys.link_signer(link_key), keys=keys)
    except CoordinationUnavailableError as error:
        _begin_outage(error)
        return NO_READINGS


def _begin_outage(error: CoordinationUnavailableError) -> None:
    _log.warning("progress.unavailable", error=str(error))
    Outage.until_s = time.monotonic() + AWAY_S


# --- a report and its row ---------------------------------------------------------------------------------------------


def is_new(report: PartitionProgress, row: MirrorPartition, now: datetime) -> bool:
    """Return whether a report is newer than the row. A row with a time ahead of now would hide all of them."""
    if row.observed_at is None or row.observed_at > now + AHEAD or report.copy_run_id != row.copy_run_id:
        return True
    later_by = time_of(report.observed_at_ms) - row.observed_at
    return later_by > (SAME if report.phase == row.phase else timedelta(0))


def is_former_news(former: PartitionProgress, latest: PartitionProgress | None, row: MirrorPartition) -> bool:
    """Return whether the row lacks ``former``, the last report of a copy run that ended after the row was stored."""
    if (
        latest is None
        or latest.copy_run_id in {row.copy_run_id, former.copy_run_id}
        or former.copy_run_id == row.former_copy_run_id
    ):
        return False
    return row.observed_at is None or time_of(former.observed_at_ms) > row.observed_at


def apply(row: MirrorPartition, report: PartitionProgress) -> None:
    """Copy a report into its row, without saving. Fields that are unknown in the report stay unchanged."""
    add_counters(row, report)
    row.bytes_per_s, row.records_per_s = report.bytes_per_s, report.records_per_s
    _copy_known(row, report)
    if report.phase in _SOURCE_UNSEEN:
        row.source_end = None
    elif report.source_end is not None and report.source_seen_at_ms is not None:
        row.last_source_end, row.last_source_seen_at = report.source_end, time_of(report.source_seen_at_ms)
        row.last_high_watermark = report.source_high_watermark  # None: of an older copy worker, which does not report it
    if row.mirror_start is not None and row.mirror_end is not None and row.mirror_start > row.mirror_end:
        row.mirror_start = None  # the two were read at different times; the next report has both
    if report.last_fetch_offset is not None:
        row.last_source_fetch_offset = report.last_fetch_offset
    if report.source_epoch is not None and report.mirror_end is not None:
        row.source_epoch, row.source_epoch_end = report.source_epoch, report.mirror_end
    if report.caught_up_at_ms is not None:
        row.caught_up_at = time_of(report.caught_up_at_ms)
    row.since_ms = report.since_ms
    row.phase, row.error_code, row.error_message = report.phase, report.error_code, report.error_message
    if row.stopped_end is not None:  # a late report, or the last error before the stop: the partition is not copied
        row.error_code = row.error_message = ""
    row.observed_at = time_of(report.observed_at_ms)


def add_counters(row: MirrorPartition, report: PartitionProgress) -> bool:
    """Add the increase of a report's counters to the row, without saving; return whether there was any."""
    use_counters_of(row, report.copy_run_id)
    new_bytes = max(0, report.bytes_copied - row.copy_run_bytes)  # a kept report may be older than the last one counted
    new_records = max(0, report.records_copied - row.copy_run_records)
    row.bytes_copied += new_bytes
    row.records_copied += new_records
    row.copy_run_bytes, row.copy_run_records = row.copy_run_bytes + new_bytes, row.copy_run_records + new_records
    return bool(new_bytes or new_records)


def use_counters_of(row: MirrorPartition, copy_run_id: str) -> None:
    """Make this copy run the current one of the row, without saving. The run that was current becomes the former one."""
    if copy_run_id == row.copy_run_id:
        return
    known, former = (row.copy_run_id, row.copy_run_bytes, row.copy_run_records), (row.former_bytes, row.former_records)
    counted = former if copy_run_id == row.former_copy_run_id else (0, 0)
    row.copy_run_id, (row.copy_run_bytes, row.copy_run_records) = copy_run_id, counted
    row.former_copy_run_id, row.former_bytes, row.former_records = known


def clear_outdated(row: MirrorPartition, now: datetime) -> None:
    """Set to unknown, without saving, the rates of a silent partition and times ahead of now (a clock was set back since).

    A time ahead of now would make a partition without reports look alive and in sync until the clock has passed it. Code that
    uses rows updated here does not check that again. The source's end stays, with the time at which it was seen;
    ``MirrorPartition.lag`` is unknown once that is too long ago.
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
    """Return a time of a report as a datetime."""
    return datetime.fromtimestamp(unix_ms / 1000, tz=UTC)


def _copy_known(row: MirrorPartition, report: PartitionProgress) -> None:
    for name in _COPIED:
        value = getattr(report, name)
        if value is not None and not (name == "mirror_end" and row.stopped_end is not None):  # a stop has recorded the end
            setattr(row, name, value)
    # before the tail check the log may include foreign writes, so its end shows only that the mirror has become shorter
    if row.mirror_end is not None and report.unproven_end is not None:
        row.mirror_end = min(row.mirror_end, report.unproven_end)
