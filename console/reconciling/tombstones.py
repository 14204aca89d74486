"""Detects that a mirror may have missed the deletion of a key: it was behind for longer than its source keeps tombstones.

Theory of operation. To delete a key in a compacted topic, a producer writes a tombstone. The source's log cleaner removes the
key's older records first, and the tombstone no sooner than ``delete.retention.ms`` after it was written. A mirror that was
complete at some time and is complete again within that span has received every tombstone that was written in between. If it
takes longer, it may find neither the record nor the tombstone, while it keeps the record that it had copied before. Nothing
differs at the offsets that are copied afterwards, so continuous verification, which compares only ranges that are not verified
yet, does not find it. For a first copy, the time at which it began counts: everything that it read was removed, if at all,
after that.

    complete          tombstone written      tombstone removed          copied again
    ───┼────────────────────┼──────────────────────┼─────────────────────────┼───►
       └─ ``since``         └─ delete.retention.ms ┘                ``until`` ┘

The alarm (``TOMBSTONES_MISSED``) is raised if anything is copied that late. It lasts until a verification run of the whole
mirror that started afterwards finds no difference. Ranges that were verified before the mirror was complete again are verified
again.

The source's cleanup policy is read only from time to time, and not at all while the mirror is paused or cannot reach the
source. Therefore not only the current policy counts, but also those of the readings before and after, and of all in between
(``Cleaned``). Lateness before the next reading is stored with the row and checked again after that reading. A policy that was
set and removed between two readings is detected by its effect: the copy has a gap where a tombstone was removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Q

from console.models import MirrorPartition, MirrorTopic
from console.models.mirrors import AHEAD, TOMBSTONES_MISSED
from console.reconciling import coverage, transition_errors
from console.reconciling.lateness import LEAST, Lateness, lateness_kept, lateness_of
from console.reconciling.plans import mirror_key
from linkengine.domain.configs import Cleaned, cleaned_before, kept_since, tombstones_would_be_kept_ms
from linkengine.domain.moments import utc_words
from linkengine.domain.plans import PartitionProgress
from linkengine.domain.states import GapReason

_log = structlog.get_logger(__name__)
_TooLate = tuple[Lateness, int]  # with the time for which the source kept tombstones, in ms


def note_lateness(
    *,
    mirrors: Iterable[MirrorTopic],
    rows: Mapping[str, MirrorPartition],
    reports: Sequence[PartitionProgress],
    now: datetime,
) -> bool:
    """Compare reports with their rows before the rows are updated. Return whether the alarm changed, which pages show."""
    seen = {report.key: report for report in reports}
    changed = False
    for mirror in mirrors:
        late = list(_too_late(mirror, rows, seen))
        if late:
            changed |= _handle_late(mirror, late, now=now)
    return changed


def cleaned(mirror: MirrorTopic, source_configs: Mapping[str, str], *, now: datetime) -> dict[str, object]:
    """Return what to remember of the source's cleaning after these configs were read, as fields of the mirror's row."""
    known = cleaned_before(
        mirror.source_configs, source_configs, known=_known(mirror), needed=lambda former: _is_needed(mirror, former), now=now
    )
    return {"cleaned_until": known.until, "cleaned_kept_ms": known.kept_ms} if known else {}


def cleaned_unseen(mirror: MirrorTopic, source_configs: Mapping[str, str], *, now: datetime) -> dict[str, object]:
    """Return the same when two topics are connected again that were independent, so that their configs were not read."""
    sides, known = (mirror.source_configs, source_configs), _known(mirror)
    times = [tombstones_would_be_kept_ms(configs) for configs in sides] + ([known.kept_ms] if known else [])
    return {"cleaned_until": now, "cleaned_kept_ms": min(times)}


def kept_late(mirrors: Iterable[MirrorTopic]) -> set[int]:
    """Return the mirrors (primary keys) with stored lateness that the next reading of configs is to check."""
    late = MirrorPartition.objects.filter(mirror__in=[mirror.pk for mirror in mirrors]).exclude(late_until=None)
    return set(late.values_list("mirror_id", flat=True))


def judge(mirror: MirrorTopic, *, asked_at: datetime, now: datetime) -> None:
    """Check the lateness that was stored before the source's configs, now in the row, were requested; then delete it."""
    with transaction.atomic():
        rows = MirrorPartition.objects.select_for_update().filter(mirror=mirror, late_until__lte=asked_at - AHEAD)
        known = list(rows)
        kept = [late for row in known if (late := lateness_kept(row)) is not None]
        found = [
            (late, kept_ms) for late in kept if (kept_ms := _kept_ms(mirror, late)) is not None and _is_over(late, kept_ms)
        ]
        if found:
            _handle_late(mirror, found, now=now)
        MirrorPartition.objects.filter(pk__in=[row.pk for row in known]).update(late_since=None, late_until=None)


