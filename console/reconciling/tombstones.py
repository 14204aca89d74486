"""Tells when a mirror may have missed the deletion of a key: it was behind for longer than its source keeps tombstones.

Theory of operation. The source's cleaner removes a deleted key's record first, and its tombstone no sooner than
``delete.retention.ms`` after it was written. A copier that had everything at some time and has everything again within that
span has read each tombstone written between. Later it may find neither record nor tombstone, while the mirror keeps the record
it copied before: nothing differs at the offsets that are copied from then on, so nobody looks again. Of a first copy, the time
at which it began counts: what it read before it was removed was removed after that.

So the alarm is raised when anything is copied that late. It stands until a comparison of the whole mirror that began
afterwards finds all equal; and what was compared before the mirror had everything again is compared anew.

Which policy the source had meanwhile is read now and then only, and not at all while the mirror is paused or cannot reach it.
So what counts is not its policy of now but that of the readings before and after, and of all between (``Cleaned``). What was
late before the next reading is kept, and looked at again by that. A policy that came and went between two readings shows by
what it did: where a tombstone was removed, the copy has a gap.
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
from linkengine.domain.compaction import Cleaned, cleaned_before, kept_since, tombstones_would_be_kept_ms
from linkengine.domain.moments import utc_words
from linkengine.domain.plans import PartitionProgress
from linkengine.domain.states import GapReason

_log = structlog.get_logger(__name__)
_TooLate = tuple[Lateness, int]  # and for how long the source kept tombstones, in ms


def note_lateness(
    *,
    mirrors: Iterable[MirrorTopic],
    rows: Mapping[str, MirrorPartition],
    reports: Sequence[PartitionProgress],
    now: datetime,
) -> bool:
    """Compare reports with the rows before they are stored in them; answer whether a page would show something new."""
    seen = {one.key: one for one in reports}
    changed = False
    for mirror in mirrors:
        late = list(_too_late(mirror, rows, seen))
        if late:
            changed |= _doubt(mirror, late, now=now)
    return changed


def cleaned(mirror: MirrorTopic, source_configs: Mapping[str, str], *, now: datetime) -> dict[str, object]:
    """Answer, as fields of the row, what is to be remembered of the source's cleaning now that these configs were read."""
    known = cleaned_before(
        mirror.source_configs, source_configs, known=_known(mirror), needed=lambda one: _is_needed(mirror, one), now=now
    )
    return {"cleaned_until": known.until, "cleaned_kept_ms": known.kept_ms} if known else {}


def cleaned_unseen(mirror: MirrorTopic, source_configs: Mapping[str, str], *, now: datetime) -> dict[str, object]:
    """Answer the same where two topics that lived by themselves, and whose configs nobody read meanwhile, are joined again."""
    sides, known = (mirror.source_configs, source_configs), _known(mirror)
    times = [tombstones_would_be_kept_ms(one) for one in sides] + ([known.kept_ms] if known else [])
    return {"cleaned_until": now, "cleaned_kept_ms": min(times)}


def kept_late(mirrors: Iterable[MirrorTopic]) -> set[int]:
    """Pick the mirrors, by primary key, of which something late is kept for the next reading of configs."""
    late = MirrorPartition.objects.filter(mirror__in=[one.pk for one in mirrors]).exclude(late_until=None)
    return set(late.values_list("mirror_id", flat=True))


def judge(mirror: MirrorTopic, *, asked_at: datetime, now: datetime) -> None:
    """Look at what was kept as late before the source's configs, which the row has by now, were asked for; then forget it."""
    with transaction.atomic():
        rows = MirrorPartition.objects.select_for_update().filter(mirror=mirror, late_until__lte=asked_at - AHEAD)
        known = list(rows)
        late = [one for row in known if (one := lateness_kept(row)) is not None]
        found = [(one, kept_ms) for one in late if (kept_ms := _kept_ms(mirror, one)) is not None and _is_over(one, kept_ms)]
        if found:
            _doubt(mirror, found, now=now)
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
        if kept_ms is None and _has_holes(report):
            kept_ms = tombstones_would_be_kept_ms(mirror.source_configs)
        if kept_ms is not None and _is_over(late, kept_ms):
            yield late, kept_ms


def _kept_ms(mirror: MirrorTopic, late: Lateness) -> int | None:
    return kept_since(late.since - AHEAD, present=mirror.source_configs, known=_known(mirror))


def _has_holes(report: PartitionProgress) -> bool:
    return any(one.reason is GapReason.COMPACTED for one in report.gaps)


def _is_over(late: Lateness, kept_ms: int) -> bool:
    return _ms(late.until - late.since) > _span_ms(kept_ms)


def _span_ms(kept_ms: int) -> float:
    return max(_ms(LEAST), kept_ms)


def _known(mirror: MirrorTopic) -> Cleaned | None:
    if mirror.cleaned_until is None or mirror.cleaned_kept_ms is None:
        return None
    return Cleaned(until=mirror.cleaned_until, kept_ms=mirror.cleaned_kept_ms)


def _is_needed(mirror: MirrorTopic, known: Cleaned) -> bool:
    """Tell whether any partition lacks something since that time."""
    rows, long_ago = MirrorPartition.objects.filter(mirror=mirror), known.until + AHEAD
    level_later = Q(behind=False, mirror__link__level_at__gt=long_ago)
    lacking = rows.filter(whole_at__lte=long_ago).exclude(level_later)
    return lacking.exists() or rows.exclude(late_until=None).exists()


def _doubt(mirror: MirrorTopic, late: Collection[_TooLate], *, now: datetime) -> bool:
    alarmed = any(one.code == TOMBSTONES_MISSED for one in mirror.transition_errors.all())
    moved = [(one, kept_ms) for one, kept_ms in late if one.moved]
    whole = [one.partition for one, kept_ms in late if one.is_whole(_span_ms(kept_ms)) and (alarmed or one.moved)]
    with transaction.atomic():
        if whole:
            coverage.doubt(mirror=mirror, partitions=whole, now=now)
        if not moved:
            return False
        first, kept_ms = min(moved, key=lambda one: one[0].since)
        return _alarm(mirror, first, kept_ms=kept_ms, now=now)


def _alarm(mirror: MirrorTopic, first: Lateness, *, kept_ms: int, now: datetime) -> bool:
    message = (
        f"'{mirror.name}' did not hold all of its source from {utc_words(round(first.since.timestamp() * 1000))} on (partition "
        f"{first.partition}) for longer than the source keeps tombstones (delete.retention.ms={kept_ms}). Keys that were "
        "deleted there meanwhile may still have their old records here."
    )
    changed = transition_errors.note(mirror=mirror, code=TOMBSTONES_MISSED, message=message, now=now)
    if changed:
        _log.warning("tombstones.missed", mirror=mirror.name, link=mirror.link.name, since=first.since.isoformat())
    return changed


def _ms(span: timedelta) -> float:
    return span.total_seconds() * 1000
