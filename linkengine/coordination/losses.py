"""Losses on their way to the gap ledger: offsets that the source has deleted for good before they were copied.

A set ``losses:<link id>`` of partition key, first offset and end offset. A copier puts a loss there before it writes anything
in its place: were it told by reports only, a copier that dies between its first marker and its next report would take it
along, and who copies on finds markers that look like any others. It stays until somebody has it in the ledger; told twice, it
is the same loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from linkengine.coordination.client import client_for, redis_answers
from linkengine.domain.ranges import OffsetRange

Loss = tuple[str, OffsetRange]  # partition key, offsets


def note_loss(url: str, link_id: str, loss: Loss) -> None:
    """Keep a loss until it is forgotten; raise CoordinationUnavailableError in an outage."""
    with redis_answers("keep a loss"):
        client_for(url).sadd(_name(link_id), _word(loss))


def read_losses(url: str, link_id: str) -> list[Loss]:
    """Answer the losses that are kept, by partition and offset; raise CoordinationUnavailableError in an outage."""
    with redis_answers("answer losses"):
        words: Any = client_for(url).smembers(_name(link_id))
    return sorted(_loss(word) for word in words)


def forget_losses(url: str, link_id: str, losses: Iterable[Loss]) -> None:
    """Let losses go that are in the ledger; raise CoordinationUnavailableError in an outage."""
    words = [_word(one) for one in losses]
    if words:
        with redis_answers("forget losses"):
            client_for(url).srem(_name(link_id), *words)


def clear_mirror(url: str, link_id: str, *, mirror_id: str) -> None:
    """Remove those of one mirror that is gone."""
    forget_losses(url, link_id, [one for one in read_losses(url, link_id) if one[0].startswith(f"{mirror_id}/")])


def clear_losses(url: str, link_id: str) -> None:
    """Remove all of a link that is gone."""
    with redis_answers("clear losses"):
        client_for(url).delete(_name(link_id))


def _word(loss: Loss) -> str:
    key, lost = loss
    return f"{key} {lost.start} {lost.end}"


def _loss(word: str) -> Loss:
    key, start, end = word.rsplit(" ", maxsplit=2)
    return key, OffsetRange(int(start), int(end))


def _name(link_id: str) -> str:
    return f"losses:{link_id}"
