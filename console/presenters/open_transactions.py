"""View model of records held back by open transactions of the source: they cannot be copied, although the lag is 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from console.presenters import numbers
from console.presenters.links import source_servers

if TYPE_CHECKING:
    from console.models import MirrorPartition, MirrorTopic

SHOWN_AFTER = timedelta(seconds=10)  # most transactions are shorter; a note that appears and disappears is of no use
NAMED = 3  # partitions that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """A note on a mirror whose copy waits for an open transaction."""

    sentence: str
    places: str
    command: str  # shell command that finds the transaction


def held_back(mirror: MirrorTopic, partitions: Sequence[MirrorPartition], *, now: datetime) -> HeldBack | None:
    """Return the note; None if nothing is held back, if it is unknown, or for ``SHOWN_AFTER`` at first."""
    waiting = [row for row in partitions if row.held_back and row.lag == 0 and _is_long(row, now)]
    if not waiting:
        return None
    offsets = sum(row.held_back or 0 for row in waiting)
    named = ", ".join(f"partition {row.partition} from offset {numbers.count(row.source_end)}" for row in waiting[:NAMED])
    more = len(waiting) - NAMED
    first = waiting[0].partition
    return HeldBack(
        sentence=f"{numbers.plural(offsets, 'offset')} held back by an open transaction.",
        places=f"{named} and {numbers.plural(more, 'more partition')}" if more > 0 else named,
        command=f"kafka-transactions.sh --bootstrap-server {_server(mirror)} find-hanging --topic {mirror.source_topic} "
        f"--partition {first}",
    )


def _is_long(row: MirrorPartition, now: datetime) -> bool:
    return row.caught_up_at is None or now - row.caught_up_at > SHOWN_AFTER


def _server(mirror: MirrorTopic) -> str:
    return source_servers(mirror.link).split(",", maxsplit=1)[0]
