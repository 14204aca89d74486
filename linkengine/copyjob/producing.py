"""One Produce request on its way: the batches that went along, and how it names the topics of each. No I/O."""

from __future__ import annotations

from typing import NamedTuple

from linkengine.batches.steps import Append
from linkengine.copyjob.partition import MirrorPartition
from linkengine.kafka import produce


class Request(NamedTuple):
    """A request without an answer."""

    correlation: int
    version: int
    sent_at: float
    entries: list[tuple[MirrorPartition, int, Append]]  # with their attempts
    size: int  # bytes of their batches


def topic_of(partition: MirrorPartition, version: int) -> bytes:
    """Answer how a request of that version, and its answer, name the mirror topic."""
    if version >= produce.BY_ID:
        assert partition.tail is not None
        return partition.tail.topic_id
    return partition.assignment.mirror_topic.encode()
