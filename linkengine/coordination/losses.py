"""Losses on their way to the gap ledger: offsets that the source has deleted for good before they were copied.

A set ``losses:<link id>`` of partition key, first offset, end offset and signature. A copier puts a loss there before it
writes anything in its place: were it told by reports only, a copier that dies between its first marker and its next report
would take it along, and who copies on finds markers that look like any others. It stays until somebody has it in the ledger;
told twice, it is the same loss.

A word without a valid signature is not read. It is reported once and left where it is: the key that signed it may be one that
this process does not have yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from linkengine.coordination.client import client_for, redis_answers
from linkengine.coordination.refusals import report_refused
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.signatures import Signer

Loss = tuple[str, OffsetRange]  # partition key, offsets
_PURPOSE = "loss"


def note_loss(url: str, link_id: str, signer: Signer, loss: Loss) -> None:
    """Keep a loss until it is forgotten; raise CoordinationUnavailableError in an outage."""
    with redis_answers("keep a loss"):
        client_for(url).sadd(_name(link_id), _word(link_id, loss, signer.sign(_PURPOSE, *_signed(link_id, loss))))


def read_losses(url: str, link_id: str, signer: Signer) -> list[Loss]:
    """Answer the losses that are kept, by partition and offset; raise CoordinationUnavailableError in an outage."""
    with redis_answers("answer losses"):
        words: Any = client_for(url).smembers(_name(link_id))
    found = set()
    for word in words:
        loss = _loss(link_id, signer, word)
        if loss is None:
            report_refused(url, "loss", link_id, word)
        else:
            found.add(loss)
    return sorted(found)


def forget_losses(url: str, link_id: str, signer: Signer, losses: Iterable[Loss]) -> None:
    """Let losses go that are in the ledger; raise CoordinationUnavailableError in an outage."""
    words = [
        _word(link_id, loss, signature) for loss in losses for signature in signer.signatures(_PURPOSE, *_signed(link_id, loss))
    ]
    if words:
        with redis_answers("forget losses"):
            client_for(url).srem(_name(link_id), *words)


def clear_mirror(url: str, link_id: str, *, mirror_id: str) -> None:
    """Remove those of one mirror that is gone."""
    with redis_answers("forget losses"):
        client = client_for(url)
        words: Any = client.smembers(_name(link_id))
        own = [word for word in words if word.startswith(f"{mirror_id}/")]
        if own:
            client.srem(_name(link_id), *own)


def clear_losses(url: str, link_id: str) -> None:
    """Remove all of a link that is gone."""
    with redis_answers("clear losses"):
        client_for(url).delete(_name(link_id))


def _word(link_id: str, loss: Loss, signature: str) -> str:
    _, key, start, end = _signed(link_id, loss)
    return f"{key} {start} {end} {signature}"


def _signed(link_id: str, loss: Loss) -> tuple[str, str, str, str]:
    key, lost = loss
    return link_id, key, str(lost.start), str(lost.end)


def _loss(link_id: str, signer: Signer, word: str) -> Loss | None:
    """Read a word; None where no key has signed it for this link."""
    try:
        key, start, end, signature = word.rsplit(" ", maxsplit=3)
    except ValueError:
        return None
    if not signer.verifies(signature, _PURPOSE, link_id, key, start, end):
        return None
    return key, OffsetRange(int(start), int(end))


def _name(link_id: str) -> str:
    return f"losses:{link_id}"
