"""Losses on their way to the gap ledger: offsets that the source has deleted permanently before they were copied.

A set ``losses:<link id>`` of partition key, first offset, end offset and signature. A copy worker adds a loss before it writes
markers in its place. If losses were only part of reports, a loss would disappear with a worker that crashes between its first
marker and its next report: its successor would find markers that look like any others. A loss stays in the set until it is in
the ledger; recording it twice has no effect.

A member without a valid signature is not used. It is reported once and stays in the set: it may be signed with a key that this
process does not have yet.

A refused message (with an invalid signature) is reported by a log event and a counter.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import redis
import structlog

from linkengine.coordination.client import client_for, translate_redis_errors
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.signatures import REFUSED_COUNTS, SeenRefusals, Signer

Loss = tuple[str, OffsetRange]  # partition key, offsets
_PURPOSE = "loss"
_log = structlog.get_logger(__name__)
_seen = SeenRefusals()


def note_loss(url: str, link_id: str, signer: Signer, loss: Loss) -> None:
    """Add a loss; raise CoordinationUnavailableError in an outage."""
    with translate_redis_errors("store a loss"):
        client_for(url).sadd(_name(link_id), _word(link_id, loss, signer.sign(_PURPOSE, *_signed(link_id, loss))))


def read_losses(url: str, link_id: str, signer: Signer) -> list[Loss]:
    """Return the losses in the set, by partition and offset; raise CoordinationUnavailableError in an outage."""
    with translate_redis_errors("return losses"):
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
    """Remove losses that are in the ledger; raise CoordinationUnavailableError in an outage."""
    words = [
        _word(link_id, loss, signature) for loss in losses for signature in signer.signatures(_PURPOSE, *_signed(link_id, loss))
    ]
    if words:
        with translate_redis_errors("forget losses"):
            client_for(url).srem(_name(link_id), *words)


def clear_mirror(url: str, link_id: str, *, mirror_id: str) -> None:
    """Remove the losses of a deleted mirror."""
    with translate_redis_errors("forget losses"):
        client = client_for(url)
        words: Any = client.smembers(_name(link_id))
        own = [word for word in words if word.startswith(f"{mirror_id}/")]
        if own:
            client.srem(_name(link_id), *own)


def clear_losses(url: str, link_id: str) -> None:
    """Remove all losses of a deleted link."""
    with translate_redis_errors("clear losses"):
        client_for(url).delete(_name(link_id))


def _word(link_id: str, loss: Loss, signature: str) -> str:
    _, key, start, end = _signed(link_id, loss)
    return f"{key} {start} {end} {signature}"


def _signed(link_id: str, loss: Loss) -> tuple[str, str, str, str]:
    key, lost = loss
    return link_id, key, str(lost.start), str(lost.end)


def _loss(link_id: str, signer: Signer, word: str) -> Loss | None:
    """Parse a member of the set; None if no key has signed it for this link."""
    try:
        key, start, end, signature = word.rsplit(" ", maxsplit=3)
    except ValueError:
        return None
    if not signer.verifies(signature, _PURPOSE, link_id, key, start, end):
        return None
    return key, OffsetRange(int(start), int(end))


def _name(link_id: str) -> str:
    return f"losses:{link_id}"


def report_refused(url: str, kind: str, link_id: str, text: str) -> None:
    """Log and count a message, once per process, since it stays in Redis; an outage of Redis is ignored."""
    if not _seen.is_new(f"{kind} {link_id} {text}"):
        return
    _log.error("coordination.message_refused", kind=kind, link_id=link_id)
    with suppress(redis.RedisError):
        client_for(url).hincrby(REFUSED_COUNTS, kind, 1)
