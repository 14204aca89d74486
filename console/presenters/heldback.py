"""What waits behind open transactions of the source, in words: nothing to copy, and yet not everything is here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from console.presenters import numbers
from console.presenters.links import source_servers

if TYPE_CHECKING:
    from console.models import MirrorPartition, MirrorTopic

CALM = timedelta(seconds=10)  # ordinary transactions are over by then: a line that comes and goes tells nobody anything
NAMED = 3  # partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """A line about a mirror that stands before an open transaction."""

    sentence: str
    places: str
    command: str  # finds the transaction


def held_back(mirror: MirrorTopic, partitions: Sequence[MirrorPartition], *, now: datetime) -> HeldBack | None:
    """Answer the line; None where nothing waits, nobody knows, or it has not waited for long."""
    waiting = [row for row in partitions if row.held_back and row.lag == 0 and _for_long(row, now)]
    if not waiting:
        return None
    offsets = sum(row.held_back or 0 for row in waiting)
    verb = "waits" if offsets == 1 else "wait"
    named = ", ".join(f"partition {row.partition} from offset {numbers.count(row.source_end)} on" for row in waiting[:NAMED])
    more = len(waiting) - NAMED
    first = waiting[0].partition
    return HeldBack(
        sentence=f"{numbers.plural(offsets, 'offset')} {verb} behind an open transaction.",
        places=f"{named} and {numbers.plural(more, 'more partition')}" if more > 0 else named,
        command=f"kafka-transactions.sh --bootstrap-server {_server(mirror)} find-hanging --topic {mirror.source_topic} "
        f"--partition {first}",
    )


def _for_long(row: MirrorPartition, now: datetime) -> bool:
    return row.caught_up_at is None or now - row.caught_up_at > CALM


def _server(mirror: MirrorTopic) -> str:
    return source_servers(mirror.link).split(",", maxsplit=1)[0]
