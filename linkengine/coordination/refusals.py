"""Reports refused messages (with an invalid signature) that were found in Redis: a log event and a counter."""

from __future__ import annotations

from contextlib import suppress

import redis
import structlog

from linkengine.coordination.client import client_for
from linkengine.domain.signatures import REFUSED_COUNTS, SeenRefusals

_log = structlog.get_logger(__name__)
_seen = SeenRefusals()


def report_refused(url: str, kind: str, link_id: str, text: str) -> None:
    """Log and count a message, once per process, since it stays in Redis; an outage of Redis is ignored."""
    if not _seen.is_new(f"{kind} {link_id} {text}"):
        return
    _log.error("coordination.message_refused", kind=kind, link_id=link_id)
    with suppress(redis.RedisError):
        client_for(url).hincrby(REFUSED_COUNTS, kind, 1)
