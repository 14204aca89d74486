"""Reports of copy workers that are kept until they are processed.

The last report of each lease is kept, and once a minute a report with gaps. Of all other reports only the newest exists, read
or not. Kept reports stay in Redis until a reconcile pass of their link has processed them together with the current ones, so
that a single writer counts them, and all are compared with the same topic ids.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog
from django.conf import settings

from console.models import ClusterLink, MirrorTopic
from console.reconciling import placing, plans
from linkengine import jobs
from linkengine.domain.plans import PartitionProgress

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """The kept reports of a link: the names of all, and those that count, oldest first."""

    names: dict[str, str]  # name of the report -> its mirror, or "" if it does not count
    reports: tuple[PartitionProgress, ...]


def read(link: ClusterLink, mirrors: Sequence[MirrorTopic]) -> Kept:
    """Return the kept reports of a link's mirrors. They stay until ``forget`` is called."""
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


def forget(link: ClusterLink, kept: Kept, *, but_of: Collection[str]) -> None:
    """Delete the reports that were processed, except those of some mirrors (by the engine's key): they are read again."""
    jobs.forget_kept(
        settings.REDIS_URL, plans.link_key(link), [name for name, mirror in kept.names.items() if mirror not in but_of]
    )
