"""Offsets that a stop has to copy or loses: one rule for its confirmation, its preview and its report.

A sum is known only if each partition of the mirror and of its source topic was measured within ``UNSEEN``
(``console.models.mirrors.shows_source_end``). Otherwise it is None, never 0: records may be in a partition that was added to
the source and not to the mirror yet, which happens while a mirror is paused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from console.models import MirrorPartition, MirrorTopic, SourceTopic


def source_partitions(mirrors: Iterable[MirrorTopic]) -> dict[int, int]:
    """Return the number of partitions of each mirror's source topic as last listed, 0 if it is not listed, by primary key.

    One query.
    """
    chosen = list(mirrors)
    listed = SourceTopic.objects.filter(
        link__in={mirror.link_id for mirror in chosen}, name__in={mirror.source_topic for mirror in chosen}
    )
    counts = {(topic.link_id, topic.name): topic.partitions for topic in listed}
    return {mirror.pk: counts.get((mirror.link_id, mirror.source_topic), 0) for mirror in chosen}


def unmeasured_partitions(mirror: MirrorTopic, rows: Iterable[MirrorPartition], *, source_partitions: int) -> list[int]:
    """Return the partitions without a row: those that only the source has, and those that were never reported."""
    reported = {row.partition for row in rows}
    return [number for number in range(max(mirror.num_partitions, source_partitions)) if number not in reported]


def records_at_risk(mirror: MirrorTopic, *, source_partitions: int) -> int | None:
    """Return the offsets that a failover now would not copy, including those behind open transactions; None if unknown."""
    rows = list(mirror.partitions.all())
    return missing_records(rows, partitions=max(mirror.num_partitions, source_partitions))


def missing_records(rows: Sequence[MirrorPartition], *, partitions: int) -> int | None:
    """Return the offsets that a failover now would not copy; None if unknown.

    ``partitions`` is the larger number of those of the mirror and of its source topic.
    """
    reported = {row.partition for row in rows}
    is_complete = all(number in reported for number in range(partitions))
    return sum_if_known([row.missing for row in rows]) if is_complete else None


def records_at_risk_of(mirrors: Sequence[MirrorTopic]) -> dict[int, int | None]:
    """Return ``records_at_risk`` of mirrors with prefetched partitions, by primary key. One query."""
    counts = source_partitions(mirrors)
    return {mirror.pk: records_at_risk(mirror, source_partitions=counts[mirror.pk]) for mirror in mirrors}


def records_to_copy(mirror: MirrorTopic, *, source_partitions: int) -> int | None:
    """Return the offsets that a promotion or reversal copies first; None if unknown."""
    rows = list(mirror.partitions.all())
    missing = unmeasured_partitions(mirror, rows, source_partitions=source_partitions)
    return None if missing else sum_if_known([row.lag for row in rows])


def sum_if_known(counts: Sequence[int | None]) -> int | None:
    """Return the sum; None if there are no counts or any of them is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
