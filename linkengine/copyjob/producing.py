"""A Produce request in flight: its batches, and the name or id of each topic in it. No I/O."""

from __future__ import annotations

from typing import NamedTuple

from linkengine.batches.steps import Append
from linkengine.copyjob.partition import MirrorPartition
from linkengine.kafka import produce


class Request(NamedTuple):
    """A Produce request in flight."""

    correlation: int
    version: int
    sent_at: float
    entries: list[tuple[MirrorPartition, int, Append]]  # with the partition's attempt
    size: int  # bytes of the batches


def topic_of(partition: MirrorPartition, version: int) -> bytes:
    """Return the mirror topic as requests and responses of that version name it: topic id, or name."""
    if version >= produce.BY_ID:
        assert partition.tail is not None
        return partition.tail.topic_id
    return partition.assignment.mirror_topic.encode()