def _too_late(
    mirror: MirrorTopic, rows: Mapping[str, MirrorPartition], seen: Mapping[str, PartitionProgress]
) -> Iterator[_TooLate]:
    for number in range(mirror.num_partitions):
        key = f"{mirror_key(mirror)}/{number}"
        row, report = rows.get(key), seen.get(key)
        late = lateness_of(row, report) if row is not None and report is not None else None
        if late is None or report is None:
            continue
        kept_ms = _kept_ms(mirror, late)
        if kept_ms is None and _has_compaction_gaps(report):
            kept_ms = tombstones_would_be_kept_ms(mirror.source_configs)
        if kept_ms is not None and _is_over(late, kept_ms):
            yield late, kept_ms


def _kept_ms(mirror: MirrorTopic, late: Lateness) -> int | None:
    return kept_since(late.since - AHEAD, present=mirror.source_configs, known=_known(mirror))


def _has_compaction_gaps(report: PartitionProgress) -> bool:
    return any(gap.reason is GapReason.COMPACTED for gap in report.gaps)


def _is_over(late: Lateness, kept_ms: int) -> bool:
    return _ms(late.until - late.since) > _span_ms(kept_ms)


def _span_ms(kept_ms: int) -> float:
    return max(_ms(LEAST), kept_ms)


def _known(mirror: MirrorTopic) -> Cleaned | None:
    if mirror.cleaned_until is None or mirror.cleaned_kept_ms is None:
        return None
    return Cleaned(until=mirror.cleaned_until, kept_ms=mirror.cleaned_kept_ms)


def _is_needed(mirror: MirrorTopic, known: Cleaned) -> bool:
    """Return whether any partition was last complete before that time, or has stored lateness."""
    rows, long_ago = MirrorPartition.objects.filter(mirror=mirror), known.until + AHEAD
    level_later = Q(behind=False, mirror__link__level_at__gt=long_ago)
    lacking = rows.filter(whole_at__lte=long_ago).exclude(level_later)
    return lacking.exists() or rows.exclude(late_until=None).exists()


def _handle_late(mirror: MirrorTopic, late: Collection[_TooLate], *, now: datetime) -> bool:
    alarmed = any(error.code == TOMBSTONES_MISSED for error in mirror.transition_errors.all())
    moved = [(lateness, kept_ms) for lateness, kept_ms in late if lateness.moved]
    whole = [
        lateness.partition for lateness, kept_ms in late if lateness.is_whole(_span_ms(kept_ms)) and (alarmed or lateness.moved)
    ]
    with transaction.atomic():
        if whole:
            coverage.doubt(mirror=mirror, partitions=whole, now=now)
        if not moved:
            return False
        first, kept_ms = min(moved, key=lambda found: found[0].since)
        return _alarm(mirror, first, kept_ms=kept_ms, now=now)


def _alarm(mirror: MirrorTopic, first: Lateness, *, kept_ms: int, now: datetime) -> bool:
    message = (
        f"'{mirror.name}' was behind its source from {utc_words(round(first.since.timestamp() * 1000))} on (partition "
        f"{first.partition}) for longer than the source keeps tombstones (delete.retention.ms={kept_ms}). Keys that were "
        "deleted on the source during that time may still have their old records on the mirror."
    )
    changed = transition_errors.note(mirror=mirror, code=TOMBSTONES_MISSED, message=message, now=now)
    if changed:
        _log.warning("tombstones.missed", mirror=mirror.name, link=mirror.link.name, since=first.since.isoformat())
    return changed


def _ms(span: timedelta) -> float:
    return span.total_seconds() * 1000
