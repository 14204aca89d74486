"""Check whether a mirror holds everything its source held. Costs two requests, and a short wait if it is nearly there."""

from __future__ import annotations

import time

from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin, OffsetKind

WAIT_S = 0.5  # the usual lag is milliseconds, or the duration of a transaction
POLL_S = 0.1
CLOSE = 100_000  # offsets; a mirror with more lag does not catch up within WAIT_S


def holds_all(source: ClusterAdmin, destination: ClusterAdmin, *, topic: TopicDescription, mirror: TopicDescription) -> bool:
    """Return True if the mirror holds everything the source held at the call; False also if either cannot be read."""
    ends = source.offsets(topic.name, OffsetKind.END, partitions=topic.partitions)
    deadline = time.monotonic() + WAIT_S
    while len(ends) == topic.partitions:
        mirrored = destination.offsets(mirror.name, OffsetKind.END, partitions=topic.partitions)
        behind = sum(max(0, end - mirrored.get(partition, 0)) for partition, end in ends.items())
        if not behind:
            return True
        if behind > CLOSE or time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return False
