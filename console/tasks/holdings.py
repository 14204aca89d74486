"""What a topic holds, and which topic that is: a name alone says neither after a topic was deleted and created again."""

from __future__ import annotations

from collections.abc import Sequence

from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import LogRange


def held_by(address: ClusterAddress, topic: str, *, closed: bool) -> tuple[str, Sequence[LogRange]]:
    """Answer the topic's id and what each partition holds; ``closed``: nobody may write, so this is final.

    Raises UNKNOWN_TOPIC_OR_PARTITION_ERROR where there is no such topic, and whatever ``jobs.log_ranges`` does.
    """
    found = jobs.find_topic(address, topic)
    if found is None:
        raise LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, f"Topic {topic!r} does not exist any more.")
    return found.topic_id, jobs.log_ranges(address, topic, closed=closed)
