"""The last words of slices: what their tasks saw and did to the end, on its way to the ledgers and totals.

A report tells of half a second, and only the newest one is kept: once the next slice reports, nobody reads the last one of the
slice before. So the answer of a slice counts as well, be it a minute late. It is kept with the slice's row until a round of its
link takes it in along with the reports, so that one writer at a time counts, and all are measured by the same lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import structlog

from console.models import ClusterLink, CopySlice, MirrorTopic
from console.reconciling import slicing
from linkengine import jobs
from linkengine.domain.plans import PartitionProgress

_log = structlog.get_logger(__name__)
Ended = dict[int, list[PartitionProgress]]  # by the number of the slice's row


def keep(row: CopySlice, outcomes: Iterable[PartitionProgress]) -> None:
    """Keep what the tasks of a slice answered, of partitions to which something happened."""
    news = [jobs.write_report(one) for one in outcomes if _is_news(one)]
    CopySlice.objects.filter(pk=row.pk).update(endings="\n".join(news))


def read(link: ClusterLink, mirrors: Sequence[MirrorTopic]) -> Ended:
    """Answer what is kept of a link's mirrors, the earliest slice first; it stays until it is forgotten."""
    slices = CopySlice.objects.filter(link=link).exclude(endings="").order_by("started_at", "id")
    return {
        number: slicing.of_these_lives(mirrors, chain.from_iterable(map(_report, text.splitlines())))
        for number, text in slices.values_list("pk", "endings")
    }


def forget(kept: Ended) -> None:
    """Let go of what has been taken in of these slices, but for what is kept for the next round."""
    CopySlice.objects.filter(pk__in=[number for number, rest in kept.items() if not rest]).update(endings="")
    for number, rest in kept.items():
        if rest:
            CopySlice.objects.filter(pk=number).update(endings="\n".join(map(jobs.write_report, rest)))


def _is_news(one: PartitionProgress) -> bool:
    return bool(one.bytes_copied or one.gaps or one.set_backs) or one.source_kept is not None


def _report(line: str) -> list[PartitionProgress]:
    try:
        return [jobs.read_report(line)]
    except ValueError as error:  # kept by another version while a deployment rolls
        _log.warning("ending.unreadable", error=str(error))
        return []
