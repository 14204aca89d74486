"""Reports that copy workers keep until they are taken in: the last one of each hold, and one a minute of gaps.

Of all others only the newest one is there, whether it was read or not. What is kept stays in Redis until a round of its link
has taken it in along with the reports, so that one writer at a time counts, and all are measured by the same lives.
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
    """What is kept of a link: the names of all, and what counts of it, the earliest first."""

    names: dict[str, str]  # by name: the mirror it tells of, "" where it counts for none
    told: tuple[PartitionProgress, ...]


def read(link: ClusterLink, mirrors: Sequence[MirrorTopic]) -> Kept:
    """Answer what is kept of a link's mirrors; it stays until it is forgotten."""
    found = jobs.read_kept(settings.REDIS_URL, plans.link_key(link), plans.signer_of(link))
    for name, one in found.items():
        if one is None:  # kept by another version while a deployment rolls
            _log.warning("ending.unreadable", name=name)
    told = tuple(placing.of_these_lives(mirrors, [one for one in found.values() if one is not None]))
    counting = {id(one) for one in told}
    names = {name: one.key.rpartition("/")[0] if one is not None and id(one) in counting else "" for name, one in found.items()}
    return Kept(names=names, told=told)


def forget(link: ClusterLink, kept: Kept, *, but_of: Collection[str]) -> None:
    """Let go of what has been taken in, but for that of some mirrors (by the engine's name): the next round reads it again."""
    jobs.forget_kept(
        settings.REDIS_URL, plans.link_key(link), [name for name, mirror in kept.names.items() if mirror not in but_of]
    )
